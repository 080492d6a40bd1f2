"""Uninstall a release. Volume claims with data are kept unless the caller passes them.

The engines' ConfigMaps survive upgrades, because pods of an old revision may still start; uninstall
deletes them. The remains of an interrupted uninstall are found by label.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.cluster import helm_writer
from penstock.cluster.api import Api
from penstock.cluster.release import Release, call_helm
from penstock.cluster.workloads import POD_GRAPH, Object
from penstock.errors import ClusterError, Problem
from penstock.helm import ReleaseTarget

DELETION_S, POLL_S = 60.0, 0.5


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

    Raises ClusterError, also if an object is not gone after DELETION_S.
    """
    if release is not None:
        call_helm(target, "be uninstalled", lambda: helm_writer.uninstall(target))
    for manifest in leftovers:
        api.delete(manifest)
    if release is not None:
        _wait_until_deleted(api, release.objects)


def _wait_until_deleted(api: Api, objects: Sequence[Object]) -> None:
    """Helm returns once the deletion is requested; controllers complete it."""
    deadline = time.monotonic() + DELETION_S
    while held := [live for o in objects if (live := api.get(o)) is not None and _is_deleted(live)]:
        if time.monotonic() > deadline:
            raise ClusterError(*map(_not_deleted, held))
        time.sleep(POLL_S)


def _is_deleted(live: Object) -> bool:
    return "deletionTimestamp" in live["metadata"]


def _not_deleted(live: Object) -> Problem:
    metadata = live["metadata"]
    finalizers = ", ".join(metadata.get("finalizers") or ()) or "its dependents"
    return Problem(
        place=f"{live['kind']} {metadata['namespace']}/{metadata['name']}",
        message=f"was deleted, but still exists with its pods: it waits for {finalizers}",
        fix="Check that the controller runs which removes the finalizer; for a "
        "DynamoGraphDeployment, that is the Dynamo operator.",
    )
