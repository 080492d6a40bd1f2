"""Uninstall a release. Volume claims with data are kept unless the caller passes them.

The engines' ConfigMaps survive upgrades, because pods of an old revision may still start; uninstall
deletes them. The remains of an interrupted uninstall are found by label, and are deleted only if
Helm's annotations say that it made them: Argo CD renders the same labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.cluster import helm_writer
from penstock.cluster.api import Api
from penstock.cluster.release import (
    Release,
    call_helm,
    chart_labels,
    existing,
    helm_annotations,
    release_error,
)
from penstock.cluster.rollout import Clock
from penstock.cluster.workloads import DGD, POD_GRAPH, Object, annotations_of, labels_of, named
from penstock.errors import ClusterError, Problem
from penstock.helm import ReleaseTarget
from penstock.manifests.pods import V1BETA1

DELETION_S, POLL_S = 60.0, 0.5
SHOWN = 5  # objects in a message


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """Objects of a release that Helm does not delete."""

    # ConfigMaps with the engines' configuration.
    files: tuple[Object, ...]
    # ConfigMaps with the release's labels that Helm did not make.
    not_of_helm: tuple[Object, ...]
    # PersistentVolumeClaims: the model cache, and what a StatefulSet created (etcd's data).
    claims: tuple[Object, ...]
    # The graph, if it is being deleted: a finalizer holds it.
    graphs: tuple[Object, ...]


def list_leftovers(api: Api, target: ReleaseTarget) -> Leftovers:
    """Raises ClusterError."""
    of_chart = chart_labels(target)
    claims = {
        str(claim["metadata"]["name"]): claim
        for labels in (of_chart, f"{POD_GRAPH}={target.name}")
        for claim in api.list("PersistentVolumeClaim", labels)
    }
    files = api.list("ConfigMap", of_chart)
    return Leftovers(
        files=tuple(file for file in files if _is_of_helm(file, target)),
        not_of_helm=tuple(file for file in files if not _is_of_helm(file, target)),
        claims=tuple(claims.values()),
        # A user of `platform: plain` needs no right to read it.
        graphs=tuple(filter(_is_deleted, existing(api, [_graph(target)]))),
    )


def require_remains(api: Api, target: ReleaseTarget, left: Leftovers, clock: Clock) -> None:
    """Raises ClusterError unless ``left`` remains of a release that was uninstalled: without
    Helm's record, the graph of another tool, or one that still serves, looks the same."""
    remains = [f"{o['kind'].lower()}/{o['metadata']['name']}" for o in _others(api, target, left)]
    deadline = clock.now() + DELETION_S
    while not (remains or left.graphs):  # a graph that is being deleted may still have its pods
        pods = (p for p in api.list("Pod", f"{POD_GRAPH}={target.name}") if not _is_deleted(p))
        running = [f"pod/{pod['metadata']['name']}" for pod in pods]
        if not running:
            return
        if clock.now() > deadline:
            remains = running
        clock.sleep(POLL_S)
    if remains:
        names = ", ".join(remains[:SHOWN]) + (", …" if len(remains) > SHOWN else "")
        raise release_error(
            target,
            "Helm has no record of it, but objects with its labels exist, which another tool, such "
            f"as Argo CD, may have made: {names}. Nothing was deleted",
            "Delete the graph with the tool that installed it, or the objects by name with "
            f"`kubectl delete -n {target.namespace} KIND/NAME`.",
        )


def _others(api: Api, target: ReleaseTarget, left: Leftovers) -> Iterator[Object]:
    """What exists of a graph that Helm did not install, also without pods."""
    yield from left.not_of_helm
    etcd = {"apiVersion": "apps/v1", **named("StatefulSet", f"{target.name}-etcd")}
    yield from (o for o in existing(api, (_graph(target), etcd)) if not _is_deleted(o))
    for claim in left.claims:  # those of a StatefulSet have no label of the chart
        if labels_of(claim).get("app.kubernetes.io/managed-by") and not _is_of_helm(claim, target):
            yield claim


def _is_of_helm(live: Object, target: ReleaseTarget) -> bool:
    return helm_annotations(target).items() <= annotations_of(live).items()


def _graph(target: ReleaseTarget) -> Object:
    return {"apiVersion": V1BETA1, **named(DGD, target.name)}


def uninstall(
    api: Api,
    target: ReleaseTarget,
    release: Release | None,
    leftovers: Sequence[Object],
    clock: Clock,
) -> None:
    """Uninstall the release, if any, and delete ``leftovers``. Can be repeated after an error.

    Raises ClusterError, also if an object still exists after DELETION_S.
    """
    if release is not None:
        call_helm(target, "be uninstalled", lambda: helm_writer.write("uninstall", target))
    for manifest in leftovers:
        api.delete(manifest)
    _wait_until_deleted(api, release.objects if release is not None else leftovers, clock)


def _wait_until_deleted(api: Api, objects: Sequence[Object], clock: Clock) -> None:
    """Helm returns once the deletion is requested; controllers complete it."""
    deadline = clock.now() + DELETION_S
    while held := [live for o in objects if (live := api.get(o)) is not None and _is_deleted(live)]:
        if clock.now() > deadline:
            raise ClusterError(*map(_not_deleted, held))
        clock.sleep(POLL_S)


def _is_deleted(live: Object) -> bool:
    return "deletionTimestamp" in live["metadata"]


def _not_deleted(live: Object) -> Problem:
    metadata = live["metadata"]
    finalizers = ", ".join(metadata.get("finalizers") or ()) or "none"
    return Problem(
        place=f"{live['kind']} {metadata['namespace']}/{metadata['name']}",
        message=f"its deletion was requested, but it still exists; finalizers: {finalizers}",
        fix="Start the controller that removes the finalizer (for a DynamoGraphDeployment: the "
        "Dynamo operator), and run `penstock uninstall` again.",
    )
