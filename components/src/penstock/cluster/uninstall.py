"""Uninstall a release. Volume claims with data are kept unless the caller passes them.

The engines' ConfigMaps survive upgrades, because pods of an old revision may still start; uninstall
deletes them. The remains of an interrupted uninstall are found by label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.cluster import helm_writer
from penstock.cluster.api import Api
from penstock.cluster.release import Release, call_helm
from penstock.cluster.workloads import POD_GRAPH, Object
from penstock.helm import ReleaseTarget


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """Objects of a release that Helm does not delete."""

    # ConfigMaps with the engines' configuration.
    files: tuple[Object, ...]
    # PersistentVolumeClaims: the model cache, and what a StatefulSet created (etcd's data).
    claims: tuple[Object, ...]


def list_leftovers(api: Api, target: ReleaseTarget) -> Leftovers:
    """Raises ClusterError."""
    own = f"app.kubernetes.io/name=penstock,app.kubernetes.io/instance={target.name}"
    claims = {
        str(claim["metadata"]["name"]): claim
        for labels in (own, f"{POD_GRAPH}={target.name}")
        for claim in api.list("PersistentVolumeClaim", labels)
    }
    return Leftovers(files=tuple(api.list("ConfigMap", own)), claims=tuple(claims.values()))


def uninstall(
    api: Api, target: ReleaseTarget, release: Release | None, leftovers: Sequence[Object]
) -> None:
    """Uninstall the release, if any, and delete ``leftovers``. Can be repeated after an error.

    Raises ClusterError.
    """
    if release is not None:
        call_helm(target, "be uninstalled", lambda: helm_writer.uninstall(target))
    for manifest in leftovers:
        api.delete(manifest)
