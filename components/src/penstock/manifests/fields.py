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


def unknown_fields(deployment: Mapping[str, Any]) -> Iterator[UnknownField]:
    """Every field below `spec` that the CRD of the object's version does not have."""
    root = _data()["roots"].get(str(deployment.get("apiVersion")))
    if root:
        yield from _walk(deployment.get("spec"), root, ("spec",))


def _walk(value: Any, number: int, path: Path) -> Iterator[UnknownField]:
    if not number:
        return
    known: Mapping[str, int] = _data()["trees"][number - 1]
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, number, (*path, index))
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in known or "*" in known:
                yield from _walk(inner, known.get(name, known.get("*", 0)), (*path, name))
            else:
                near = nearest(str(name), known, NEAR)
                yield UnknownField((*path, str(name)), near)


@cache
def _data() -> Mapping[str, Any]:
    text = files("penstock.manifests.data").joinpath("dgd_fields.json").read_text("utf-8")
    data: Mapping[str, Any] = json.loads(text)
    return data
