"""pydantic's errors → what was expected, what the value is, and the fix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from penstock.errors import GraphError, Problem, ProblemKind
from penstock.strict_yaml.base import (
    FOLDER_PATH,
    HEADER_NAME,
    HTTP_URL,
    OBJECT_NAME,
    OTLP_ENDPOINT,
    QUANTITY,
)
from penstock.strict_yaml.document import read_document
from penstock.strict_yaml.kind import MOST_PROBLEMS, DocumentKind
from penstock.strict_yaml.places import Path, Places, is_within, looks_secret, place_of
from penstock.strict_yaml.value_fixes import (
    list_fix,
    number_fix,
    quantity_fix,
    section_fix,
    unusual_character,
)
from penstock.text.names import KEY_CUTOFF, did_you_mean
from penstock.text.numbers import plain_number

LONGEST_VALUE = 60
# Keys of amounts of memory, and the least number that can be meant as bytes.
MEMORY, LEAST_BYTES = ("memory", "shared_memory"), 2**20


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a problem says, without its place."""

    message: str
    fix: str
    kind: ProblemKind = ProblemKind.OTHER


@dataclass(frozen=True, kw_only=True)
class FieldProblem(Text):
    """What is wrong with one field, before its line is known."""

    # The dotted place of the field.
    place: str


EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping of `key: value` lines",
    "model_type": "a section of `key: value` lines",
    "model_attributes_type": "a section of `key: value` lines",
    "finite_number": "a finite number",
}
# Pattern of a scalar type → what it describes, and the fix.
PATTERNS = {
    QUANTITY: (
        "a Kubernetes quantity",
        'Write a number with a unit, such as "8Gi", "500m" or "4".',
    ),
    OBJECT_NAME: (
        "the name of a Kubernetes object",
        "Use lower-case letters, digits, '-' and '.', with a letter or digit first and last.",
    ),
    HEADER_NAME: (
        "the name of an HTTP header",
        "Use letters, digits and '-', such as Authorization.",
    ),
    OTLP_ENDPOINT: (
        "an http URL with a port, without a path and without a user name or password",
        "Write it as http://tempo.monitoring:4317 (OTLP over gRPC) or with port 4318 (HTTP).",
    ),
    HTTP_URL: (
        "an http or https URL without a user name or password",
        "Write it like http://prometheus.monitoring.svc:9090",
    ),
    FOLDER_PATH: (
        "an absolute path of a folder",
        "Begin with / and use letters, digits, '.', '_' and '-' between slashes.",
    ),
}
BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


# What a model says about an error, if it knows more than the general texts.
Explain = Callable[[Path, ErrorDetails], Text | None]


def field_problems(
    error: ValidationError, root: type[BaseModel], explain: Explain = lambda *_: None
) -> list[FieldProblem]:
    """The errors that pydantic found in a value of the model ``root``: the first MOST_PROBLEMS, and
    at the next one how many there are in all.

    Raises the ValueError or AssertionError of a validator, whose own problems are of another type.
    """
    errors = error.errors(include_url=False)
    problems = [_field_problem(e, root, explain) for e in errors[:MOST_PROBLEMS]]
    if len(errors) > MOST_PROBLEMS:
        message = f"the file has {len(errors)} such problems; the rest is not listed"
        place = _field_problem(errors[MOST_PROBLEMS], root, explain).place
        problems.append(FieldProblem(place=place, message=message, fix="Correct the listed ones."))
    return problems


def located(
    problems: Iterable[FieldProblem], known: Iterable[Problem], places: Places, source: str
) -> list[Problem]:
    """The problems with their lines, without those at places of ``known`` problems."""
    reported = {problem.place for problem in known if problem.place}
    return [
        places.located(
            Problem(
                file=source,
                place=problem.place,
                message=problem.message,
                fix=problem.fix,
                kind=problem.kind,
            )
        )
        for problem in problems
        if not any(is_within(problem.place, other) for other in reported)
    ]


