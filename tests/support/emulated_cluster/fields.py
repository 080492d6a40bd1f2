"""Field ownership: server-side apply as structured-merge-diff implements it.

A field is a path of `f:NAME`, `k:{"name":"…"}` (an item of a keyed list) and `v:"…"` (an item of a
set), as in `managedFields`. `topology` says which values are one field. An item of a list is a
field too, besides the fields in it.
"""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.support.emulated_cluster import topology
from tests.support.emulated_cluster.topology import Schema

Object = dict[str, Any]
Path = tuple[str, ...]
Owners = dict["Manager", set[Path]]
FIRST = "before-first-apply"  # owns the fields of an object that had no owners
UNOWNED = ("apiVersion", "kind", "status")
UNOWNED_METADATA = (
    "name", "namespace", "uid", "generation", "resourceVersion", "managedFields",
    "creationTimestamp",
)  # fmt: skip


@dataclass(frozen=True)
class Manager:
    """Who owns fields. ``operation``: `Apply` or `Update`."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        """As in the message of a conflict."""
        text = json.dumps(self.name)
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {self.api_version}"


class ConflictError(Exception):
    """``fields``: each field that another manager owns with another value, and its message."""

    def __init__(self, conflicts: list[tuple[Manager, Path]]) -> None:
        self.fields = [(f"conflict with {who}", path_text(path)) for who, path in conflicts]
        if len(conflicts) == 1:
            ((message, path),) = self.fields
            super().__init__(f"Apply failed with 1 conflict: {message}: {path}")
            return
        lines = []
        for who in sorted({str(who) for who, _ in conflicts}):
            lines.append(f"conflicts with {who}:")
            lines += [f"- {path_text(path)}" for other, path in conflicts if str(other) == who]
        text = "\n".join(lines)
        super().__init__(f"Apply failed with {len(conflicts)} conflicts: {text}")


BEGIN, TIMES = datetime(2026, 11, 22), itertools.count()


def copied(value: Any) -> Any:
    """As `copy.deepcopy`, but faster: the controllers copy every object in each step."""
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def apply(old: Object | None, patch: Object, manager: str, *, force: bool) -> Object:
    """``old`` with ``patch`` applied, without defaults. Raises ConflictError without ``force``."""
    schema = topology.of(patch["apiVersion"], patch["kind"])
    owners = owners_of(old or {})
    if old and not owners:
        owners[Manager(FIRST, "Update", patch["apiVersion"])] = set(_fields(old, schema))
    mine = Manager(manager, "Apply", patch["apiVersion"])
    applied = set(_fields(patch, schema))
    merged_object = merged(old or {}, patch, schema)
    owned = owners.get(mine, set())
    # A map ends with its last field; an element of a list only if its manager owns it itself.
    before = {p for p in _with_parents(owned) if p in owned or p[-1].startswith("f:")}
    owners[mine] = applied
    held = _with_parents(set().union(*owners.values()))
    for path in sorted(before - held, key=len):  # with the defaults in it
        _remove(merged_object, path, schema)
    live, now = _values(old or {}, schema), _values(merged_object, schema)
    changed = {path for path, value in now.items() if path not in live or live[path] != value}
    conflicts = [
        (who, path) for who in owners if who != mine for path in sorted(owners[who] & changed)
    ]
    if conflicts and not force:
        raise ConflictError(conflicts)
    removed = live.keys() - now.keys()
    for who, fields in owners.items():
        if who != mine:
            fields.difference_update(changed, removed)
    return _with_owners(merged_object, owners)


def _with_parents(paths: set[Path]) -> set[Path]:
    return {path[:depth] for path in paths for depth in range(1, len(path) + 1)}


def update(old: Object | None, new: Object, manager: Manager) -> Object:
    """A create, PUT or patch: its manager becomes the only owner of changed fields.

    ``new`` may set `managedFields`: an empty entry removes all, a list replaces them.
    """
    schema = topology.of(new["apiVersion"], new["kind"])
    before, after = _values(old or {}, schema), _values(new, schema)
    changed = {path for path, value in after.items() if before.get(path, ...) != value}
    removed = before.keys() - after.keys()
    sent = new.get("metadata", {}).get("managedFields")
    owners = owners_of(old or {})
    if sent == [{}]:
        return _with_owners(copied(new), {})
    if sent and old is not None and sent != old["metadata"].get("managedFields"):
        owners = owners_of(new)
    for held in owners.values():
        held.difference_update(changed, removed)
    if changed:
        owners.setdefault(manager, set()).update(changed)
    return _with_owners(copied(new), owners)


def path_text(path: Path) -> str:
    """As the API server prints it: `.spec.ports[port=80,protocol="TCP"].name`."""
    parts = []
    for part in path:
        kind, content = part[:2], part[2:]
        if kind == "f:":
            parts.append(f".{content}")
        elif kind == "k:":
            keys = json.loads(content).items()
            parts.append("[" + ",".join(f"{k}={json.dumps(v)}" for k, v in keys) + "]")
        else:
            parts.append(f"[={content}]")
    return "".join(parts)


def _owned_content(manifest: Object) -> Object:
    content = {k: v for k, v in manifest.items() if k not in (*UNOWNED, "metadata")}
    metadata = manifest.get("metadata", {})
    if rest := {k: v for k, v in metadata.items() if k not in UNOWNED_METADATA}:
        content["metadata"] = rest
    return content


def _fields(manifest: Object, schema: Schema) -> Iterator[Path]:
    for path, _ in _walk(_owned_content(manifest), schema, ()):
        yield path


def _values(manifest: Object, schema: Schema) -> dict[Path, Any]:
    return dict(_walk(_owned_content(manifest), schema, ()))


def _walk(value: Any, schema: Schema, path: Path) -> Iterator[tuple[Path, Any]]:
    """Each field with its value; items of lists and entries of maps have the value True."""
    schema = topology.resolved(schema)
    if isinstance(value, dict) and value and not topology.is_atomic(schema, value):
        for name, inner in value.items():
            here = (*path, f"f:{name}")
            if isinstance(inner, dict) and inner and "additionalProperties" in schema:
                yield here, True
            yield from _walk(inner, topology.child(schema, name), here)
    elif isinstance(value, list) and not topology.is_atomic(schema, value):
        for element in value:
            here = (*path, topology.element_key(schema, element))
            yield here, True
            if isinstance(element, dict):
                yield from _walk(element, schema.get("items") or {}, here)
    elif path:
        yield path, value


def merged(old: Any, patch: Any, schema: Schema, *, keeps_order: bool = False) -> Any:
    """The old value with the fields of the patch; items of keyed lists are merged one by one.

    They are in the order of the patch, or with ``keeps_order`` of the old list.
    """
    schema = topology.resolved(schema)
    if topology.is_atomic(schema, patch):
        return copied(patch)
    if isinstance(patch, dict):
        result = dict(old) if isinstance(old, dict) else {}
        for name, value in patch.items():
            if value is None:  # it belongs to the manager, without a value
                result.pop(name, None)
                continue
            inner = topology.child(schema, name)
            result[name] = merged(result.get(name), value, inner, keeps_order=keeps_order)
        return result
    items = schema.get("items") or {}
    there = {topology.element_key(schema, e): e for e in (old if isinstance(old, list) else [])}
    new = {}
    for element in patch:
        key = topology.element_key(schema, element)
        new[key] = merged(there.get(key), element, items, keeps_order=keeps_order)
    if keeps_order:
        return list({**there, **new}.values())
    return list({**new, **{k: v for k, v in there.items() if k not in new}}.values())


def _remove(value: Any, path: Path, schema: Schema) -> None:
    """Delete the field, and maps and lists that become empty."""
    schema = topology.resolved(schema)
    head, *rest = path
    if isinstance(value, list):
        items = schema.get("items") or {}
        for element in [e for e in value if topology.element_key(schema, e) == head]:
            if rest:
                _remove(element, tuple(rest), items)
            else:
                value.remove(element)
        return
    name = head[2:]
    if name not in value:
        return
    if rest:
        _remove(value[name], tuple(rest), topology.child(schema, name))
    if not rest or value[name] in ({}, []):
        del value[name]


def owners_of(manifest: Object) -> Owners:
    """The owners of `managedFields`."""
    return {
        Manager(e["manager"], e["operation"], e["apiVersion"], e.get("subresource", "")): set(
            _paths(e["fieldsV1"], ())
        )
        for e in manifest.get("metadata", {}).get("managedFields") or ()
        if e
    }


def _paths(tree: Object, path: Path) -> Iterator[Path]:
    for key, inner in tree.items():
        if key == ".":
            yield path
        elif inner:
            yield from _paths(inner, (*path, key))
        else:
            yield (*path, key)


def _with_owners(manifest: Object, owners: Owners) -> Object:
    entries = []
    known = [e for e in manifest.get("metadata", {}).get("managedFields") or () if e]
    for who, fields in owners.items():
        tree: Object = {}
        for path in sorted(fields):
            node = tree
            for part in path:
                node = node.setdefault(part, {})
        _mark(tree, fields, ())
        if tree:
            entry = {
                "manager": who.name,
                "operation": who.operation,
                "apiVersion": who.api_version,
                "fieldsType": "FieldsV1",
                "fieldsV1": tree,
            }
            entry |= {"subresource": who.subresource} if who.subresource else {}
            same = (e for e in known if {**e, "time": ""} == {**entry, "time": ""})
            entries.append(next(same, None) or {**entry, "time": _next_time()})
    manifest.setdefault("metadata", {})["managedFields"] = entries
    return manifest


def _next_time() -> str:
    """Each later than the one before; a real server's have whole seconds too."""
    return f"{BEGIN + timedelta(seconds=next(TIMES)):%Y-%m-%dT%H:%M:%SZ}"


def _mark(tree: Object, fields: set[Path], path: Path) -> None:
    """Give each owned field that contains others its `.`."""
    for key, inner in list(tree.items()):
        _mark(inner, fields, (*path, key))
    if tree and path in fields:
        tree["."] = {}
