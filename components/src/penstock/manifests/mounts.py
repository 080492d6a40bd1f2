"""The files of a container from ConfigMap and projected volumes; others are unknown."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.manifests.configmaps import ConfigMaps, selected
from penstock.manifests.documents import Cursor
from penstock.manifests.pods import Container, Pod


@dataclass(frozen=True)
class Mounts:
    """What is mounted into one container."""

    # Absolute path → the ConfigMap key with the text.
    files: dict[str, Cursor] = field(default_factory=dict)
    # Mount path → which volume it is, of every mount.
    volumes: dict[str, str] = field(default_factory=dict)

    def texts(self) -> dict[str, str]:
        return {path: str(cursor.value) for path, cursor in self.files.items()}

    def why_unknown(self, path: str) -> str:
        """Where a file is that the manifests do not contain."""
        if not path.startswith("/"):
            return "it is in the image (a relative path without a workingDir)"
        above = [mount for mount in self.volumes if _is_in(path, mount)]
        if above:
            return f"it is on {self.volumes[max(above, key=len)]}"
        return "it is in the image"


def _is_in(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def read_mounts(pod: Pod, container: Container, maps: ConfigMaps, namespace: str) -> Mounts:
    mounts = Mounts()
    volumes = {volume["name"].text(): volume for volume in pod.volumes.items()}
    for mount in pod.mounted.items():
        if (path := mount["mountPoint"].text()) is not None:
            mounts.volumes[path] = f"the volume {mount['name'].text()}"
    for mount in container.cursor["volumeMounts"].items():
        path = mount["mountPath"].text()
        if path is None:
            mount.problem("a volume mount has no mountPath", "Set its mountPath.")
            continue
        _mount(mounts, mount, posixpath.normpath(path), volumes, maps, namespace)
    return mounts


def _mount(
    mounts: Mounts,
    mount: Cursor,
    path: str,
    volumes: dict[str | None, Cursor],
    maps: ConfigMaps,
    namespace: str,
) -> None:
    name = mount["name"].text()
    volume = volumes.get(name)
    sub_path = mount["subPath"].text() or ""
    if volume is not None:
        for relative, cursor in _contents(volume, maps, namespace):
            at = _place(path, relative, sub_path)
            if at is not None:
                mounts.files[at] = cursor
    mounts.volumes[path] = _describe(name, volume)


def _place(path: str, relative: str, sub_path: str) -> str | None:
    """The path at which a file of a volume is mounted; `subPath` is the root of the mount."""
    if not sub_path:
        return posixpath.join(path, relative)
    sub_path = posixpath.normpath(sub_path)
    if relative == sub_path:
        return path
    if relative.startswith(sub_path + "/"):
        return posixpath.join(path, relative[len(sub_path) + 1 :])
    return None


def _contents(volume: Cursor, maps: ConfigMaps, namespace: str) -> Iterator[tuple[str, Cursor]]:
    sources = [volume["configMap"]]
    sources += [source["configMap"] for source in volume.at("projected", "sources").items()]
    for source in sources:
        if not source.is_absent:
            yield from (selected(source, maps, namespace) or {}).items()


def _describe(name: str | None, volume: Cursor | None) -> str:
    if volume is None:
        return f"the volume {name}"
    for key, value in volume.mapping().items():
        if key == "name" or not isinstance(value, dict):
            continue
        target = value.get("claimName") or value.get("name") or value.get("path")
        return f"the volume {name} ({key}{f' {target}' if target else ''})"
    return f"the volume {name}"