def _field_problem(error: ErrorDetails, root: type[BaseModel], explain: Explain) -> FieldProblem:
    path: Path = tuple(step for step in error["loc"] if step != "[key]")
    if error["type"] == "penstock":
        return _of_validator(path, error["ctx"])
    if error["type"] in ("value_error", "assertion_error"):
        raise error["ctx"]["error"]  # a bug of a validator, and no fault of the file
    text = explain(path, error) or _general(path, error, root)
    return FieldProblem(place=place_of(path), message=text.message, fix=text.fix, kind=text.kind)


def _general(path: Path, error: ErrorDetails, root: type[BaseModel]) -> Text:
    kind = error["type"]
    describe: Callable[[Path, ErrorDetails], Text] = _DESCRIBE.get(kind, _other)
    if kind in EXPECTED:
        describe = _wrong_type
    elif kind in BOUNDS:
        describe = _out_of_bounds
    if kind == "missing":
        return _missing(path, root)
    if kind == "extra_forbidden":
        return _unknown(path, root)
    if kind == "model_type" and isinstance(error["input"], str):
        return _text_for_a_section(path, error, root)
    if kind == "literal_error":
        return _not_a_choice(path, error, root)
    return describe(path, error)


def _of_validator(path: Path, context: Mapping[str, Any]) -> FieldProblem:
    """What a model's own validator refuses; its place is relative to the object it checked."""
    place = ".".join(part for part in (place_of(path), context["place"]) if part)
    return FieldProblem(place=place, message=context["message"], fix=context["fix"])


def _missing(path: Path, root: type[BaseModel]) -> Text:
    field = (model_at(path[:-1], root) or root).model_fields[str(path[-1])]
    description = (field.description or "").rstrip(".")
    if get_origin(field.annotation) is Literal:
        description += f": {', '.join(map(str, get_args(field.annotation)))}"
    return Text(message="required, but missing", fix=f"Add `{path[-1]}:` ({description}).")


def _unknown(path: Path, root: type[BaseModel]) -> Text:
    key = str(path[-1])
    known = list((model_at(path[:-1], root) or root).model_fields)
    if any(character.isspace() and character != " " for character in key):
        message = f"unknown key {key!a}: it contains a space that YAML does not read as one"
        return Text(message=message, fix="Replace it with a space of the keyboard.")
    if not key.isprintable():
        message = f"unknown key {key!a}: it contains {unusual_character(key)}, which is not shown"
        return Text(message=message, fix="Write the key again.")
    fix = did_you_mean(key, known, KEY_CUTOFF) or _elsewhere(key, known, root)
    unusual = unusual_character(key)
    contains = f", which contains {unusual}" if unusual else ""
    return Text(message=f"unknown key `{key}`{contains}", fix=fix)


def _text_for_a_section(path: Path, error: ErrorDetails, root: type[BaseModel]) -> Text:
    """`model: NAME`, where `model:` has a required field that may have been meant."""
    text, section = _wrong_type(path, error), model_at(path, root)
    required = [n for n, f in section.model_fields.items() if f.is_required()] if section else []
    if len(required) != 1 or section_fix(error["input"]):
        return text
    fix = f"Write `{required[0]}: {shown(path, error['input'])}` on a line of its own below it."
    return Text(message=text.message, fix=fix, kind=text.kind)


def _elsewhere(key: str, known: list[str], root: type[BaseModel]) -> str:
    """The sections to which an unknown key belongs, or else the keys that are known here."""
    sections = [
        name
        for name in root.model_fields
        if (section := model_at((name,), root)) and key in section.model_fields
    ]
    if sections:
        return f"Move it to {' or '.join(f'`{name}`' for name in sections)}."
    return f"Remove it. Keys of this section: {', '.join(known)}."


