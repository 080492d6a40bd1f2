"""Texts for errors of a graph that the general ones of `strict_yaml/problems.py` do not fit.

They know the keys of other tools, the supported GPUs, and how a value is given with `--set`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

from penstock.graph import image_reference, model_id
from penstock.graph.foreign import POOLS, fix_of_key
from penstock.graph.model import Graph
from penstock.hardware.gpus import meant_gpu
from penstock.strict_yaml.base import (
    FOLDER_PATH,
    HEADER_NAME,
    HTTP_URL,
    OBJECT_NAME,
    OTLP_ENDPOINT,
    QUANTITY,
)
from penstock.strict_yaml.places import Path, Places, looks_secret, place_of
from penstock.strict_yaml.problems import BOUNDS, MEMORY, PATTERNS, Text, kind_of, model_at, shown
from penstock.strict_yaml.value_fixes import number_fix, section_fix
from penstock.text.numbers import plain_number

GPU = ("hardware", "gpu")
PLAIN_INTEGER = re.compile(r"-?[1-9][0-9]*")  # a text only because it has too many digits
COUNTED = re.compile(r"([1-9][0-9]*) ?[x×*] ?(.+)")  # 8xh200
# The key of a section for which a scalar in the place of the section is meant.
MAIN_KEYS: Mapping[str, str] = {
    "model": "id",
    "hardware": "gpu",
    "engine": "kind",
    "router": "mode",
    "kv_transfer": "backend",
    "speculation": "method",
    "infrastructure": "discovery",
    "planner": "max_gpus",
    "autoscaling": "owner",
    "cache": "pvc",
    "create": "size",
    "tls": "secret",
    "rate_limit": "requests",
    "resources": "memory",
    "cluster": "security",
    "topology": "name",
    "network_policy": "enabled",
    "monitoring": "pod_monitors",
    "frontend": "replicas",
    **dict.fromkeys(POOLS, "replicas"),
}
NUMBERS = ("int_type", "float_type", "int_from_float", *BOUNDS)
# Pattern of a text → a valid one.
EXAMPLES: Mapping[str, str] = {
    QUANTITY: "8Gi",
    OBJECT_NAME: "my-name",
    FOLDER_PATH: "/models",
    HTTP_URL: "http://prometheus:9090",
    OTLP_ENDPOINT: "http://tempo.monitoring:4317",
    HEADER_NAME: "Authorization",
    image_reference.PATTERN: "registry.example/vllm-runtime:1.6.1",
    model_id.PATTERN: "openai/gpt-oss-120b",
}


class Explanations:
    """The `explain` of `field_problems` for a graph; ``places`` says what a `--set` gives."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def __call__(self, path: Path, error: ErrorDetails) -> Text | None:
        is_set = self._places.set_of(place_of(path)) is not None
        kind, rejected = error["type"], error["input"]
        if kind == "extra_forbidden":
            fix = fix_of_key(path)
            return Text(message=f"unknown key `{path[-1]}`", fix=fix) if fix else None
        if kind == "literal_error" and path == GPU and isinstance(rejected, str):
            return _not_a_gpu(rejected)
        if kind == "model_type" and isinstance(rejected, (str, int, float)):
            return _scalar_for_a_section(path, rejected, is_set)
        if kind == "string_too_short":
            return _empty(path, is_set)
        if kind == "string_type" and not is_set and (fix := _fix_of_pattern(path, rejected)):
            message = f"must be a string, got {kind_of(rejected)} {shown(path, rejected)}"
            return Text(message=message, fix=fix)
        if kind == "tuple_type" and (items := _items(path)):
            example = f": `--set '{place_of(path)}[0].KEY=VALUE'`" if is_set else ""
            got = (
                kind_of(rejected)
                if isinstance(rejected, dict)
                else f"{kind_of(rejected)} {shown(path, rejected)}"
            )
            return Text(
                message=f"must be a list, got {got}", fix=f"Write a list of {items}{example}."
            )
        return _of_a_set(path, kind, rejected) if is_set else None


