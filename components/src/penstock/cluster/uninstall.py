"""Take a release off the cluster; claims with data stay unless somebody names them.

ConfigMaps of the engines stay when a revision goes, since its pods may still start; with the
release they go. What is left of a removal that was cut short is found by its labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock import helm
from penstock.cluster.api import Api
from penstock.cluster.release import Release, told
from penstock.cluster.workloads import POD_GRAPH, Object
from penstock.helm import ReleaseTarget


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """What Helm leaves of a release: the engines' files, and claims with data."""

    files: tuple[Object, ...]
    claims: tuple[Object, ...]


def left_by_helm(api: Api, target: ReleaseTarget) -> Leftovers:
    """Claims are the model's cache, and what a StatefulSet made for its pods (etcd's data)."""
    own = f"app.kubernetes.io/name=penstock,app.kubernetes.io/instance={target.name}"
    claims = {
        str(claim["metadata"]["name"]): claim
        for labels in (own, f"{POD_GRAPH}={target.name}")
        for claim in api.list("PersistentVolumeClaim", labels)
    }
    return Leftovers(files=tuple(api.list("ConfigMap", own)), claims=tuple(claims.values()))


def remove(
    api: Api, target: ReleaseTarget, release: Release | None, leavings: Sequence[Object]
) -> None:
    """Raises ClusterError; it can be done again."""
    if release is not None:
        told(target, "be uninstalled", lambda: helm.uninstall(target))
    for manifest in leavings:
        api.delete(manifest)