def _not_a_choice(path: Path, error: ErrorDetails, root: type[BaseModel]) -> Text:
    quoted = re.findall(r"'([^']*)'|(\d+)", error["ctx"]["expected"])
    choices = [word or number for word, number in quoted]
    value = error["input"]
    close = _meant_choice(str(value), choices) if isinstance(value, (str, float)) else ""
    section = model_at(path[:-1], root)
    field = section.model_fields.get(str(path[-1])) if section is not None else None
    is_optional = field is not None and not field.is_required() and field.default is None
    removable = ", or remove the key" if is_optional else ""
    close = close or f"Write {choices[0] if len(choices) == 1 else 'one of them'}{removable}."
    listed = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    return Text(message=f"must be {listed}, got {shown(path, value)}", fix=close)


def _meant_choice(text: str, choices: list[str]) -> str:
    """`Did you mean …?` for a choice that the text begins with, begins or contains as a word, or
    else for a close one. A100 is not h100, and ollama is not vllm: the first letters must agree."""
    words = re.split(r"[^a-z0-9.]+", text.lower())
    begins = [choice for choice in choices if text and choice.startswith(text)]
    longer = min(begins, key=len, default=None)  # 1.7.0, not its pre-release
    words += [word.removeprefix("v") for word in words]  # v1.6.1
    part = next((choice for choice in choices if choice.lower() in words), None)
    if meant := longer or part:
        return f"Did you mean `{meant}`?"
    first = text.strip("\"'“”‘’ ")[:1].lower()
    return did_you_mean(text, [choice for choice in choices if choice[:1].lower() == first])


def _out_of_bounds(path: Path, error: ErrorDetails) -> Text:
    name, words = BOUNDS[error["type"]]
    limit = error["ctx"][name]
    bound = f"{words} {plain_number(limit)}"
    message = f"must be {bound}, got {shown(path, error['input'])}"
    name = "it" if isinstance(path[-1], int) else path[-1]  # an item of a list
    return Text(message=message, fix=f"Set {name} to {bound}.")


def _not_a_multiple(path: Path, error: ErrorDetails) -> Text:
    of = error["ctx"]["multiple_of"]
    message = f"must be a multiple of {of}, got {shown(path, error['input'])}"
    return Text(message=message, fix=f"Round it to a multiple of {of}.")


def _empty(path: Path, error: ErrorDetails) -> Text:
    return Text(message="must not be empty", fix="Write a value, or remove the key.")


def _too_long(path: Path, error: ErrorDetails) -> Text:
    most, length = error["ctx"]["max_length"], error["ctx"]["actual_length"]
    message = f"must have at most {most} items, got {length}"
    return Text(message=message, fix="Remove the other items.")


def _pattern(path: Path, error: ErrorDetails) -> Text:
    value = shown(path, error["input"])
    if error["loc"][-1] == "[key]":
        message = f"{value} is not a valid name of an environment variable"
        fix = "Use letters, digits, '_', '.' and '-', and do not begin with a digit."
        return Text(message=message, fix=fix)
    pattern = error["ctx"]["pattern"]
    expected, fix = PATTERNS[pattern]
    if pattern == QUANTITY:
        fix = quantity_fix(str(error["input"])) or fix
    return Text(message=f"must be {expected}, got {value}", fix=fix)


def _wrong_type(path: Path, error: ErrorDetails) -> Text:
    expected, value = EXPECTED[error["type"]], error["input"]
    got = "nothing (null)" if value is None else f"{kind_of(value)}{_inline(path, value)}"
    fix, kind = _type_fix(error["type"], path, value)
    return Text(message=f"must be {expected}, got {got}", fix=fix, kind=kind)


def _inline(path: Path, value: Any) -> str:
    return "" if isinstance(value, (dict, list)) else f" {shown(path, value)}"


def _type_fix(kind: str, path: Path, value: Any) -> tuple[str, ProblemKind]:
    """How to write the value so that it has the type: in YAML mostly a matter of quotes."""
    if path[-1:] and path[-1] in MEMORY and isinstance(value, int) and value < LEAST_BYTES:
        # A quoted number would be an amount of bytes.
        return f'Write it with its unit: "{value}Gi"', ProblemKind.OTHER
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return f"Quote it: {_quoted(path, value)}", ProblemKind.QUOTING
    return _other_type_fix(kind, path, value)


