"""Read what the cluster holds of a release: its objects, pods and warnings.

Labels and owners tell which objects are the release's, never their names: the name of a release can
begin with that of another, such as `gpt` and `gpt-canary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.diagnose import OWNER_KINDS
from penstock.cluster.progress import Observation, Progress, progress_of
from penstock.cluster.release import CHART, Release
from penstock.cluster.workloads import (
    COMPONENT,
    INSTANCE,
    NAME,
    PLURALS,
    POD_COMPONENT,
    POD_GRAPH,
    WORKLOAD_KINDS,
    Object,
    component_of,
    labels_of,
)
from penstock.helm import ReleaseTarget


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Pods and warnings from before a change, which are not attributed to it."""

    # The uids of the pods.
    pods: frozenset[str] = frozenset()
    # The uid and the number of occurrences of each warning.
    events: frozenset[tuple[str, str]] = frozenset()


NOTHING = Baseline()


def baseline(api: Api, target: ReleaseTarget) -> Baseline:
    """The current pods and warnings. Raises ClusterError."""
    pods = _list_if_allowed(api, "Pod", {}, labels=f"{POD_GRAPH}={target.name}")
    events = _list_if_allowed(api, "Event", {}, fields="type=Warning")
    return Baseline(
        pods=frozenset(str(p["metadata"].get("uid", "")) for p in pods),
        events=frozenset(map(_occurrence, events)),
    )


def observe(owned: OwnObjects, release: Release, before: Baseline = NOTHING) -> Observation:
    """The current state, without the warnings in ``before``. Raises ClusterError."""
    api, forbidden = owned.api, owned.forbidden
    forbidden.clear()
    # Before the pods, so that the pod of each event is in the list if it still exists.
    events = _list_if_allowed(api, "Event", forbidden, fields="type=Warning")
    pods = _list_if_allowed(api, "Pod", forbidden, labels=f"{POD_GRAPH}={owned.target.name}")
    owned.add_pods(pods)
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
        events=tuple(e for e in new if owned.component(e.get("involvedObject") or {}) is not None),
        old_pods=before.pods,
        forbidden=forbidden,
    )


def read_progress(owned: OwnObjects, release: Release, before: Baseline = NOTHING) -> Progress:
    """The progress of the release's rollout. Takes and raises the same as `observe`."""
    return progress_of(release.objects, observe(owned, release, before))


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
            live = api.get(manifest)
        except ForbiddenError as error:
            if manifest["kind"] in WORKLOAD_KINDS:
                raise
            yield manifest, error
            continue
        if live is not None:
            yield manifest, live


def _readable(
    api: Api, manifests: Iterable[Object], forbidden: dict[str, str]
) -> tuple[Object, ...]:
    """The live objects that the user may read; the errors of the others in ``forbidden``."""
    live: list[Object] = []
    for manifest, current in read_objects(api, manifests):
        if isinstance(current, ForbiddenError):
            forbidden[manifest["kind"]] = str(current)
        else:
            live.append(current)
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


# From a pod up to the graph: ReplicaSet, Deployment, DynamoComponentDeployment, and Grove's kinds.
MOST_OWNERS = 8


@dataclass
class OwnObjects:
    """The objects of one release. Asks the API server once about each object."""

    api: Api
    target: ReleaseTarget
    # The API server's message by kind that the user may not read.
    forbidden: dict[str, str] = field(default_factory=dict)
    # The component of each object by its uid; None: the object is not the release's.
    _components: dict[str, str | None] = field(default_factory=dict)

    def add_pods(self, pods: Iterable[Object]) -> None:
        """Pods of the release, as listed by their label."""
        for pod in pods:
            self._components[str(pod["metadata"].get("uid", ""))] = component_of(pod)

    def component(self, reference: Object) -> str | None:
        """The component of the object; "" if it is the graph's own; None if it is not known to
        belong to the release. Pods are known only from `add_pods`.

        ``reference``: apiVersion, kind, name and uid, as in an event or an owner reference. Raises
        ClusterError, but not for a kind that the user may not read.
        """
        return self._component(reference, MOST_OWNERS)

    def _component(self, reference: Object, left: int) -> str | None:
        uid, kind = str(reference.get("uid") or ""), reference.get("kind")
        if uid in self._components:
            return self._components[uid]
        is_known = kind in PLURALS and kind != "Pod" and reference.get("apiVersion")
        if not (uid and left and is_known) or kind in self.forbidden:
            return None
        try:
            live = self.api.get({**reference, "metadata": {"name": reference.get("name")}})
        except ForbiddenError as error:
            self.forbidden[str(kind)] = str(error)
            return None
        # Another uid: an object of the same name from before.
        is_same = live is not None and live["metadata"].get("uid") == uid
        self._components[uid] = self._of_object(live, left) if live and is_same else None
        return self._components[uid]

    def _of_object(self, manifest: Object, left: int) -> str | None:
        labels = labels_of(manifest)
        component = labels.get(POD_COMPONENT) or labels.get(COMPONENT) or ""
        if (release := _release(labels)) is not None:
            return component if release == self.target.name else None
        for owner in manifest["metadata"].get("ownerReferences") or ():
            if (of_owner := self._component(owner, left - 1)) is not None:
                return of_owner
        return None


def _release(labels: Mapping[str, str]) -> str | None:
    """The release that the labels name. The controllers copy a pod's labels to what creates it."""
    return labels.get(POD_GRAPH) or (labels.get(INSTANCE) if labels.get(NAME) == CHART else None)
