"""Read what the cluster holds of a release: its objects, pods and warnings."""

from __future__ import annotations

from penstock.cluster.api import Api, ForbiddenError
from penstock.cluster.progress import Observation, Progress, progress_of
from penstock.cluster.release import Release
from penstock.cluster.workloads import POD_GRAPH, Object
from penstock.helm import ReleaseTarget


def observe(
    api: Api, release: Release, target: ReleaseTarget, old_pods: frozenset[str] = frozenset()
) -> Observation:
    """``old_pods``: uids of pods from before the change. Raises ClusterError."""
    forbidden: dict[str, str] = {}
    return Observation(
        release=target.name,
        live=tuple(o for manifest in release.objects if (o := api.get(manifest)) is not None),
        pods=_list_if_allowed(api, "Pod", forbidden, labels=f"{POD_GRAPH}={target.name}"),
        events=_list_if_allowed(api, "Event", forbidden, fields="type=Warning"),
        old_pods=old_pods,
        forbidden=forbidden,
    )


def read_progress(
    api: Api, release: Release, target: ReleaseTarget, old_pods: frozenset[str] = frozenset()
) -> Progress:
    """The progress of the release's rollout. Takes and raises the same as `observe`."""
    return progress_of(release.objects, observe(api, release, target, old_pods))


def pod_uids(api: Api, target: ReleaseTarget) -> frozenset[str]:
    """Raises ClusterError."""
    pods = _list_if_allowed(api, "Pod", {}, labels=f"{POD_GRAPH}={target.name}")
    return frozenset(str(p["metadata"].get("uid", "")) for p in pods)


def _list_if_allowed(
    api: Api, kind: str, forbidden: dict[str, str], **selectors: str
) -> tuple[Object, ...]:
    """The objects of a kind. If the user may not list it: none, and the error in ``forbidden``."""
    try:
        return tuple(api.list(kind, **selectors))
    except ForbiddenError as error:
        forbidden[kind] = str(error)
        return ()
