"""Where a finding is in its file, and the YAML of its fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

# libyaml writes a fix in 0.05 ms, PyYAML itself in 0.2 ms.
SafeDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True)
class Place:
    # None if the value is in no file.
    line: int | None
    # Dotted path in the graph, or path in the manifest.
    path: str
    # The --set argument that gave the value.
    override: str | None = None
    column: int | None = None
    # What to call the place where the path is too long; empty: the path.
    subject: str = ""


def put(tree: dict[str, Any], path: Sequence[Any], value: Any) -> None:
    """Set a value; an index means the container `main`, as fields go through no other list."""
    step, *rest = path
    if not rest:
        tree[str(step)] = dict(value) if isinstance(value, Mapping) else value
    elif isinstance(rest[0], int):
        put(tree.setdefault(str(step), [{"name": "main"}])[0], rest[1:], value)
    elif isinstance(below := tree.setdefault(str(step), {}), dict):
        put(below, rest, value)


def dump(tree: Mapping[str, Any]) -> str:
    """The YAML text without the last line end; empty for an empty mapping."""
    if not tree:
        return ""
    text: str = yaml.dump(dict(tree), Dumper=SafeDumper, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")
