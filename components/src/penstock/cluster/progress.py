"""What the cluster holds of a release, and the progress of its rollout: replicas by pool.

A status counts only for the generation that it was written for. Labels and owners tell which
objects are the release's, never their names: one release can be called `gpt`, another `gpt-canary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.diagnose import (
    OWNER_KINDS,
    UPDATE_CONFLICT,
    Diagnosis,
    diagnose,
    of_object,
    restarts,
)
from penstock.cluster.frontends import Admission, read_admission
from penstock.cluster.release import CHART, Release
from penstock.cluster.workloads import (
    COMPONENT,
    DGD,
    INSTANCE,
    LEADER_WORKER_SET,
    NAME,
    PLURALS,
    POD_COMPONENT,
    POD_GRAPH,
    WORKLOAD_KINDS,
    Object,
    component_of,
    condition_of,
    is_rolling,
    labels_of,
    status_of,
    workloads,
)
from penstock.helm import ReleaseTarget
from penstock.manifests.scalers import Scaler

# The conditions of autoscalers with their healthy values.
SCALER_CONDITIONS = {
    "HorizontalPodAutoscaler": (("AbleToScale", "True"), ("ScalingActive", "True")),
    "ScaledObject": (("Ready", "True"), ("Paused", "False")),
}


@dataclass(frozen=True, kw_only=True)
class PoolStatus:
    """The replicas of one component."""

    name: str
    desired: int
    # Existing replicas, old and new.
    replicas: int
    # Replicas of the newest generation.
    updated: int
    ready: int
    # Container restarts over all pods.
    restarts: int
    # GPUs of one replica.
    gpus: int
    # The autoscaler that sets ``desired``; None if the graph does.
    scaler: Scaler | None = None
    # The fewest workers to which a ready frontend routes; None if not known.
    admitted: int | None = None

    @property
    def is_done(self) -> bool:
        return self.desired == self.replicas == self.updated and self.ready >= self.desired

    def __str__(self) -> str:
        old = self.replicas - self.updated
        notes = [f"{old} old"] if old > 0 else []
        if self.desired > self.updated:
            notes.append(f"{self.updated} of {self.desired} updated")
        return f"{self.name} {self.ready}/{self.desired} ready" + (
            f" ({', '.join(notes)})" if notes and not self.is_done else ""
        )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A rollout at one moment."""

    pools: tuple[PoolStatus, ...]
    is_done: bool
    # What is missing, as the operator reports it; "" if nothing is.
    waiting_for: str
    # The DynamoGraphDeployment's generation and the one its operator observed; zeros without one.
    generation: tuple[int, int]
    # Messages about kinds the user may not list; diagnoses may be missing for them.
    forbidden: tuple[str, ...]
    diagnoses: tuple[Diagnosis, ...]
    # To which workers the frontends route; None if they were not asked.
    admission: Admission | None = None

    def __str__(self) -> str:
        pools = ", ".join(str(pool) for pool in self.pools)
        return pools if self.is_done or not self.waiting_for else f"{pools}; {self.waiting_for}"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the cluster holds of a release at one moment."""

    # The release's objects that exist.
    live: tuple[Object, ...]
    pods: tuple[Object, ...]
    # About the release's objects, also those that controllers have created.
    events: tuple[Object, ...]
    # Uids of pods from before the change.
    old_pods: frozenset[str] = frozenset()
    # The API server's message by kind that the user may not list.
    forbidden: Mapping[str, str] = field(default_factory=dict)


def progress_of(released: Iterable[Object], observation: Observation) -> Progress:
    """Compare the release's manifests with what the cluster holds."""
    declared = workloads(released)
    live = [o for o in observation.live if o["kind"] in WORKLOAD_KINDS]
    missing = [name for name in declared if name not in _component_names(live)]
    pools = tuple(
        replace(pool, scaler=declared[pool.name].scaler) if pool.name in declared else pool
        for o in live
        for pool in _pools(o, list(observation.pods))
    )
    waiting = [f"{name} does not exist yet" for name in missing]
    waiting += [reason for o in live if (reason := _waiting_for(o))]
    is_done = not waiting and bool(live) and all(pool.is_done for pool in pools)
    events = () if is_done else observation.events
    of_pods = diagnose(observation.pods, events, observation.old_pods)
    return Progress(
        pools=pools,
        is_done=is_done,
        waiting_for="; ".join(waiting),
        generation=next((_generations(o) for o in live if o["kind"] == DGD), (0, 0)),
        forbidden=tuple(observation.forbidden.values()),
        diagnoses=(*(d for o in observation.live for d in _diagnose_object(o)), *of_pods),
    )


def _component_names(live: list[Object]) -> set[str]:
    return set(workloads(live)) | {
        labels_of(o).get(COMPONENT, "") for o in live if o["kind"] == "StatefulSet"
    }


def _pools(manifest: Object, pods: list[Object]) -> Iterable[PoolStatus]:
    status = status_of(manifest)
    if manifest["kind"] == "StatefulSet":
        desired = int(manifest["spec"].get("replicas", 1))
        yield _pool(labels_of(manifest).get(COMPONENT, ""), desired, 0, status, pods)
        return
    for name, workload in workloads([manifest]).items():
        counts = status if manifest["kind"] != DGD else (status.get("components") or {}).get(name)
        yield _pool(name, workload.replicas, workload.gpus, counts or {}, pods)


