"""The progress of a rollout: replicas by pool, and whether the cluster matches the release.

Pure. A status counts only for the generation that it was written for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.cluster.compare import without_secrets
from penstock.cluster.diagnose import UPDATE_CONFLICT, Diagnosis, diagnose, restarts
from penstock.cluster.workloads import (
    COMPONENT,
    DGD,
    LEADER_WORKER_SET,
    WORKLOAD_KINDS,
    Object,
    component_of,
    labels_of,
    workloads,
)
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
    status = manifest.get("status") or {}
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
    status = manifest.get("status") or {}
    generation, observed = _generations(manifest)
    controller = "the operator" if manifest["kind"] == DGD else "the cluster"
    ready = _ready_condition(manifest)
    if ready and ready["status"] != "True" and not _is_outdated(manifest):
        return str(ready.get("message") or ready.get("reason") or "not ready")
    if manifest["kind"] == LEADER_WORKER_SET:  # has no observedGeneration
        return _group_waiting_for(status)
    if observed < generation:
        return f"{controller} has not observed the change yet"
    if manifest["kind"] != DGD:
        return ""
    if (status.get("rollingUpdate") or {}).get("phase") in ("Pending", "InProgress"):
        return "rolling update"
    if ready is None or _is_outdated(manifest):
        return f"{controller} has not reported readiness yet"
    return ""


def _group_waiting_for(status: Mapping[str, Any]) -> str:
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    if (conditions.get("UpdateInProgress") or {}).get("status") == "True":
        return "rolling update"
    available = conditions.get("Available")
    if available is None:
        return "the cluster has not reported readiness yet"
    return "" if available["status"] == "True" else str(available.get("message") or "not ready")


def _generations(manifest: Object) -> tuple[int, int]:
    """The object's generation, and the one in its status."""
    observed = (manifest.get("status") or {}).get("observedGeneration")
    return int(manifest["metadata"].get("generation", 0)), int(observed or 0)


def _ready_condition(manifest: Object) -> Mapping[str, Any] | None:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    if manifest["kind"] != DGD:
        return None
    return next((c for c in conditions if c["type"] == "Ready"), None)


def _is_outdated(manifest: Object) -> bool:
    """Whether the Ready condition was written for an older generation.

    The condition's own observedGeneration takes precedence: the operator raises the status' one
    only if reconciling succeeds.
    """
    status = manifest.get("status") or {}
    ready = _ready_condition(manifest) or {}
    observed = ready.get("observedGeneration", status.get("observedGeneration", 0))
    return int(observed or 0) < int(manifest["metadata"].get("generation", 0))


def _diagnose_object(manifest: Object) -> Iterator[Diagnosis]:
    """Failures that a DynamoGraphDeployment, an autoscaler or a Job reports about itself."""
    status = manifest.get("status") or {}
    name = str(manifest["metadata"]["name"])
    conditions = status.get("conditions") or ()
    failed = (status.get("rollingUpdate") or {}).get("phase") == "Failed"
    if manifest["kind"] == DGD and (status.get("state") == "failed" or failed):
        ready = _ready_condition(manifest) or {}
        if ready.get("observedGeneration") is None or not _is_outdated(manifest):
            message = str(ready.get("message") or ready.get("reason") or "state is failed")
            if UPDATE_CONFLICT not in message:
                yield _of_object(f"graph {name}", "operator error", message, is_permanent=True)
    for kind, healthy in SCALER_CONDITIONS.get(manifest["kind"], ()):
        for condition in conditions:
            if condition["type"] == kind and condition["status"] not in (healthy, "Unknown"):
                component = f"{manifest['kind']} {name}"
                yield _of_object(component, "cannot scale", _reason(condition))
    if manifest["kind"] == "Job":
        for condition in conditions:
            if condition["type"] == "Failed" and condition["status"] == "True":
                yield _of_object(f"Job {name}", "failed", _reason(condition), is_permanent=True)


def _reason(condition: Mapping[str, Any]) -> str:
    return f"{condition.get('reason', '')}: {condition.get('message', '')}"


def _of_object(
    component: str, problem: str, message: str, *, is_permanent: bool = False
) -> Diagnosis:
    return Diagnosis(
        component=component,
        pod="",
        problem=problem,
        message=without_secrets(message),
        is_permanent=is_permanent,
    )
