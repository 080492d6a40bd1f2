"""Fields and values of a DynamoGraphDeployment that the CRD of the operator does not allow.

The API server removes unknown fields, or rejects the object under strict field validation. It
always rejects the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from packaging.version import Version

from penstock.text.names import nearest

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]
"""A part of an OpenAPI schema, as CRDs have it."""

NEAR = 0.75  # how similar a field must be to be suggested
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True)
class UnknownField:
    """A field that the CRD does not have."""

    path: Path
    # The most similar field of the CRD, or an empty string.
    near: str


@dataclass(frozen=True)
class BadValue:
    """A value that the CRD does not allow."""

    path: Path
    value: Any
    # The keyword of the schema that excludes it: `type`, `enum`, `minimum`, `required`, …
    keyword: str
    # What the keyword allows. For `required`: the name of the missing field.
    limit: Any


def unknown_fields(
    deployment: Mapping[str, Any], specs: Mapping[str, Schema]
) -> Iterator[UnknownField]:
    """Every field below `spec` that the CRD of the object's version does not have.

    ``specs``: the schemas as `specs_of` or `stored` returns them.
    """
    return (d for d in _differences(deployment, specs) if isinstance(d, UnknownField))


def bad_values(deployment: Mapping[str, Any], specs: Mapping[str, Schema]) -> Iterator[BadValue]:
    """Every value below `spec` that the CRD of the object's version excludes."""
    return (d for d in _differences(deployment, specs) if isinstance(d, BadValue))


def fits(value: Any, schema: Schema) -> bool:
    """Whether a schema allows a value and has all its fields."""
    return not any(_walk(value, schema, ()))


def is_of_type(value: Any, schema: Schema) -> bool:
    """Whether a schema allows a value, apart from what is in it."""
    return not any(_excluded(value, schema))


def specs_of(definition: Mapping[str, Any]) -> dict[str, Schema]:
    """The schemas of `spec` in a CRD, by apiVersion of its served versions."""
    spec = definition["spec"]
    return {
        f"{spec['group']}/{v['name']}": v["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for v in spec["versions"]
        if v.get("served")
    }


def stored(release: str) -> Mapping[str, Schema]:
    """As `specs_of`, for the CRD of one of `stored_releases`."""
    return _stored()[release]


def stored_releases() -> tuple[str, ...]:
    """The releases of the operator whose CRDs are stored, such as `1.6`, oldest first."""
    return tuple(_stored())


def stored_release(version: Version) -> str | None:
    """The newest stored release at or below the operator's version; None if it is older."""
    until = [r for r in stored_releases() if Version(r).release <= version.release[:2]]
    return until[-1] if until else None


def _differences(
    deployment: Mapping[str, Any], specs: Mapping[str, Schema]
) -> Iterator[UnknownField | BadValue]:
    schema = specs.get(str(deployment.get("apiVersion")))
    if schema is not None:
        yield from _walk(deployment.get("spec"), schema, ("spec",))


def _walk(node: Any, schema: Schema, path: Path) -> Iterator[UnknownField | BadValue]:
    if node is None:
        return
    excluded = next(_excluded(node, schema), None)
    if excluded is not None:
        yield BadValue(path, node, *excluded)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _walk(item, schema.get("items", {}), (*path, index))
    elif isinstance(node, dict):
        yield from _walk_fields(node, schema, path)


def _walk_fields(
    mapping: Mapping[str, Any], schema: Schema, path: Path
) -> Iterator[UnknownField | BadValue]:
    properties = schema.get("properties")
    additional = schema.get("additionalProperties")
    is_open = properties is None or schema.get("x-kubernetes-preserve-unknown-fields")
    for name in schema.get("required", ()):
        # A field with a default is never missing: the API server adds it first.
        if mapping.get(name) is None and "default" not in (properties or {}).get(name, {}):
            yield BadValue(path, mapping, "required", name)
    for name, inner in mapping.items():
        if properties is not None and name in properties:
            yield from _walk(inner, properties[name], (*path, name))
        elif isinstance(additional, dict):
            yield from _walk(inner, additional, (*path, name))
        elif not is_open:
            yield UnknownField((*path, str(name)), nearest(str(name), properties or (), NEAR))


def _excluded(node: Any, schema: Schema) -> Iterator[tuple[str, Any]]:
    """The keywords of the schema that exclude a value, and what each allows."""
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(node, (str, int)) or isinstance(node, bool):
            yield "type", "integer or string"
    elif kind and not _is_a(node, kind):
        yield "type", kind
    if "enum" in schema and node not in schema["enum"]:
        yield "enum", schema["enum"]
    if isinstance(node, str):
        # In Python, `$` also matches before a line break at the end.
        matches = re.search(schema.get("pattern", ""), node) and node[-1:] != "\n"
        if "pattern" in schema and not matches:
            yield "pattern", schema["pattern"]
        yield from _beyond(len(node), schema, "minLength", "maxLength")
    elif isinstance(node, list):
        yield from _beyond(len(node), schema, "minItems", "maxItems")
    elif isinstance(node, dict):
        yield from _beyond(len(node), schema, "minProperties", "maxProperties")
    else:
        yield from _beyond(node, schema, "minimum", "maximum")


def _is_a(node: Any, kind: str) -> bool:
    if isinstance(node, bool):
        return kind == "boolean"
    return isinstance(node, TYPES[kind]) or (
        kind == "integer" and isinstance(node, float) and node.is_integer()
    )


def _beyond(quantity: float, schema: Schema, least: str, most: str) -> Iterator[tuple[str, Any]]:
    if least in schema and quantity < schema[least]:
        yield least, schema[least]
    if most in schema and quantity > schema[most]:
        yield most, schema[most]


@cache
def _stored() -> Mapping[str, Mapping[str, Schema]]:
    text = files("penstock.manifests.data").joinpath("dgd_fields.json").read_text("utf-8")
    return resolved(json.loads(text))


def resolved(data: Mapping[str, Any]) -> Mapping[str, Mapping[str, Schema]]:
    """The CRDs by release, from the table that `dump_dgd_fields` writes. A schema there refers to
    others by number, and these precede it."""
    schemas: list[dict[str, Any]] = data["schemas"]
    for schema in schemas:
        if "properties" in schema:
            schema["properties"] = {n: schemas[i] for n, i in schema["properties"].items()}
        for key in ("items", "additionalProperties"):
            if key in schema:
                schema[key] = schemas[schema[key]]
    return {
        release: {version: schemas[number] for version, number in roots.items()}
        for release, roots in data["releases"].items()
    }
