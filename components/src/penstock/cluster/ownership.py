"""Who owns which field of an object: the entries of `metadata.managedFields`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

Tree = Mapping[str, Any]


def without_fields(entries: Sequence[Tree], paths: Collection[str], manager: str) -> list[Tree]:
    """``entries`` without the fields that ``paths`` name, such as
    `.spec.components[name="decode"].replicas`; what ``manager`` has applied stays."""
    found = []
    for entry in entries:
        if (entry.get("manager"), entry.get("operation")) == (manager, "Apply"):
            found.append(entry)
            continue
        tree = _pruned(entry.get("fieldsV1") or {}, "", paths)
        if tree:
            found.append({**entry, "fieldsV1": tree})
    return found


def _pruned(tree: Tree, path: str, paths: Collection[str]) -> Tree:
    left: dict[str, Any] = {}
    for key, inner in tree.items():
        here = path + _text(key)
        if key != "." and here in paths:
            continue
        below = _pruned(inner, here, paths)
        if below or not inner:  # a field that contained only removed ones is removed
            left[key] = below
    return left


def _text(key: str) -> str:
    """A path element as the API server prints it."""
    kind, content = key[:2], key[2:]
    if kind == "f:":
        return f".{content}"
    if kind == "k:":
        keys = json.loads(content).items()
        return "[" + ",".join(f"{k}={json.dumps(v)}" for k, v in keys) + "]"
    return f"[={content}]"
