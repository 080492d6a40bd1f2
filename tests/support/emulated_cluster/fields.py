"""Who owns which field: Kubernetes' server-side apply, as far as manifests of the chart need it.

A field is a path of names; an element of a list of named things is `k:{"name":"…"}`, all other
lists are one field. The rules are those of Kubernetes' documentation on server-side apply.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]
Owners = dict[tuple[str, str], set[Path]]  # (manager, Apply or Update) → fields
UNOWNED = ("apiVersion", "kind", "status")
UNOWNED_METADATA = ("name", "namespace", "uid", "generation", "resourceVersion", "managedFields")


class ConflictError(Exception):
    """``fields``: (manager, path) of each field that somebody else holds with another value."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        super().__init__(", ".join(f"{path} of {manager}" for manager, path in fields))
        self.fields = fields


def apply(old: Object | None, patch: Object, manager: str, *, force: bool) -> Object:
    """What an apply makes of ``old``. Raises ConflictError where it may not."""
    wanted = _leaves(patch)
    owners = _owners(old or {})
    mine = (manager, "Apply")
    live = _leaves(old or {})
    conflicts = [
        (who, path)
        for (who, operation), fields in owners.items()
        if (who, operation) != mine
        for path in sorted(fields & wanted.keys())
        if path not in live or live[path] != wanted[path]
    ]
    if conflicts and not force:
        raise ConflictError([(who, _said(path)) for who, path in conflicts])
    for who, fields in owners.items():
        if who != mine:
            fields.difference_update(path for _, path in conflicts)
    made = copy.deepcopy(old) if old else {}
    held = set().union(*(fields for who, fields in owners.items() if who != mine))
    for path in owners.get(mine, set()) - wanted.keys() - held:
        _remove(made, path)
    made = _merged(made, {k: v for k, v in patch.items() if k != "status"})
    owners[mine] = set(wanted)
    return _with_owners(made, owners)


def update(old: Object | None, wanted: Object, manager: str) -> Object:
    """A create, PUT or merge patch: what it changes is its manager's alone."""
    before, after = _leaves(old or {}), _leaves(wanted)
    changed = {path for path, value in after.items() if before.get(path, ...) != value}
    gone = before.keys() - after.keys()
    owners = _owners(old or {})
    for held in owners.values():
        held.difference_update(changed | gone)
    owners.setdefault((manager, "Update"), set()).update(changed)
    return _with_owners(copy.deepcopy(wanted), owners)


def _leaves(manifest: Object) -> dict[Path, Any]:
    content = {k: v for k, v in manifest.items() if k not in (*UNOWNED, "metadata")}
    metadata = manifest.get("metadata", {})
    if rest := {k: v for k, v in metadata.items() if k not in UNOWNED_METADATA}:
        content["metadata"] = rest
    return dict(_walk(content, ()))


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _walk(inner, (*path, f"f:{key}"))
    elif _is_named(value):
        for element in value:
            yield from _walk(element, (*path, _key(element["name"])))
    elif value != {} or path:
        yield path, value


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(v, dict) and isinstance(v.get("name"), str) for v in value)
    )


def _key(name: str) -> str:
    return "k:" + json.dumps({"name": name}, separators=(",", ":"))


def _said(path: Path) -> str:
    parts = (part[2:] if part.startswith("f:") else f"[{part[3:-1]}]" for part in path)
    return ("." + ".".join(parts)).replace(".[", "[").replace('"name":', "name=")


def _remove(manifest: Object, path: Path) -> None:
    """The field, and what is empty without it; an element goes with its name."""
    head, *rest = path
    if head.startswith("k:"):
        return
    name = head[2:]
    inner = manifest.get(name)
    if not rest:
        manifest.pop(name, None)
    elif isinstance(inner, dict):
        _remove(inner, tuple(rest))
        if not inner:
            del manifest[name]
    elif isinstance(inner, list):
        wanted, *deeper = rest
        for element in [e for e in inner if _key(e["name"]) == wanted]:
            _remove(element, tuple(deeper))
            if not element or deeper == ["f:name"]:
                inner.remove(element)


def _merged(old: Any, patch: Any) -> Any:
    if isinstance(old, dict) and isinstance(patch, dict):
        return {**old, **{k: _merged(old.get(k), v) for k, v in patch.items()}}
    if _is_named(old) and _is_named(patch):
        there = {element["name"]: element for element in old}
        for element in patch:
            there[element["name"]] = _merged(there.get(element["name"]), element)
        return list(there.values())
    return copy.deepcopy(patch)


def _owners(manifest: Object) -> Owners:
    entries = manifest.get("metadata", {}).get("managedFields", [])
    return {(e["manager"], e["operation"]): set(_paths(e["fieldsV1"], ())) for e in entries}


def _paths(tree: Object, path: Path) -> Iterator[Path]:
    for key, inner in tree.items():
        if inner:
            yield from _paths(inner, (*path, key))
        else:
            yield (*path, key)


def _with_owners(manifest: Object, owners: Owners) -> Object:
    entries = []
    for (manager, operation), fields in owners.items():
        tree: Object = {}
        for path in sorted(fields):
            node = tree
            for part in path:
                node = node.setdefault(part, {})
        if tree:
            entries.append({"manager": manager, "operation": operation, "fieldsV1": tree})
    manifest.setdefault("metadata", {})["managedFields"] = entries
    return manifest
