"""The paths of a graph that decide a field of a component.

Rules name fields as v1beta1 does, from `main` (the main container), `pod` (its PodSpec),
`metadata` (of the pod) or the component itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checks.files.yaml_text import Path
from penstock.strict_yaml.places import place_of

# Field → paths of the graph that decide it, the strongest first; `{pool}` is the component. The
# longest prefix in the table wins. A field that is not in the table is below the pool's `pod`.
GRAPH_PATHS: Mapping[Path, tuple[str, ...]] = {
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
    ("main", "resources", "requests", "memory"): ("{pool}.resources.memory",),
    ("main", "resources", "limits", "cpu"): ("{pool}.resources.cpu",),
    ("main", "resources", "requests", "cpu"): ("{pool}.resources.cpu",),
    ("main", "resources", "limits", "rdma"): ("kv_transfer.transport", "kv_transfer.rdma_resource"),
    ("main", "securityContext"): ("kv_transfer.transport",),
    ("main", "args"): ("{pool}.args", "engine.args"),
    ("pod", "terminationGracePeriodSeconds"): ("drain_timeout_s",),
    ("metadata", "annotations"): ("{pool}.annotations",),
    ("envFrom",): ("model.token_secret",),
}


def graph_paths(path: Path, pool: str) -> tuple[str, ...]:
    """Dotted paths of the graph that decide the field, the strongest first."""
    for length in range(len(path), 0, -1):
        if (paths := GRAPH_PATHS.get(path[:length])) is not None:
            rest = path[length:] if path[:length] == ("metadata", "annotations") else ()
            return tuple(
                ".".join([path_format.format(pool=pool), *map(str, rest)]) for path_format in paths
            )
    rest = path[1:] if path[0] in ("pod", "main", "metadata") else path
    return (place_of((pool, "pod", *rest)),)
