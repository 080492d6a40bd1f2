"""Field ownership: Kubernetes' server-side apply, as far as the chart's manifests need it.

A field is a path of names; an element of a list of named elements is `k:{"name":"…"}`, any other
list is one field. The rules follow Kubernetes' documentation on server-side apply.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]
Owners = dict[tuple[str, str], set[Path]]  # (manager, Apply or Update) → fields
UNOWNED = ("apiVersion", "kind", "status")
UNOWNED_METADATA = ("name", "namespace", "uid", "generation", "resourceVersion", "managedFields")


class ConflictError(Exception):
    """``fields``: (manager, path) of each field that another manager owns with another value."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        super().__init__(", ".join(f"{path} of {manager}" for manager, path in fields))
        self.fields = fields


def copied(value: Any) -> Any:
    """As `copy.deepcopy`, but faster: the controllers copy every object in each step."""
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def apply(old: Object | None, patch: Object, manager: str, *, force: bool) -> Object:
    """The result of an apply to ``old``. Raises ConflictError without ``force``."""
    applied = _leaves(patch)
    owners = _owners(old or {})
    mine = (manager, "Apply")
    live = _leaves(old or {})
    conflicts = [
        (who, path)
        for (who, operation), fields in owners.items()
        if (who, operation) != mine
        for path in sorted(fields & applied.keys())
        if path not in live or live[path] != applied[path]
    ]
    if conflicts and not force:
        raise ConflictError([(who, _path_text(path)) for who, path in conflicts])
    for who, fields in owners.items():
        if who != mine:
            fields.difference_update(path for _, path in conflicts)
    made = copied(old) if old else {}
    held = set().union(*(fields for who, fields in owners.items() if who != mine))
    for path in owners.get(mine, set()) - applied.keys() - held:
        _remove(made, path)
    made = _merged(made, {k: v for k, v in patch.items() if k != "status"})
    owners[mine] = set(applied)
    return _with_owners(made, owners)


def update(old: Object | None, new: Object, manager: str) -> Object:
    """A create, PUT or merge patch: its manager becomes the only owner of changed fields."""
    before, after = _leaves(old or {}), _leaves(new)
    changed = {path for path, value in after.items() if before.get(path, ...) != value}
    removed = before.keys() - after.keys()
    owners = _owners(old or {})
    for held in owners.values():
        held.difference_update(changed | removed)
    owners.setdefault((manager, "Update"), set()).update(changed)
    return _with_owners(copied(new), owners)


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


def _path_text(path: Path) -> str:
    parts = (part[2:] if part.startswith("f:") else f"[{part[3:-1]}]" for part in path)
    return ("." + ".".join(parts)).replace(".[", "[").replace('"name":', "name=")


def _remove(manifest: Object, path: Path) -> None:
    """Delete the field and parents that become empty; an element is deleted with its name."""
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
        element_key, *deeper = rest
        for element in [e for e in inner if _key(e["name"]) == element_key]:
            _remove(element, tuple(deeper))
            if not element or deeper == ["f:name"]:
                inner.remove(element)


def _merged(old: Any, patch: Any) -> Any:
    if isinstance(old, dict) and isinstance(patch, dict):
        return {**old, **{k: _merged(old.get(k), v) for k, v in patch.items()}}
    if _is_named(old) and _is_named(patch):
        merged = {element["name"]: element for element in old}
        for element in patch:
            merged[element["name"]] = _merged(merged.get(element["name"]), element)
        return list(merged.values())
    return copied(patch)


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
