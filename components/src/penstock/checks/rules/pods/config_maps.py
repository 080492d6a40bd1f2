"""Rules about ConfigMaps, Secrets and claims of the same file: wrong keys and wrong names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import (
    Process,
    is_below,
    is_plain_path,
    mappings,
    mount_paths,
    processes,
)
from penstock.checks.rules.pods.paths import FILE_FLAGS
from penstock.checks.rules.pods.shared_claims import may_share_namespace
from penstock.engines.settings import Location
from penstock.manifests.cursor import Cursor
from penstock.manifests.pods import Container, Pod
from penstock.nearest import nearest, nearest_name
from penstock.serving.deployment import ServingDeployment

# Fields that name an object → its kind.
REFERENCES = {
    ("configMap", "name"): "ConfigMap",
    ("configMapRef", "name"): "ConfigMap",
    ("configMapKeyRef", "name"): "ConfigMap",
    ("secret", "secretName"): "Secret",
    ("secretRef", "name"): "Secret",
    ("secretKeyRef", "name"): "Secret",
    ("persistentVolumeClaim", "claimName"): "PersistentVolumeClaim",
}
SIMILAR = 0.8


@dataclass(frozen=True, kw_only=True)
class _Mount:
    """A mount of a ConfigMap whose content the file has."""

    name: str
    folder: str
    sub_path: str
    # The paths of its files below the volume.
    files: tuple[str, ...]
    # Of the mount in the manifest.
    place: tuple[str | int, ...]

    def has(self, path: str) -> bool:
        """Whether it has a file or folder at a path of the container."""
        inner = posixpath.relpath(path, self.folder)
        at = posixpath.normpath(posixpath.join(self.sub_path, inner))
        return at == "." or any(is_below(file, at) for file in self.files)


def _keys(deployment: ServingDeployment) -> dict[str, tuple[str, ...]]:
    """The keys of each ConfigMap of the file in the deployment's namespace."""
    found = {}
    for root in deployment.documents:
        name = root.at("metadata", "name").value
        if root["kind"].value == "ConfigMap" and _is_near(deployment, root):
            data = (as_mapping(root[key].value) for key in ("data", "binaryData"))
            found[str(name)] = tuple(str(key) for values in data for key in values)
    return found


def _is_near(deployment: ServingDeployment, root: Cursor) -> bool:
    return may_share_namespace(as_mapping(root.value), as_mapping(deployment.root.value))


def _mounts(
    pod: Pod, container: Container, keys: Mapping[str, tuple[str, ...]]
) -> Iterator[_Mount]:
    volumes = {str(volume.get("name")): volume for volume in mappings(pod.volumes.value)}
    for index, mount in enumerate(mappings(container.cursor["volumeMounts"].value)):
        source = as_mapping(volumes.get(str(mount.get("name")), {}).get("configMap"))
        name, folder = source.get("name"), mount.get("mountPath")
        if (
            not isinstance(name, str)
            or name not in keys
            or not isinstance(folder, str)
            or "subPathExpr" in mount
        ):
            continue
        items = [str(item.get("path")) for item in mappings(source.get("items"))]
        yield _Mount(
            name=name,
            folder=posixpath.normpath(folder),
            sub_path=str(mount.get("subPath") or ""),
            files=tuple(items) or keys[name],
            place=(*container.cursor["volumeMounts"].path, index),
        )


def _named_files(process: Process) -> Iterator[tuple[str, Location, str]]:
    """(path, place, flag) of each file that a process names; the flag is empty if none names it."""
    for one in process.flags:
        if one.text is not None and is_plain_path(one.text):
            yield one.text, process.location("args", one.spelling), one.spelling
    for name, variable in FILE_FLAGS.items():
        found = process.text(name, variable)
        if found is not None and is_plain_path(found[0]):
            yield found[0], found[1], ""
    for word in process.launch.argv:
        if is_plain_path(word):
            yield word, process.location("args", word), ""


def missing_file(deployment: ServingDeployment) -> Iterable[RuleResult]:
    keys = _keys(deployment)
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for container in pod.containers if keys else ():
            for mount in _mounts(pod, container, keys):
                if mount.sub_path and not mount.has(mount.folder):
                    yield _missing_sub_path(mount)
    for process in processes(deployment) if keys else ():
        mounts = tuple(_mounts(process.pod, process.container, keys))
        reported = set()
        for path, location, flag in _named_files(process):
            at = posixpath.normpath(path)
            above = [
                one for one in mount_paths(process.pod, process.container) if is_below(at, one)
            ]
            deepest = max(above, key=len, default="")
            lacking = [m for m in mounts if m.folder == deepest and not m.has(at)]
            is_wrong = lacking and not lacking[0].sub_path and at not in process.launch.files
            if is_wrong and at not in reported:
                reported.add(at)
                yield _missing_path(lacking[0], at, location, flag)


def _missing_sub_path(mount: _Mount) -> RuleResult:
    near = nearest(mount.sub_path, mount.files)
    return RuleResult(
        location=Location("", "manifest", mount.place),
        message=f"the ConfigMap {mount.name} has no key {mount.sub_path}, which subPath names",
        why="The kubelet mounts an empty folder instead of the file.",
        fix=Fix(text=f"Set subPath to {near}." if near else _one_of(mount)),
    )


def _missing_path(mount: _Mount, path: str, location: Location, flag: str) -> RuleResult:
    inner = posixpath.relpath(path, mount.folder)
    near = nearest(inner, mount.files)
    existing = posixpath.join(mount.folder, near)
    return RuleResult(
        location=location,
        message=f"the ConfigMap {mount.name}, mounted at {mount.folder}, has no key {inner}",
        fix=Fix(
            text=f"Use {existing}." if near else _one_of(mount),
            args=(flag, existing) if near and flag.startswith("--") else (),
        ),
    )


def _one_of(mount: _Mount) -> str:
    return f"Use one of its keys: {', '.join(mount.files) or 'none'}."


def similar_object(deployment: ServingDeployment) -> Iterable[RuleResult]:
    objects = [
        (str(root["kind"].value), str(root.at("metadata", "name").value))
        for root in deployment.documents
        if _is_near(deployment, root)
    ]
    used: set[str] = set()
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor
        seen = set(objects)
        for path, kind, name in _references(cursor.value, cursor.path):
            names = {own for of, own in objects if of == kind}
            if (kind, name) in seen or not names:
                continue
            seen.add((kind, name))
            used = used or {text for root in deployment.documents for text in _texts(root.value)}
            if near := nearest_name(name, sorted(names - used), SIMILAR):
                yield RuleResult(
                    location=Location("", "manifest", path),
                    message=f"the file has no {kind} {name}, but an unused one called {near}",
                    fix=Fix(text=f"Use {near}, or remove it if the cluster has {name}."),
                )


def _references(
    value: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """(path, kind, name) of each object that must exist."""
    items = enumerate(value) if isinstance(value, list) else as_mapping(value).items()
    for step, inner in items:
        for (field, key), kind in REFERENCES.items():
            if step == field and isinstance(inner, Mapping) and not inner.get("optional"):
                if isinstance(name := inner.get(key), str) and is_name(name):
                    yield (*path, step, key), kind, name
        yield from _references(inner, (*path, step))


def is_name(text: str) -> bool:
    """Whether it is a name, and not a template's placeholder."""
    return text.replace("-", "").replace(".", "").isalnum()


def _texts(value: Any) -> Iterator[str]:
    """All texts of an object except its own name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            own = as_mapping(inner) if key == "metadata" else {}
            rest = {k: v for k, v in own.items() if k != "name"} if own else inner
            yield from _texts(rest)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
