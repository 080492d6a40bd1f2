"""Who owns which field of an object: the entries of `metadata.managedFields`.

A path is the sequence of keys in `fieldsV1`, such as `("f:spec", 'k:{"name":"main"}', "f:image")`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cluster.workloads import COMPONENT, DGD, Object, annotations_of, labels_of

Tree = Mapping[str, Any]
Path = tuple[str, ...]
HELM = "helm"
# Owns a pool's replicas between Helm, which no longer sets them, and the autoscaler's first write.
REPLICAS_MANAGER = "penstock-replicas"
OPERATORS = ("dynamo-operator", "manager", REPLICAS_MANAGER)
# What people write with: `kubectl-edit`, `kubectl-patch`. Only their additions are undone: what
# another client adds may be a controller's, such as the pull secrets of OpenShift.
EDITOR = "kubectl"
RESTARTED = "f:kubectl.kubernetes.io/restartedAt"  # by `kubectl rollout restart`
# Owned by the server, by many tools, or compared apart.
NOT_CONTENT = ("f:apiVersion", "f:kind", "f:metadata", "f:status")
# Compared apart, and a claim's volume, which cannot be unset.
NEVER_ADDED = ("f:replicas", "f:volumeName")
KEY_DEFAULTS = {"protocol": "TCP"}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, kw_only=True)
class Client:
    """A field manager."""

    name: str
    # The time of its last write, as the API server formats it.
    at: str


def applied(manifest: Tree) -> tuple[Client, dict[str, Any]]:
    """The client that set most of the object's content, and the manifest that it applied."""
    entry = max(
        (e for e in _entries(manifest) if e.get("manager") not in OPERATORS),
        key=lambda e: sum(path[0] not in NOT_CONTENT for path in _paths(e.get("fieldsV1") or {})),
        default={},
    )
    client = Client(name=str(entry.get("manager", "")), at=str(entry.get("time", "")))
    text = annotations_of(manifest).get(LAST_APPLIED)
    if text is not None and entry.get("operation") == "Update":
        return client, json.loads(text)
    metadata = {k: v for k, v in manifest["metadata"].items() if k in ("name", "namespace")}
    part = _part(manifest, entry.get("fieldsV1") or {})
    identity = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"]}
    return client, {**identity, **part, "metadata": {**metadata, **part.get("metadata", {})}}


def manager_of(objects: Iterable[Tree]) -> str:
    """The client that applied the objects last: Helm's command, or a GitOps controller's name.

    A write under its name does not stand in the way of its next one. A client that applied only
    some fields is none: it edited the objects.
    """
    sizes: dict[str, int] = {}
    times: dict[str, str] = {}
    for manifest in objects:
        for entry in _entries(manifest):
            name = str(entry.get("manager"))
            is_edit = name.startswith(EDITOR) or "/" in name
            if entry.get("operation") == "Apply" and name not in OPERATORS and not is_edit:
                content = [
                    p for p in _paths(entry.get("fieldsV1") or {}) if p[0] not in NOT_CONTENT
                ]
                sizes[name] = sizes.get(name, 0) + len(content)
                times[name] = max(times.get(name, ""), str(entry.get("time", "")))
    largest = [name for name, size in sizes.items() if size and 2 * size >= max(sizes.values())]
    return max(largest, key=lambda name: (times[name], name)) if largest else HELM


def added_paths(manifest: Tree, manager: str) -> frozenset[Path]:
    """The fields of the content that only `kubectl` owns, on an object that ``manager`` applied.

    Numbers of replicas are not among them.
    """
    kept: set[Path] = set()
    foreign: set[Path] = set()
    for entry in _entries(manifest):
        paths = {path for path in _paths(entry.get("fieldsV1") or {}) if path[0] not in NOT_CONTENT}
        is_same_version = entry.get("apiVersion") == manifest.get("apiVersion")
        is_edit = str(entry.get("manager")).startswith(EDITOR) and is_same_version
        restarts = {path for path in paths if path[-1] == RESTARTED}
        kept |= restarts if is_edit else paths
        foreign |= paths - restarts if is_edit else set()
    if not any(
        (e.get("manager"), e.get("operation")) == (manager, "Apply") for e in _entries(manifest)
    ):
        return frozenset()
    with_parents = {path[:depth] for path in kept for depth in range(1, len(path) + 1)}
    return frozenset(p for p in foreign if p not in with_parents and p[-1] not in NEVER_ADDED)


def other_managers(manifest: Tree, manager: str) -> str:
    """The clients behind `added_paths`, for a message."""
    added = added_paths(manifest, manager)
    names = (
        str(entry["manager"])
        for entry in _entries(manifest)
        if added.intersection(_paths(entry.get("fieldsV1") or {}))
    )
    return " and ".join(dict.fromkeys(names))


