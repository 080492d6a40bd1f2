"""Structural schemas of CRDs: the closed JSON schema, defaults and nulls, and a walk over values.

`crd` puts the parts in an API server's order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jsonschema import FormatChecker
from jsonschema.protocols import Validator

from tests.support.kubernetes_schemas.syntax import Problem, under

Schema = Mapping[str, Any]
MISSING = "missing"
UNKNOWN_FIELD = "unknown field"
WRONG_TYPE = re.compile(r"is not of type|is not valid under any")
ABSENT: Any = object()  # no old value, or none that can be matched to the new one

ASSERTIONS = {
    "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum",
    "multipleOf", "pattern", "required", "type", "uniqueItems",
}  # fmt: skip
NESTED = ("allOf", "anyOf", "oneOf")
RANGES = {"int32": 2**31, "int64": 2**63}
FORMATS = FormatChecker(formats=())

_STRING: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_BOOLEAN: Schema = {"type": "boolean"}
_STRINGS: Schema = {"type": "object", "additionalProperties": _STRING}
OBJECT_META: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("name", "generateName", "namespace", "uid", "selfLink"), _STRING),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp", "resourceVersion"), _STRING),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _INTEGER),
        **dict.fromkeys(("labels", "annotations"), _STRINGS),
        "finalizers": {"type": "array", "items": _STRING},
        "managedFields": {"type": "array"},
        "ownerReferences": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["apiVersion", "kind", "name", "uid"],
                "properties": {
                    **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _STRING),
                    **dict.fromkeys(("controller", "blockOwnerDeletion"), _BOOLEAN),
                },
            },
        },
    },
}


@FORMATS.checks("date-time", raises=ValueError)
def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    return "T" in value.upper() and datetime.fromisoformat(value.upper()).tzinfo is not None


def embedded(schema: Schema) -> Schema:
    """The schema of a complete object, with apiVersion, kind and metadata."""
    type_meta = {"apiVersion": _STRING, "kind": _STRING, "metadata": OBJECT_META}
    return {
        **schema,
        "x-kubernetes-embedded-resource": False,
        "properties": {**schema.get("properties", {}), **type_meta},
        "required": sorted({*schema.get("required", ()), "apiVersion", "kind"}),
    }


def resolved(schema: Schema) -> Schema:
    """The same schema with every embedded resource written out."""
    if schema.get("x-kubernetes-embedded-resource"):
        schema = embedded(schema)
    deep = dict(schema)
    if "properties" in schema:
        deep["properties"] = {n: resolved(child) for n, child in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            deep[key] = resolved(schema[key])
    return deep


def closed(schema: Schema) -> dict[str, Any]:
    """A JSON schema (draft 4, as in OpenAPI 3.0) as strict as a server in strict mode."""
    out = _assertions(schema)
    if schema.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in out:
        types = out["type"] if isinstance(out["type"], list) else [out["type"]]
        out["type"] = [*types, "null"]
    if "properties" in schema or schema.get("type") == "object":
        out["properties"] = {n: closed(child) for n, child in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties", False)
        known = closed(more) if isinstance(more, Mapping) else bool(more)
        out["additionalProperties"] = known or _keeps_unknown(schema)
    if isinstance(schema.get("items"), Mapping):
        out["items"] = closed(schema["items"])
    return out


def _assertions(schema: Schema) -> dict[str, Any]:
    """The keywords that validate a value, without those that declare its structure."""
    out = {key: value for key, value in schema.items() if key in ASSERTIONS}
    for key in NESTED:
        if key in schema:
            out[key] = [_assertions(part) | _inner(part) for part in schema[key]]
    if "not" in schema:
        out["not"] = _assertions(schema["not"]) | _inner(schema["not"])
    if "pattern" in out:  # Go's `$` does not match before a last newline, Python's does
        out["pattern"] = re.sub(r"(?<!\\)\$$", r"\\Z", out["pattern"])
    if schema.get("format") in RANGES:
        # A server does not check the range; decoding into Go fails later.
        limit = RANGES[schema["format"]]
        out["minimum"] = max(schema.get("minimum", -limit), -limit)
        out["maximum"] = min(schema.get("maximum", limit - 1), limit - 1)
    return out


def _inner(schema: Schema) -> dict[str, Any]:
    """Structure inside allOf, anyOf, oneOf and not: it validates but declares no fields."""
    out: dict[str, Any] = {}
    if "properties" in schema:
        out["properties"] = {
            name: _assertions(child) | _inner(child) for name, child in schema["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            out[key] = _assertions(schema[key]) | _inner(schema[key])
    return out


def _keeps_unknown(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def prepared(schema: Schema, value: Any) -> Any:
    """``value`` with the schema's defaults, and without nulls in fields that are not nullable."""
    if isinstance(value, list) and "items" in schema:
        return [prepared(schema["items"], item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {}
    for name, item in value.items():
        child = child_of(schema, name)
        if child is None:
            fields[name] = item
        elif item is not None or child.get("nullable"):
            fields[name] = prepared(child, item)
    for name, child in schema.get("properties", {}).items():
        if name not in fields and "default" in child:
            fields[name] = prepared(child, child["default"])
    return fields


def child_of(schema: Schema, name: str) -> Schema | None:
    child = schema.get("properties", {}).get(name)
    more = schema.get("additionalProperties")
    return child if child is not None else more if isinstance(more, Mapping) else None


@dataclass(frozen=True)
class Node:
    """One value with its schema, its place and its old value, or ABSENT."""

    schema: Schema
    value: Any
    place: str
    old: Any


def nodes(schema: Schema, value: Any, place: str, old: Any) -> Iterator[Node]:
    """Every value that the schema declares, parents first, with its old value."""
    yield Node(schema, value, place, old)
    if isinstance(value, dict):
        is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
        before = old if isinstance(old, dict) and not is_atomic else {}
        for name, item in value.items():
            child = child_of(schema, name)
            if child is not None:
                was = before.get(name, ABSENT)
                yield from nodes(child, item, under(place, name), was)
    elif isinstance(value, list) and "items" in schema:
        pairs = _keyed(schema, old)
        for index, item in enumerate(value):
            was = pairs.get(key_of(schema, item), ABSENT)
            yield from nodes(schema["items"], item, under(place, index), was)


def _keyed(schema: Schema, old: Any) -> dict[Any, Any]:
    """The items of an old list by their keys; only lists of type map have keys."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    return {key_of(schema, item): item for item in old}


def key_of(schema: Schema, item: Any) -> str:
    """The identity of a list item: its keys in a map, the whole item in a set."""
    if schema.get("x-kubernetes-list-type") == "map" and isinstance(item, dict):
        keys = schema.get("x-kubernetes-list-map-keys", ())
        return ", ".join(f"{key}={item.get(key)!r}" for key in keys)
    return repr(item)


def duplicates(node: Node) -> Iterator[Problem]:
    """The second of two equal items of a set, or of two items of a map with equal keys."""
    listed = node.schema.get("x-kubernetes-list-type") in ("map", "set")
    if not listed or not isinstance(node.value, list):
        return
    seen: set[str] = set()
    for index, item in enumerate(node.value):
        key = key_of(node.schema, item)
        if key in seen:
            yield under(node.place, index), f"duplicate {key}"
        seen.add(key)


def structural_problems(validator: Validator, value: Any) -> Iterator[Problem]:
    """Every violation of the closed schema, at the place that an API server names."""
    for error in validator.iter_errors(value):
        place = ""
        for key in error.absolute_path:
            place = under(place, key)
        if error.validator == "additionalProperties":
            known = error.schema.get("properties", {})
            for name in sorted(set(error.instance) - set(known)):
                yield under(place, name), UNKNOWN_FIELD
        elif error.validator == "required":
            for name in error.validator_value:
                if name not in error.instance:
                    yield under(place, name), MISSING
        else:
            yield place, error.message[:300]
