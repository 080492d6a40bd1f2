"""Containers of a pod for rules of several topics: mounts, ports, flags and variables."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engines.flags import GivenFlag, given_flags
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Launch
from penstock.manifests.pods import Container, Pod
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version
from penstock.text.values import as_mapping

# NVIDIA's images, whose folders are known.
NVIDIA_IMAGE = re.compile(r"^nvcr\.io/nvidia/ai-dynamo/")
NON_ROOT_SINCE = (0, 7)  # dynamo#3935: they run as user 1000
# Folders that exist in NVIDIA's images of 0.4 to 1.6, or that every container has.
IMAGE_FOLDERS = (
    *("/workspace", "/opt/dynamo", "/opt/nvidia", "/opt/venv", "/opt/conda", "/app"),
    "/sgl-workspace",
    *("/usr", "/home", "/root", "/etc", "/var", "/dev", "/run", "/proc", "/sys", "/mnt"),
    "/tmp",  # noqa: S108  a folder of the container
)


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of a component, with its container and its flags."""

    component: Component
    pod: Pod
    container: Container
    launch: Launch
    # Empty if penstock has no table of the module's flags.
    flags: tuple[GivenFlag, ...]

    def flag(self, name: str) -> GivenFlag | None:
        """The last flag given with a spelling, in any of its spellings."""
        matches = [f for f in self.flags if f.flag is not None and name in f.flag.spellings]
        return matches[-1] if matches else None

    def text(self, name: str, variable: str = "") -> tuple[str, Location] | None:
        """The text of a flag, or of its variable, and its place."""
        argument = self.flag(name)
        if argument is not None and argument.text is not None:
            return argument.text, self.location("args", argument.spelling)
        if variable and (text := self.launch.env.get(variable)) is not None:
            return text, self.location("env", variable)
        return None

    def location(self, what: str, *path: str | int) -> Location:
        return Location(self.component.name, what, path)

    @property
    def image(self) -> str:
        """Of its container, which in a sidecar may be another than the component's."""
        image = self.container.cursor["image"].value
        return image if isinstance(image, str) else self.component.image

    @property
    def mount_paths(self) -> tuple[str, ...]:
        return mount_paths(self.pod, self.container)


def processes(deployment: ServingDeployment) -> Iterator[Process]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        by_place = {container.cursor.place: container for container in pod.containers}
        for launch in component.launches:
            yield Process(
                component=component,
                pod=pod,
                container=by_place.get(launch.place, pod.containers[0]),
                launch=launch,
                flags=given_flags(launch.module or "", launch.arguments),
            )


def mappings(entries: Any) -> Iterator[Mapping[str, Any]]:
    """The items of a list that are mappings."""
    for item in entries if isinstance(entries, list) else ():
        if isinstance(item, Mapping):
            yield item


def mount_paths(pod: Pod, container: Container) -> tuple[str, ...]:
    """The absolute paths at which something is mounted in a container."""
    paths = [entry.get("mountPath") for entry in mappings(container.cursor["volumeMounts"].value)]
    if container.is_main:
        paths += [entry.get("mountPoint") for entry in mappings(pod.mounted.value)]
        paths += [pod.cursor["compilationCache"]["mountPath"].value]
    return tuple(posixpath.normpath(path) for path in paths if isinstance(path, str) and path)


def is_below(path: str, *folders: str) -> bool:
    """Whether a path is one of the folders or in one of them."""
    at = posixpath.normpath(path)
    return any(at == folder or at.startswith(folder.rstrip("/") + "/") for folder in folders)


def is_plain_path(text: str) -> bool:
    """Whether a text is an absolute path without parts that only the cluster knows."""
    return text.startswith("/") and not any(sign in text for sign in "$`*")


def truth(text: str | None) -> bool | None:
    """A boolean variable as Dynamo reads it; None if it is unset or neither."""
    word = (text or "").strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    return False if word in ("0", "false", "no", "off") else None


def plain_variables(container: Container) -> dict[str, str]:
    """The variables whose values the manifest has, of a container whose process is unknown."""
    variables: dict[str, str] = {}
    for entries in container.env.env:
        for entry in mappings(entries.value):
            if isinstance(entry.get("name"), str) and isinstance(entry.get("value"), str):
                variables[entry["name"]] = entry["value"]
    return variables


def number_of(text: Any) -> float | None:
    """A number that is written as text; None for any other text, and for NaN."""
    try:
        number = float(str(text))
    except ValueError:
        return None
    return number if number == number else None


def security_context(pod: Pod) -> Mapping[str, Any]:
    """That of the main container."""
    return as_mapping(pod.containers[0].cursor["securityContext"].value)


def runs_as_root(pod: Pod) -> bool | None:
    """Whether the main container does: by its security context, that of the pod, or the image.
    None if the user of the image is not known."""
    for security in (security_context(pod), as_mapping(pod.spec.get("securityContext"))):
        if security.get("runAsUser") is not None:
            return bool(security["runAsUser"] == 0)
        if security.get("runAsNonRoot") is True:
            return False
    if not NVIDIA_IMAGE.match(pod.image):
        return None
    return (dynamo_version(pod) or NON_ROOT_SINCE) < NON_ROOT_SINCE