def without_added(manifest: Tree, manager: str) -> dict[str, Any]:
    """A copy without the `added_paths`, and without what becomes empty with them."""
    remaining: dict[str, Any] = copy.deepcopy(dict(manifest))
    added = added_paths(manifest, manager)
    for path in added:
        if not any(path[:depth] in added for depth in range(1, len(path))):
            _remove(remaining, path)
    return remaining


def handed_over(entries: Sequence[Tree], paths: Collection[Path], manager: str) -> list[Tree]:
    """``entries`` in which what ``manager`` has applied includes ``paths``, and nothing else does.

    Its next apply sets them, or deletes those that its manifest omits.
    """
    taken = set(paths)
    return [*_rewritten(entries, manager, lambda owned: owned - taken, taken)]


def without_fields(entries: Sequence[Tree], paths: Collection[str], manager: str) -> list[Tree]:
    """``entries`` without the fields that ``paths`` name, such as
    `.spec.components[name="decode"].replicas`; what ``manager`` has applied stays."""

    def is_left(path: Path) -> bool:
        places = ("".join(map(_text, path[:depth])) for depth in range(1, len(path) + 1))
        return not any(place in paths for place in places)

    return [*_rewritten(entries, manager, lambda owned: set(filter(is_left, owned)))]


def _rewritten(
    entries: Sequence[Tree],
    manager: str,
    rest: Callable[[set[Path]], set[Path]],
    given: Collection[Path] = (),
) -> Iterator[Tree]:
    """``entries`` of which that of what ``manager`` has applied gets the paths ``given``, and the
    others keep the ``rest`` of theirs."""
    for entry in entries:
        owned = set(_paths(entry.get("fieldsV1") or {}))
        is_own = (entry.get("manager"), entry.get("operation")) == (manager, "Apply")
        if tree := _tree(owned.union(given) if is_own else rest(owned)):
            yield {**entry, "fieldsV1": tree}


def replica_managers(manifest: Object, component: str) -> list[str]:
    """The managers in the object's managedFields that own the component's replicas."""
    entries = _entries(manifest)
    return [str(e.get("manager")) for e in entries if _owns_replicas(manifest, e, component)]


def _owns_replicas(manifest: Object, entry: Mapping[str, Any], component: str) -> bool:
    fields = entry.get("fieldsV1", {}).get("f:spec", {})
    if manifest["kind"] == DGD:
        key = f'k:{{"name":"{component}"}}'
        return "f:replicas" in fields.get("f:components", {}).get(key, {})
    return labels_of(manifest).get(COMPONENT) == component and "f:replicas" in fields


def _entries(manifest: Tree) -> Sequence[Tree]:
    return manifest["metadata"].get("managedFields") or ()


def _paths(tree: Tree, path: Path = ()) -> Iterator[Path]:
    """The owned fields; an element or a map that contains others is one too if it has a `.`."""
    for key, inner in tree.items():
        if key == ".":
            yield path
        elif inner:
            yield from _paths(inner, (*path, key))
        else:
            yield (*path, key)


def _tree(paths: Collection[Path]) -> dict[str, Any]:
    """`fieldsV1` of the paths."""
    tree: dict[str, Any] = {}
    parents = {path[:depth] for path in paths for depth in range(1, len(path))}
    for path in sorted(paths):
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        if path in parents:
            node["."] = {}
    return tree


def _part(value: Any, tree: Tree) -> Any:
    """What an entry with the fields ``tree`` owns of ``value``."""
    fields = {key: inner for key, inner in tree.items() if key != "."}
    places = {
        place: inner for k, inner in fields.items() if (place := _index(value, k)) is not None
    }
    if isinstance(value, Mapping) and fields:
        return {name: _part(value[name], inner) for name, inner in places.items()}
    if isinstance(value, list) and fields:
        return [_part(value[index], places[index]) for index in sorted(places)]
    return value


def _remove(value: Any, path: Path) -> None:
    head, *rest = path
    place = _index(value, head)
    if place is None:
        return
    if rest:
        _remove(value[place], tuple(rest))
    if not rest or value[place] in ({}, []):
        del value[place]


def _index(value: Any, key: str) -> Any:
    """The name of the field or the index of the list's element; None if it is not there."""
    kind, content = key[:2], key[2:]
    if isinstance(value, Mapping):
        return content if kind == "f:" and content in value else None
    if not isinstance(value, list):
        return None
    key_of = json.loads(content) if kind in ("k:", "v:") else {}
    for index, element in enumerate(value):
        if kind == "v:" and element == key_of:
            return index
        if kind == "k:" and all(
            element.get(n, KEY_DEFAULTS.get(n)) == v for n, v in key_of.items()
        ):
            return index
    return None


def _text(key: str) -> str:
    """A path element as the API server prints it."""
    kind, content = key[:2], key[2:]
    if kind == "f:":
        return f".{content}"
    if kind == "k:":
        keys = json.loads(content).items()
        return "[" + ",".join(f"{k}={json.dumps(v)}" for k, v in keys) + "]"
    return f"[={content}]"
