"""The fields of a component that rules speak of: where a manifest and where a graph has them.

Rules name them as v1beta1 does, from `main` (the main container), `pod` (its PodSpec), `metadata`
(of the pod) or the component itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.graph.places import place_of
from penstock.manifests.pods import Pod

Path = tuple[str | int, ...]

# Field → paths of the graph that decide it, the strongest first; `{pool}` is the component. The
# longest field that begins the same wins; what is not here stands in the pool's `pod`.
IN_GRAPH: Mapping[Path, tuple[str, ...]] = {
    ("replicas",): ("{pool}.replicas",),
    ("multinode",): ("{pool}.nodes",),
    ("name",): ("{pool}",),
    ("type",): ("{pool}",),
    ("sharedMemorySize",): ("{pool}.shared_memory",),
    ("runtimeVersionOverride",): ("{pool}.image", "engine.image"),
    ("main", "image"): ("{pool}.image", "engine.image"),
    ("main", "resources"): ("{pool}.gpus",),
    ("main", "resources", "limits", "memory"): ("{pool}.resources.memory",),
    ("main", "resources", "limits", "rdma"): ("kv_transfer.transport", "kv_transfer.rdma_resource"),
    ("main", "securityContext"): ("kv_transfer.transport",),
    ("main", "args"): ("{pool}.args", "engine.args"),
    ("pod", "terminationGracePeriodSeconds"): ("drain_timeout_s",),
    ("metadata", "annotations"): ("{pool}.annotations",),
    ("envFrom",): ("model.token_secret",),
}
# v1alpha1's own places.
ALPHA: Mapping[Path, Path] = {
    ("sharedMemorySize",): ("sharedMemory", "size"),
    ("type",): ("componentType",),
    ("metadata",): ("extraPodMetadata",),
    ("main", "resources"): ("resources",),
}


def in_graph(path: Path, pool: str) -> tuple[str, ...]:
    """Paths of the graph, dotted, that decide the field."""
    for length in range(len(path), 0, -1):
        if (rules := IN_GRAPH.get(path[:length])) is not None:
            rest = path[length:] if path[:length] == ("metadata", "annotations") else ()
            return tuple(".".join([rule.format(pool=pool), *map(str, rest)]) for rule in rules)
    rest = path[1:] if path[0] in ("pod", "main", "metadata") else path
    return (place_of((pool, "pod", *rest)),)


def in_manifest(path: Path, pod: Pod) -> Path:
    """The field's path in its document."""
    top = pod.cursor.path
    is_alpha = "services" in top
    if is_alpha and path[:2] == ("metadata", "annotations"):
        if not pod.cursor["annotations"].is_absent:
            return (*top, *path[1:])
    if is_alpha:
        for length in range(len(path), 0, -1):
            if (found := ALPHA.get(path[:length])) is not None:
                if found == ("resources",) and pod.resources.is_absent:
                    break
                return (*top, *found, *path[length:])
    if path[0] == "main":
        return (*pod.containers[0].cursor.path, *path[1:])
    if path[0] == "pod":
        return (*pod.volumes.path[:-1], *path[1:])
    if path[0] == "metadata":
        return (*top, "podTemplate", *path)
    return (*top, *path)
