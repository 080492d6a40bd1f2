"""The fields of a component that rules speak of: where a manifest and where a graph has them.

Rules name them as v1beta1 does, from `main` (the main container), `pod` (its PodSpec), `metadata`
(of the pod) or the component itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.manifests.pods import Pod
from penstock.strict_yaml.places import place_of

Path = tuple[str | int, ...]

# Field → paths of the graph that decide it, the strongest first; `{pool}` is the component. The
# longest field that begins the same wins; what is not here stands in the pool's `pod`.
IN_GRAPH: Mapping[Path, tuple[str, ...]] = {
    ("replicas",): ("{pool}.replicas", "{pool}.autoscaling"),
    ("scalingAdapter",): ("{pool}.autoscaling",),
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
    ("main", "env"): ("envs",),
    ("main", "resources"): ("resources",),
}
# Of `resources` its own words; what is not named there goes below `custom`.
ALPHA_AMOUNTS = {"nvidia.com/gpu": ("gpu",), "cpu": ("cpu",), "memory": ("memory",)}


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
    if "services" in top and (found := _in_service(path, pod)) is not None:
        return (*top, *found)
    if path[0] == "main":
        return (*pod.containers[0].cursor.path, *path[1:])
    if path[0] == "pod":
        return (*pod.volumes.path[:-1], *path[1:])
    if path[0] == "metadata":
        return (*top, "podTemplate", *path)
    return (*top, *path)


def _in_service(path: Path, pod: Pod) -> Path | None:
    """v1alpha1's own place below the service; None where the pod's own is meant."""
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
        if (found := ALPHA.get(path[:length])) is not None:
            return (*found, *path[length:])
    return None
