"""Read what the cluster holds of a release: its objects, pods and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.diagnose import OWNER_KINDS
from penstock.cluster.own_objects import OwnObjects
from penstock.cluster.progress import Observation, Progress, progress_of
from penstock.cluster.release import Release
from penstock.cluster.workloads import POD_GRAPH, WORKLOAD_KINDS, Object
from penstock.helm import ReleaseTarget


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Pods and warnings from before a change, which are not attributed to it."""

    pods: frozenset[str] = frozenset()
    """Uids."""
    events: frozenset[tuple[str, str]] = frozenset()
    """Uid and number of occurrences."""


NOTHING = Baseline()


def baseline(api: Api, target: ReleaseTarget) -> Baseline:
    """The current pods and warnings. Raises ClusterError."""
    pods = _list_if_allowed(api, "Pod", {}, labels=f"{POD_GRAPH}={target.name}")
    events = _list_if_allowed(api, "Event", {}, fields="type=Warning")
    return Baseline(
        pods=frozenset(str(p["metadata"].get("uid", "")) for p in pods),
        events=frozenset(map(_occurrence, events)),
    )


def observe(own: OwnObjects, release: Release, before: Baseline = NOTHING) -> Observation:
    """The current state, without the warnings in ``before``. Raises ClusterError."""
    api, forbidden = own.api, own.forbidden
    forbidden.clear()
    # Before the pods, so that the pod of each event is in the list if it still exists.
    events = _list_if_allowed(api, "Event", forbidden, fields="type=Warning")
    pods = _list_if_allowed(api, "Pod", forbidden, labels=f"{POD_GRAPH}={own.target.name}")
    own.add_pods(pods)
    kinds = (*OWNER_KINDS, "Pod")  # whose problems `diagnose` knows
    new = (
        event
        for event in events
        if _occurrence(event) not in before.events
        and (event.get("involvedObject") or {}).get("kind") in kinds
    )
    return Observation(
        live=_readable(api, release.objects, forbidden),
        pods=pods,
        events=tuple(e for e in new if own.component(e.get("involvedObject") or {}) is not None),
        old_pods=before.pods,
        forbidden=forbidden,
    )


def read_progress(own: OwnObjects, release: Release, before: Baseline = NOTHING) -> Progress:
    """The progress of the release's rollout. Takes and raises the same as `observe`."""
    return progress_of(release.objects, observe(own, release, before))


def _occurrence(event: Object) -> tuple[str, str]:
    series = event.get("series") or {}
    count = series.get("count") or event.get("count") or 1
    return str(event["metadata"].get("uid", "")), str(count)


def read_objects(
    api: Api, manifests: Iterable[Object]
) -> Iterator[tuple[Object, Object | ForbiddenError]]:
    """Each manifest whose object exists, with the live object, or with the error if the user may
    not read it. Raises ForbiddenError for components."""
    for manifest in manifests:
        try:
            found = api.get(manifest)
        except ForbiddenError as error:
            if manifest["kind"] in WORKLOAD_KINDS:
                raise
            yield manifest, error
            continue
        if found is not None:
            yield manifest, found


def _readable(
    api: Api, manifests: Iterable[Object], forbidden: dict[str, str]
) -> tuple[Object, ...]:
    """The live objects that the user may read; the errors of the others in ``forbidden``."""
    live: list[Object] = []
    for manifest, found in read_objects(api, manifests):
        if isinstance(found, ForbiddenError):
            forbidden[manifest["kind"]] = str(found)
        else:
            live.append(found)
    return tuple(live)


def _list_if_allowed(
    api: Api, kind: str, forbidden: dict[str, str], **selectors: str
) -> tuple[Object, ...]:
    """The objects of a kind. If the user may not list it: none, and the error in ``forbidden``."""
    try:
        return tuple(api.list(kind, **selectors))
    except ForbiddenError as error:
        forbidden[kind] = str(error)
        return ()