def _pool(
    name: str, desired: int, gpus: int, counts: Mapping[str, Any], pods: list[Object]
) -> PoolStatus:
    of_pool = [p for p in pods if component_of(p) == name]
    # Grove's PodCliqueScalingGroups have no readyReplicas, and its PodCliques no availableReplicas.
    ready = counts.get("readyReplicas", counts.get("availableReplicas", 0))
    return PoolStatus(
        name=name,
        desired=desired,
        replicas=int(counts.get("replicas", 0)),
        updated=int(counts.get("updatedReplicas", 0)),
        ready=int(ready or 0),
        restarts=sum(map(restarts, of_pool)),
        gpus=gpus,
    )


def _waiting_for(manifest: Object) -> str:
    """Why the object's status does not yet match its newest generation; "" if it does."""
    kind = manifest["kind"]
    generation, observed = _generations(manifest)
    controller = "the operator" if kind == DGD else "the cluster"
    # Of a LeaderWorkerSet, which has no observedGeneration, and of a graph.
    ready = condition_of(manifest, {LEADER_WORKER_SET: "Available", DGD: "Ready"}.get(kind, ""))
    is_outdated = kind == DGD and _is_outdated(manifest)
    if condition_of(manifest, "UpdateInProgress").get("status") == "True":
        return "rolling update"
    if ready and ready["status"] != "True" and not is_outdated:
        return str(ready.get("message") or ready.get("reason") or "not ready")
    if kind != LEADER_WORKER_SET and observed < generation:
        return f"{controller} has not observed the change yet"
    if kind == DGD and is_rolling(manifest):
        return "rolling update"
    if kind in (DGD, LEADER_WORKER_SET) and (not ready or is_outdated):
        return f"{controller} has not reported readiness yet"
    return ""


def _generations(manifest: Object) -> tuple[int, int]:
    """The object's generation, and the one in its status."""
    observed = status_of(manifest).get("observedGeneration")
    return int(manifest["metadata"].get("generation", 0)), int(observed or 0)


def _is_outdated(manifest: Object) -> bool:
    """Whether the Ready condition of a graph was written for an older generation.

    The condition's own observedGeneration takes precedence: the operator raises the status' one
    only if reconciling succeeds.
    """
    generation, of_status = _generations(manifest)
    observed = condition_of(manifest, "Ready").get("observedGeneration", of_status)
    return int(observed or 0) < generation


def _diagnose_object(manifest: Object) -> Iterator[Diagnosis]:
    """Failures that a DynamoGraphDeployment, an autoscaler or a Job reports about itself."""
    status, name = status_of(manifest), str(manifest["metadata"]["name"])
    failed = (status.get("rollingUpdate") or {}).get("phase") == "Failed"
    if manifest["kind"] == DGD and (status.get("state") == "failed" or failed):
        ready = condition_of(manifest, "Ready")
        if ready.get("observedGeneration") is None or not _is_outdated(manifest):
            message = str(ready.get("message") or ready.get("reason") or "state is failed")
            if UPDATE_CONFLICT not in message:
                yield of_object(f"graph {name}", "operator error", message, is_permanent=True)
    component = f"{manifest['kind']} {name}"
    for kind, healthy in SCALER_CONDITIONS.get(manifest["kind"], ()):
        condition = condition_of(manifest, kind)
        if condition.get("status") not in (None, healthy, "Unknown"):
            yield of_object(component, "cannot scale", _reason(condition))
    failure = condition_of(manifest, "Failed")
    if manifest["kind"] == "Job" and failure.get("status") == "True":
        yield of_object(component, "failed", _reason(failure), is_permanent=True)


def _reason(condition: Object) -> str:
    return f"{condition.get('reason', '')}: {condition.get('message', '')}"


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
    live: list[Object] = []
    for manifest, current in read_objects(api, release.objects):
        if isinstance(current, ForbiddenError):
            forbidden[manifest["kind"]] = str(current)
        else:
            live.append(current)
    return Observation(
        live=tuple(live),
        pods=pods,
        events=tuple(e for e in new if owned.component(e.get("involvedObject") or {}) is not None),
        old_pods=before.pods,
        forbidden=forbidden,
    )


def read_progress(owned: OwnObjects, release: Release, before: Baseline = NOTHING) -> Progress:
    """The progress of the release's rollout, which is done when the frontends route to the new
    workers. Takes and raises the same as `observe`."""
    observation = observe(owned, release, before)
    progress = progress_of(release.objects, observation)
    return (
        with_admission(progress, owned.api, release, observation) if progress.is_done else progress
    )


def with_admission(
    progress: Progress, api: Api, release: Release, observation: Observation
) -> Progress:
    """The progress with what the ready frontends answer; raises nothing if they do not."""
    if refused := observation.forbidden.get("Pod"):
        admission = Admission.not_checked(refused)
    else:
        admission = read_admission(api, release, observation.live, observation.pods)
    is_missing = progress.is_done and bool(admission.missing)
    return replace(
        progress,
        pools=tuple(replace(p, admitted=admission.workers.get(p.name)) for p in progress.pools),
        is_done=progress.is_done and not is_missing,
        waiting_for="; ".join(admission.missing) if is_missing else progress.waiting_for,
        forbidden=tuple(dict.fromkeys((*progress.forbidden, *filter(None, [admission.unchecked])))),
        admission=admission,
    )


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
