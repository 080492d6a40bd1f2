"""Turn pydantic's errors about a gateway file into problems with a message and a fix."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails

from penstock.gateway.model import DNS_LABEL, DNS_NAME, Gateway
from penstock.strict_yaml import problems
from penstock.strict_yaml.base import HEADER_NAME
from penstock.strict_yaml.places import Path, place_of
from penstock.strict_yaml.problems import FieldProblem, shown

FORMS = {
    HEADER_NAME: "a header name: letters, digits and '-'",
    DNS_LABEL: "lower-case letters, digits and '-'",
    DNS_NAME: "lower-case letters, digits and '-', with dots between",
}


def field_problems(error: ValidationError) -> list[FieldProblem]:
    """Every error that pydantic found in a gateway file."""
    return [_field_problem(e) for e in error.errors(include_url=False)]


def _field_problem(error: ErrorDetails) -> FieldProblem:
    path: Path = error["loc"]
    match error["type"]:
        case "string_pattern_mismatch" | "string_too_long":
            got = shown(path, _input(error))
            message = f"must be {_form(error)}, got {got}"
            return FieldProblem(place=place_of(path), message=message, fix="Correct the name.")
        case "penstock":
            context = error["ctx"]
            return FieldProblem(
                place=context["place"], message=context["message"], fix=context["fix"]
            )
    return _common_problem(error)


def _form(error: ErrorDetails) -> str:
    if error["type"] == "string_too_long":
        return f"at most {error['ctx']['max_length']} characters"
    return FORMS[error["ctx"]["pattern"]]


def _input(error: ErrorDetails) -> Any:
    """The value; hidden under `api_keys`, where a user may have written a key by mistake."""
    value = error["input"]
    return "(not shown)" if error["loc"][:1] == ("api_keys",) and isinstance(value, str) else value


def _common_problem(error: ErrorDetails) -> FieldProblem:
    """The shared messages for types, bounds and choices."""
    again: InitErrorDetails = {
        "type": error["type"],
        "loc": error["loc"],
        "input": _input(error),
        "ctx": error.get("ctx", {}),
    }
    same = ValidationError.from_exception_data("Gateway", [again])
    return problems.field_problems(same, Gateway)[0]
