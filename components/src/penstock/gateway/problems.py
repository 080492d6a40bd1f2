"""pydantic's errors about a gateway in our words; types and bounds are said as in a graph."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails

from penstock.gateway.model import Gateway
from penstock.strict_yaml import problems
from penstock.strict_yaml.places import Path, place_of
from penstock.strict_yaml.problems import FieldProblem, shown


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
    return _as_in_a_graph(error)


def _form(error: ErrorDetails) -> str:
    if error["type"] == "string_too_long":
        return f"at most {error['ctx']['max_length']} characters"
    if error["loc"][-1] == "header":
        return "a header name: letters, digits and '-'"
    dots = ", with dots between" if r"\." in error["ctx"]["pattern"] else ""
    return f"lower-case letters, digits and '-'{dots}"


def _input(error: ErrorDetails) -> Any:
    """The value, unless somebody may have written a key where its Secret or header is named."""
    value = error["input"]
    return "(not shown)" if error["loc"][:1] == ("api_keys",) and isinstance(value, str) else value


def _as_in_a_graph(error: ErrorDetails) -> FieldProblem:
    """Types, bounds and choices read the same wherever they stand."""
    again: InitErrorDetails = {
        "type": error["type"],
        "loc": error["loc"],
        "input": _input(error),
        "ctx": error.get("ctx", {}),
    }
    same = ValidationError.from_exception_data("Gateway", [again])
    return problems.field_problems(same, Gateway)[0]