def _other_type_fix(kind: str, path: Path, value: Any) -> tuple[str, ProblemKind]:
    other = ProblemKind.OTHER
    if value is None:
        return "Give it a value, or remove the key.", other
    if kind in ("dict_type", "model_type"):
        return section_fix(value) or f"Write {EXPECTED[kind]}.", ProblemKind.SECTION
    if kind == "tuple_type" and not isinstance(value, dict):
        if isinstance(value, (int, float)):  # the items may be numbers, without quotes
            return "Write a list.", other
        return list_fix(value) or f"Write a list: [{_quoted(path, value)}]", other
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"Write {int(value)}.", other
    if _is_only_quoted(kind, value):
        return "Write it without quotes.", ProblemKind.QUOTING
    is_number = kind in ("int_type", "float_type") and isinstance(value, str)
    if is_number and (fix := number_fix(str(path[-1]), value, kind == "int_type")):
        return fix, other
    return f"Write {EXPECTED[kind]}.", other


def _is_only_quoted(kind: str, value: Any) -> bool:
    """Whether a string holds a value of the expected type, and only its quotes are wrong."""
    if kind in ("int_type", "float_type"):
        integer = r"[-+]?(0|[1-9][0-9]*)"
        number = integer if kind == "int_type" else rf"{integer}(\.[0-9]+)?"
        return isinstance(value, str) and bool(re.fullmatch(number, value))
    return kind == "bool_type" and value in ("true", "false")


def _quoted(path: Path, value: Any) -> str:
    if looks_secret(place_of(path)):
        return '"…"'
    return json.dumps(value if isinstance(value, str) else json.dumps(value), ensure_ascii=False)


def kind_of(value: Any) -> str:
    """What a YAML value is, with its article."""
    kinds: dict[type, str] = {
        bool: "the boolean",
        int: "the number",
        float: "the number",
        str: "the string",
        dict: "a mapping",
        list: "a list",
        tuple: "a list",
    }
    return kinds.get(type(value), "nothing")


def shown(path: Path, value: Any) -> str:
    """A value for a message: as YAML would have it, shortened, and never a secret, such as the user
    name and the password of a URL."""
    if looks_secret(place_of(path)):
        return "(not shown)"
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = re.sub(r"//.*@", "//(not shown)@", text)
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[: LONGEST_VALUE + 1])
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _other(path: Path, error: ErrorDetails) -> Text:
    """An error for which there is no text of ours: pydantic's."""
    message = f"{error['msg'][:1].lower()}{error['msg'][1:]}, got {shown(path, error['input'])}"
    return Text(message=message, fix="")


_DESCRIBE: dict[str, Callable[[Path, ErrorDetails], Text]] = {
    "string_too_short": _empty,
    "string_pattern_mismatch": _pattern,
    "multiple_of": _not_a_multiple,
    "too_long": _too_long,
}


def model_at(path: Path, root: type[BaseModel]) -> type[BaseModel] | None:
    """The model that describes the section at a path of ``root``; None where there is none."""
    model = root
    for step in path:
        if isinstance(step, int):
            continue  # the items of a list have one model
        if step not in model.model_fields:
            return None
        section = next(_models(model.model_fields[step].annotation), None)
        if section is None:
            return None
        model = section
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


Model = TypeVar("Model", bound=BaseModel)


def parse_strictly(
    text: str,
    source: str,
    kind: DocumentKind,
    model: type[Model],
    problems_of: Callable[[ValidationError], Iterable[FieldProblem]],
) -> Model:
    """The typed file; ``source`` is its name, ``problems_of`` describes the model's errors.

    Raises GraphError.
    """
    document = read_document(text, source, kind)
    problems = list(document.problems)
    try:
        parsed = model.model_validate(document.values)
    except ValidationError as error:
        places = Places(positions=document.positions)
        problems += located(problems_of(error), problems, places, source)
    if problems:
        raise GraphError(*sorted(problems, key=lambda p: (p.line or 0, p.place)))
    return parsed
