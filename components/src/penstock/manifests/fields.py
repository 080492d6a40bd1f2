"""Fields of a DynamoGraphDeployment that its CRD does not have.

The API server removes them, or rejects the object under strict field validation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.nearest import nearest

Path = tuple[str | int, ...]
NEAR = 0.75  # how similar a field must be to be suggested


@dataclass(frozen=True)
class UnknownField:
    """A field that the CRD does not have."""

    path: Path
    # The most similar field of the CRD, or an empty string.
    near: str


Tree = Mapping[str, Any]
"""Field → its own fields, `*` for any key of a map; empty where any field is allowed."""


def unknown_fields(
    deployment: Mapping[str, Any], trees: Mapping[str, Tree] | None = None
) -> Iterator[UnknownField]:
    """Every field below `spec` that the CRD of the object's version does not have.

    ``trees``: the fields of each version as `field_trees` returns them; otherwise those of the
    stored CRD.
    """
    root = (_stored() if trees is None else trees).get(str(deployment.get("apiVersion")))
    if root:
        yield from _walk(deployment.get("spec"), root, ("spec",))


def field_trees(definition: Mapping[str, Any]) -> dict[str, Tree]:
    """The fields below `spec` that a CRD has, by apiVersion of its served versions."""
    spec = definition["spec"]
    return {
        f"{spec['group']}/{v['name']}": _tree(v["schema"]["openAPIV3Schema"]["properties"]["spec"])
        for v in spec["versions"]
        if v.get("served")
    }


def _tree(schema: Mapping[str, Any]) -> Tree:
    if "items" in schema:
        return _tree(schema["items"])
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict) and "properties" in inner:
        return {"*": _tree(inner)}
    properties = schema.get("properties")
    preserves = schema.get("x-kubernetes-preserve-unknown-fields")
    if not isinstance(properties, dict) or preserves or inner is not None:
        return {}
    return {name: _tree(inner) for name, inner in sorted(properties.items())}


def _walk(value: Any, known: Tree, path: Path) -> Iterator[UnknownField]:
    if not known:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, known, (*path, index))
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in known or "*" in known:
                yield from _walk(inner, known.get(name, known.get("*", {})), (*path, name))
            else:
                near = nearest(str(name), known, NEAR)
                yield UnknownField((*path, str(name)), near)


@cache
def _stored() -> Mapping[str, Tree]:
    """The stored CRD: each of `trees` has the numbers of its fields' trees, which precede it."""
    text = files("penstock.manifests.data").joinpath("dgd_fields.json").read_text("utf-8")
    data: Mapping[str, Any] = json.loads(text)
    trees: list[Tree] = [{}]
    for tree in data["trees"]:
        trees.append({name: trees[number] for name, number in tree.items()})
    return {version: trees[number] for version, number in data["roots"].items()}
