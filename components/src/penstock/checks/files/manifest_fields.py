"""The path in a manifest of a field that a rule names; see `graph_fields` for the names."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checks.files.yaml_text import Path
from penstock.manifests.pods import Pod

# Fields that v1alpha1 has at a place of its own.
ALPHA: Mapping[Path, Path] = {
    ("sharedMemorySize",): ("sharedMemory", "size"),
    ("type",): ("componentType",),
    ("metadata",): ("extraPodMetadata",),
    ("main", "env"): ("envs",),
    ("main", "resources"): ("resources",),
}
# Keys of v1alpha1's `resources`; all others are below `custom`.
ALPHA_AMOUNTS = {"nvidia.com/gpu": ("gpu",), "cpu": ("cpu",), "memory": ("memory",)}


def manifest_path(path: Path, pod: Pod) -> Path:
    """The field's path in its document."""
    top = pod.cursor.path
    if "services" in top and (service_path := _in_service(path, pod)) is not None:
        return (*top, *service_path)
    if path[0] == "main":
        return (*pod.containers[0].cursor.path, *path[1:])
    if path[0] == "pod":
        return (*pod.volumes.path[:-1], *path[1:])
    if path[0] == "metadata":
        return (*top, "podTemplate", *path)
    return (*top, *path)


def _in_service(path: Path, pod: Pod) -> Path | None:
    """The field's path below a v1alpha1 service; None if it is in the pod as in v1beta1."""
    main = pod.containers[0].cursor
    if path[:2] == ("metadata", "annotations") and not pod.cursor["annotations"].is_absent:
        return path[1:]
    if path[:2] == ("main", "env") and not main["env"].is_absent:
        return None
    if path[:2] == ("main", "resources"):
        if pod.resources.is_absent and not main["resources"].is_absent:
            return None
        if len(path) > len(("main", "resources", "limits")):
            amount = str(path[3])
            return (*path[1:3], *ALPHA_AMOUNTS.get(amount, ("custom", amount)))
    for length in range(len(path), 0, -1):
        if (place := ALPHA.get(path[:length])) is not None:
            return (*place, *path[length:])
    return None