def _not_a_gpu(text: str) -> Text:
    supported = _schema(GPU)["enum"]
    listed = ", ".join(supported)
    if (counted := COUNTED.fullmatch(text)) and (meant := meant_gpu(counted[2], supported)):
        message = f"must be one of {listed}, got {shown(GPU, text)}"
        fix = f"Write `{meant}`, and the GPUs of each worker in `gpus` of its pool."
        return Text(message=message, fix=fix)
    if meant := meant_gpu(text, supported):
        message = f"must be one of {listed}, got {shown(GPU, text)}"
        return Text(message=message, fix=f"Did you mean `{meant}`?")
    message = f"{shown(GPU, text)} is not supported"
    fix = f"If the nodes have one of {listed}, write that one. Otherwise remove the key."
    return Text(message=message, fix=fix)


def _scalar_for_a_section(path: Path, scalar: str | float, is_set: bool) -> Text | None:
    """`hardware: H100`, where `hardware.gpu` was meant."""
    main = MAIN_KEYS.get(str(path[-1]))
    if section_fix(scalar):
        return None  # the text is a `key: value` line without its space, which has a fix of its own
    message = (
        f"must be a section of `key: value` lines, got {kind_of(scalar)} {shown(path, scalar)}"
    )
    if main is None or looks_secret(place_of(path)):
        keys = ", ".join(section.model_fields) if (section := model_at(path, Graph)) else ""
        if is_set:
            fix = f"Set its keys: `--set {place_of(path)}.KEY=VALUE`, with one of {keys}."
            return Text(message=message, fix=fix)
        return Text(message=message, fix=f"Give the value to one of its keys: {keys}.")
    schema = _schema((*path, main))
    choices = schema.get("enum", [])
    if (*path, main) == GPU:
        meant = meant_gpu(str(scalar), choices)
    else:
        meant = next((choice for choice in choices if choice == str(scalar).lower()), "")
    if choices and not meant:
        written = _written((*path, main), "…", is_set)
        fix = f"Write {written}, with one of {', '.join(choices)}."
        more = f" {scalar} is not supported." if (*path, main) == GPU else ""
        return Text(message=message, fix=fix + more)
    example = meant or scalar
    # What cannot be right, or must not be printed, is not repeated as the value to write.
    if looks_secret(place_of((*path, main))) or not _fits(example, schema):
        example = _example(schema)
    return Text(message=message, fix=f"Write {_written((*path, main), example, is_set)}.")


def _written(path: Path, value: Any, is_set: bool) -> str:
    """How to give a value at a place; in the file, below the section that is in its place now."""
    text = value if isinstance(value, str) else json.dumps(value)
    if is_set:
        return f"`--set {place_of(path)}={text}`"
    is_text = isinstance(value, str) and value != "…"
    quoted = json.dumps(text, ensure_ascii=False) if is_text else text
    return f"`{path[-1]}: {quoted}` on a line of its own below it"


def _empty(path: Path, is_set: bool) -> Text | None:
    """An empty text, where the general fix does not fit: it cannot be removed, or is in a --set."""
    section = model_at(path[:-1], Graph)
    field = section.model_fields.get(str(path[-1])) if section else None
    if field is not None and field.is_required():
        return Text(message="must not be empty", fix="Write a value.")
    remove = "this --set" if is_set else "the key"
    return Text(message="must not be empty", fix=f"Write a value, or remove {remove}.")


