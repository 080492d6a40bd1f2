"""The state of a release, as a live view needs it: pods as replicas, and their times."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock.cluster.diagnose import is_ready, restarts
from penstock.cluster.progress import Progress
from penstock.cluster.workloads import Object, Workload, component_of
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import GatewayStatus
from penstock.manifests.deployment import Role


def seconds_of(text: object) -> float | None:
    """Seconds since 1970 of a time such as `2026-11-22T20:44:05Z`; None if it is not one."""
    with contextlib.suppress(ValueError):
        if isinstance(text, str):
            return datetime.fromisoformat(text).timestamp()
    return None


SYSTEM_PORT = 9090
# Only the first pod of a replica on several nodes serves metrics. LeaderWorkerSet numbers the pods.
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


@dataclass(frozen=True, kw_only=True)
class PodReplica:
    """A pod as a process of the graph."""

    name: str
    program: str
    role: Role
    state: ReplicaState
    key: str
    """The pod's UID and its number of restarts, because a container starts its counters at 0."""
    restarts: int
    system_port: int | None
    """Of its metrics, also of a frontend; None if it serves none."""
    ended: str
    """How its container ended the last time, such as `exit code 137 (OOMKilled)`; "" if never."""
    ended_at_s: float | None
    ready_at_s: float | None
    """When it became ready; None if it is not."""
    worker_id: str | None = None
    port: int | None = None
    pid: int | None = None
    is_substitute: bool = False


@dataclass(frozen=True, kw_only=True)
class ReleaseState:
    """A release at one moment."""

    source: str
    phase: str
    endpoint: str | None
    desired_replicas: Mapping[str, int]
    replicas: tuple[PodReplica, ...]
    progress: Progress
    models: tuple[str, ...] = ()
    gateway: GatewayStatus | None = None
    rejected_edit: tuple[str, ...] = field(default=())


def replicas_of(
    pods: Iterable[Object], components: Mapping[str, Workload], frontend_port: int
) -> tuple[PodReplica, ...]:
    """The pods of the release's components, in the order of their names."""
    replicas = []
    for pod in pods:
        workload = components.get(component_of(pod))
        if workload is not None and (pod.get("status") or {}).get("phase") != "Succeeded":
            replicas.append(_replica(pod, workload, frontend_port))
    return tuple(sorted(replicas, key=lambda replica: replica.name))


def role_of(workload: Workload) -> Role:
    known = {str(role): role for role in Role}
    return known.get(workload.type, Role.OTHER)


def _replica(pod: Object, workload: Workload, frontend_port: int) -> PodReplica:
    metadata, role = pod["metadata"], role_of(workload)
    count = restarts(pod)
    ended = _last_end(pod)
    ready = _condition(pod, "Ready")
    since = seconds_of(ready.get("lastTransitionTime")) if ready else None
    return PodReplica(
        name=str(metadata["name"]),
        program=workload.name,
        role=role,
        state=_state(pod),
        key=f"{metadata['uid']} {count}",
        restarts=count,
        system_port=_port(pod, role, frontend_port),
        ended=_text(ended) if ended else "",
        ended_at_s=seconds_of(ended.get("finishedAt")) if ended else None,
        ready_at_s=since if is_ready(pod) else None,
    )


def _state(pod: Object) -> ReplicaState:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return ReplicaState.DRAINING
    if is_ready(pod):
        return ReplicaState.READY
    containers: Sequence[Object] = status.get("containerStatuses") or ()
    states = [container.get("state") or {} for container in containers]
    waits = [(s.get("waiting") or {}).get("reason") for s in states]
    if (
        status.get("phase") == "Failed"
        or "CrashLoopBackOff" in waits
        or any("terminated" in s for s in states)
    ):
        return ReplicaState.CRASHED
    started = [seconds_of((s.get("running") or {}).get("startedAt")) for s in states]
    lost = seconds_of((_condition(pod, "Ready") or {}).get("lastTransitionTime"))
    # The condition changes after the start of the container only when the pod was ready before.
    was_ready = lost is not None and any(t is not None and lost > t for t in started)
    return ReplicaState.UNHEALTHY if was_ready else ReplicaState.STARTING


def _condition(pod: Object, name: str) -> Object | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == name), None)


def _last_end(pod: Object) -> Object | None:
    """The newest end of a container of the pod."""
    ends = [
        ended
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        for kind in ("state", "lastState")
        if (ended := (container.get(kind) or {}).get("terminated"))
    ]
    return max(ends, key=lambda e: str(e.get("finishedAt") or ""), default=None)


def _text(ended: Object) -> str:
    reason = ended.get("reason")
    return f"exit code {ended.get('exitCode')}" + (f" ({reason})" if reason else "")


def _port(pod: Object, role: Role, frontend_port: int) -> int | None:
    """By the name that the chart and the operator give the port of the metrics."""
    if (pod["metadata"].get("labels") or {}).get(WORKER_INDEX, "0") != "0":
        return None
    name = "http" if role is Role.FRONTEND else "system"
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == name:
                return int(port["containerPort"])
    return frontend_port if role is Role.FRONTEND else SYSTEM_PORT
