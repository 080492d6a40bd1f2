"""The container images of manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CONTAINERS = ("containers", "initContainers")


def images(objects: Any) -> list[str]:
    """Each image once, sorted."""
    return sorted(set(_images(objects)))


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name in CONTAINERS:
            yield from (str(c["image"]) for c in value.get(name) or () if c.get("image"))
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for inner in value:
        yield from _images(inner)
