"""pydantic's errors in our words: what was expected, what stands there, the fix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from penstock.errors import Problem
from penstock.nearest import nearest
from penstock.strict_yaml.base import FOLDER_PATH, HTTP_URL, OBJECT_NAME, QUANTITY
from penstock.strict_yaml.places import Path, Places, is_within, looks_secret, place_of

LONGEST_VALUE = 60
# place, message, fix
Finding = tuple[str, str, str]

EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a map of `key: value` lines",
    "model_type": "a section of `key: value` lines",
    "model_attributes_type": "a section of `key: value` lines",
    "finite_number": "a finite number",
}
THOUSANDS = re.compile(r"([0-9]+) ?[kK]i?")
# Pattern of a scalar type → what it asks for, and the fix.
PATTERNS = {
    QUANTITY: ("a Kubernetes quantity", 'write a number with a unit such as "8Gi", "500m" or "4"'),
    OBJECT_NAME: (
        "a name of a Kubernetes object",
        "use lower-case letters, digits, '-' and '.', a letter or digit first and last",
    ),
    HTTP_URL: (
        "an http or https URL without a name or password in it",
        "write it as http://prometheus.monitoring.svc:9090",
    ),
    FOLDER_PATH: (
        "an absolute path of a folder",
        "begin with / and use letters, digits, '.', '_' and '-' between slashes",
    ),
}
BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def findings(error: ValidationError, root: type[BaseModel]) -> list[Finding]:
    """Every error of the model ``root`` as (dotted place, message, fix)."""
    return [_finding(e, root) for e in error.errors(include_url=False)]


def located(
    found: Iterable[Finding], known: Iterable[Problem], places: Places, source: str
) -> list[Problem]:
    """The findings with their lines, but for places of which the reader has spoken already."""
    said = {problem.place for problem in known if problem.place}
    return [
        Problem(file=source, line=places.line_of(place), place=place, message=message, fix=fix)
        for place, message, fix in found
        if not any(is_within(place, other) for other in said)
    ]


def _finding(error: ErrorDetails, root: type[BaseModel]) -> Finding:
    path: Path = tuple(step for step in error["loc"] if step != "[key]")
    kind = error["type"]
    if kind == "penstock":
        return _refused(path, error["ctx"])
    place = place_of(path)
    if kind == "missing":
        return (place, *_missing(path, root))
    if kind == "extra_forbidden":
        return (place, *_unknown(path, root))
    say: Callable[[Path, ErrorDetails], tuple[str, str]] = _SAY.get(kind, _other)
    if kind in EXPECTED:
        say = _wrong_type
    elif kind in BOUNDS:
        say = _out_of_bounds
    return (place, *say(path, error))


def _refused(path: Path, context: Mapping[str, Any]) -> Finding:
    """A refusal of a model validator: its place is relative to the object it saw."""
    place = ".".join(part for part in (place_of(path), context["place"]) if part)
    return place, context["message"], context["fix"]


def _missing(path: Path, root: type[BaseModel]) -> tuple[str, str]:
    field = (model_at(path[:-1], root) or root).model_fields[str(path[-1])]
    what = (field.description or "").rstrip(".")
    return "required, but missing", f"add `{path[-1]}:` ({what})"


def _unknown(path: Path, root: type[BaseModel]) -> tuple[str, str]:
    key = str(path[-1])
    known = list((model_at(path[:-1], root) or root).model_fields)
    return f"unknown key `{key}`", did_you_mean(key, known) or _elsewhere(key, known, root)


def did_you_mean(word: str, known: list[str]) -> str:
    """`did you mean …?` if something known is close, else nothing."""
    close = nearest(word, known)
    return f"did you mean `{close}`?" if close else ""


def _elsewhere(key: str, known: list[str], root: type[BaseModel]) -> str:
    """Where a key that is unknown here does belong, or else what is known here."""
    homes = [
        name
        for name in root.model_fields
        if (section := model_at((name,), root)) and key in section.model_fields
    ]
    if homes:
        return f"it belongs to {' or '.join(homes)}"
    return f"remove it; known here: {', '.join(known)}"


def _not_a_choice(path: Path, error: ErrorDetails) -> tuple[str, str]:
    choices = re.findall(r"'([^']*)'", error["ctx"]["expected"])
    value = error["input"]
    close = did_you_mean(value, choices) if isinstance(value, str) else ""
    close = close or f"write {choices[0] if len(choices) == 1 else 'one of them'}"
    listed = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    return f"must be {listed}, got {shown(path, value)}", close


def _out_of_bounds(path: Path, error: ErrorDetails) -> tuple[str, str]:
    name, words = BOUNDS[error["type"]]
    limit = error["ctx"][name]
    message = f"must be {words} {limit:g}, got {shown(path, error['input'])}"
    return message, f"set {path[-1]} to {words} {limit:g}"


def _no_multiple(path: Path, error: ErrorDetails) -> tuple[str, str]:
    of = error["ctx"]["multiple_of"]
    return f"must be a multiple of {of}, got {shown(path, error['input'])}", "round it"


def _empty(path: Path, error: ErrorDetails) -> tuple[str, str]:
    return "must not be empty", "write a value, or remove the key"


def _pattern(path: Path, error: ErrorDetails) -> tuple[str, str]:
    got = shown(path, error["input"])
    if error["loc"][-1] == "[key]":
        message = f"{got} is no name of an environment variable"
        return message, "use letters, digits, _ . and -, not beginning with a digit"
    what, fix = PATTERNS[error["ctx"]["pattern"]]
    return f"must be {what}, got {got}", fix


def _wrong_type(path: Path, error: ErrorDetails) -> tuple[str, str]:
    expected, value = EXPECTED[error["type"]], error["input"]
    got = "nothing (null)" if value is None else f"{kind_of(value)}{_parenthesis(path, value)}"
    return f"must be {expected}, got {got}", _type_fix(error["type"], path, value)


def _parenthesis(path: Path, value: Any) -> str:
    return "" if isinstance(value, (dict, list)) else f" {shown(path, value)}"


def _type_fix(kind: str, path: Path, value: Any) -> str:
    """How to write the value so that it has the type: in YAML mostly a matter of quotes."""
    if value is None:
        return "give it a value, or remove the key"
    if kind == "tuple_type" and not isinstance(value, dict):
        return f"write a list: [{_quoted(path, value)}]"
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return f"quote it: {_quoted(path, value)}"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if kind == "int_type" and isinstance(value, str) and (thousands := THOUSANDS.fullmatch(value)):
        number = int(thousands[1])
        return f"write {number * 1024} ({number} × 1024) or {number * 1000}"
    if _is_meant_as(kind, value):
        return "write it without quotes"
    return f"write {EXPECTED[kind]}"


def _is_meant_as(kind: str, value: Any) -> bool:
    """Whether a string holds what was asked for, and only its quotes are wrong."""
    if kind in ("int_type", "float_type"):
        number = r"[-+]?[0-9]+" if kind == "int_type" else r"[-+]?[0-9]+(\.[0-9]+)?"
        return isinstance(value, str) and bool(re.fullmatch(number, value))
    return kind == "bool_type" and value in ("true", "false")


def _quoted(path: Path, value: Any) -> str:
    if looks_secret(place_of(path)):
        return '"…"'
    return json.dumps(value if isinstance(value, str) else json.dumps(value), ensure_ascii=False)


def kind_of(value: Any) -> str:
    """What a YAML value is, in words."""
    kinds: dict[type, str] = {
        bool: "the boolean",
        int: "the number",
        float: "the number",
        str: "the string",
        dict: "a map",
        list: "a list",
        tuple: "a list",
    }
    return kinds.get(type(value), "nothing")


def shown(path: Path, value: Any) -> str:
    """A value for a message: as YAML would have it, shortened, and never a secret."""
    if looks_secret(place_of(path)):
        return "(not shown)"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _other(path: Path, error: ErrorDetails) -> tuple[str, str]:
    """An error the table does not know, in pydantic's words."""
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}, got {shown(path, error['input'])}", ""


_SAY: dict[str, Callable[[Path, ErrorDetails], tuple[str, str]]] = {
    "literal_error": _not_a_choice,
    "string_too_short": _empty,
    "string_pattern_mismatch": _pattern,
    "multiple_of": _no_multiple,
}


def model_at(path: Path, root: type[BaseModel]) -> type[BaseModel] | None:
    """The model that describes the section at a path of ``root``; None where there is none."""
    model = root
    for step in path:
        if isinstance(step, int):
            continue  # the parts of a list are alike
        if step not in model.model_fields:
            return None
        found = next(_models(model.model_fields[step].annotation), None)
        if found is None:
            return None
        model = found
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