def _of_a_set(path: Path, kind: str, rejected: Any) -> Text | None:
    """An error of a --set, for which a fix in YAML does not fit."""
    place, schema = place_of(path), _schema(path)
    if rejected is None:
        message = "must have a value, got nothing (null)"
        if model_at(path, Graph) is not None:
            return Text(message=message, fix="Remove this --set.")
        expression = _written(path, _example(schema), is_set=True)
        return Text(message=message, fix=f"Write {expression}, or remove this --set.")
    got = shown(path, rejected)
    if kind in NUMBERS:
        is_integer = isinstance(rejected, str) and PLAIN_INTEGER.fullmatch(rejected)
        is_text = isinstance(rejected, str) and not is_integer
        if is_text and number_fix(str(path[-1]), rejected, kind == "int_type"):
            return None
        expected = _range(schema)
        got = str(rejected) if is_integer else got
        if not expected or looks_secret(place):
            return None
        expression = _written(path, _example(schema, rejected), is_set=True)
        return Text(
            message=f"must be {expected}, got {got}", fix=f"Write {expected}: {expression}."
        )
    if kind == "string_type" and path[-1] in MEMORY and type(rejected) is int:
        expression = _written(path, f"{rejected}Gi", is_set=True)
        message = f"must be a string, got {kind_of(rejected)} {got}"
        return Text(message=message, fix=f"Write it with its unit: {expression}.")
    if kind == "string_type" and isinstance(rejected, (bool, int, float)):
        quoted = '"…"' if looks_secret(place) else json.dumps(json.dumps(rejected))
        fix = f"Write it in the file, in quotes ({quoted}): --set makes a {_kind(rejected)} of it."
        return Text(message=f"must be a string, got {kind_of(rejected)} {got}", fix=fix)
    if kind == "bool_type":
        fix = f"Write `--set {place}=true` or `--set {place}=false`."
        return Text(message=f"must be true or false, got {got}", fix=fix)
    if kind == "tuple_type":
        fix = f"Write a list: `--set '{place}={{A,B}}'`."
        return Text(message=f"must be a list, got {got}", fix=fix)
    if kind == "dict_type":
        fix = f"Give the value to a key: `--set {place}.KEY=VALUE`."
        return Text(message=f"must be a mapping, got {got}", fix=fix)
    return None


def _items(path: Path) -> str:
    """What the items of a list are; empty for texts, of which the general fix makes a list."""
    items: Mapping[str, Any] = _schema(path).get("items", {})
    choices = ", ".join(map(str, items.get("enum", ())))
    return choices or ("mappings" if items.get("type") == "object" else "")


def _kind(value: Any) -> str:
    return kind_of(value).removeprefix("the ")


def _schema(path: Path) -> Mapping[str, Any]:
    """The JSON schema of a field, without null; empty for a place that is no field."""
    section, name = model_at(path[:-1], Graph), str(path[-1])
    if section is None or name not in section.model_fields:
        return {}
    schema: Mapping[str, Any] = section.model_json_schema()["properties"][name]
    branches = [part for part in schema.get("anyOf", []) if part.get("type") != "null"]
    return {**schema, **branches[0]} if branches else schema


def _fits(scalar: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a scalar is valid for a field."""
    kinds = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
    is_boolean = schema.get("type") == "boolean"
    if isinstance(scalar, bool) != is_boolean or not isinstance(scalar, kinds[schema["type"]]):
        return False
    if isinstance(scalar, str):
        return re.search(schema.get("pattern", ""), scalar) is not None
    return bool(schema.get("minimum", scalar) <= scalar <= schema.get("maximum", scalar))


def _fix_of_pattern(path: Path, scalar: Any) -> str:
    """The fix for a number or boolean that also in quotes would be no valid text."""
    pattern = _schema(path).get("pattern", "")
    if not isinstance(scalar, (bool, int, float)) or re.search(pattern, json.dumps(scalar)):
        return ""
    return PATTERNS[pattern][1] if pattern in PATTERNS else ""


def _range(schema: Mapping[str, Any]) -> str:
    """`an integer from 0 to 10000`; empty for a field of another type."""
    noun = {"integer": "an integer", "number": "a number"}.get(schema.get("type", ""), "")
    least, most, above = (schema.get(k) for k in ("minimum", "maximum", "exclusiveMinimum"))
    if least is not None and most is not None:
        return f"{noun} from {plain_number(least)} to {plain_number(most)}"
    if least is not None:
        return f"{noun} of at least {plain_number(least)}"
    if above is not None:
        return f"{noun} above {above:g}{'' if most is None else f' and at most {most:g}'}"
    return noun


def _example(schema: Mapping[str, Any], rejected: Any = None) -> Any:
    """A valid value of a field: the default, or the number nearest to an invalid one."""
    least, most = schema.get("minimum", 1), schema.get("maximum")
    if most is not None and isinstance(rejected, (int, float)) and rejected > most:
        return most
    if schema.get("default") not in (None, [], {}):
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") in ("integer", "number"):
        return max(1, least)
    return EXAMPLES.get(schema.get("pattern", ""), "…")
