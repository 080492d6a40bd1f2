"""Diagnose pods that do not become ready, from their status and the events about them.

Pure. Branches only on the reasons that the kubelet, the scheduler and the controllers set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

from penstock.cluster.compare import without_secrets
from penstock.cluster.workloads import (
    CREATED_KINDS,
    WORKLOAD_KINDS,
    Object,
    component_of,
    condition_of,
    labels_of,
    namespace_of,
    status_of,
)

CRASH_LOOP = "keeps crashing"
CRASH_LOOP_RESTARTS = 2  # from this count on, a container that exits is in a crash loop

# Problem by the reason of a waiting container.
WAITING_PROBLEMS: Mapping[str, str] = {
    "CrashLoopBackOff": CRASH_LOOP,
    "CreateContainerConfigError": "cannot be configured",
    "CreateContainerError": "cannot be created",
    "ErrImagePull": "image cannot be pulled",
    "ErrImageNeverPull": "image cannot be pulled",
    "ImagePullBackOff": "image cannot be pulled",
    "InvalidImageName": "image cannot be pulled",
    "RunContainerError": "cannot be started",
}
# Problem by the reason of an event about a pod that has not started.
STARTUP_PROBLEMS: Mapping[str, str] = {
    "FailedAttachVolume": "volume cannot be attached",
    "FailedCreatePodSandBox": "sandbox cannot be created",
    "FailedMapVolume": "volume cannot be mounted",
    "FailedMount": "volume cannot be mounted",
    "FailedPrepareDynamicResources": "devices cannot be prepared",
    "FailedScheduling": "unschedulable",
}
# Kinds between a release and its pods; their warnings are about pods that do not exist.
OWNER_KINDS = {*WORKLOAD_KINDS, *chain(*CREATED_KINDS.values()), "Job", "PersistentVolumeClaim"}
# The operator's own conflict with another writer; it retries immediately.
UPDATE_CONFLICT = "the object has been modified; please apply your changes to the latest version"
COMBINED = "(combined from similar events): "
# How the API server refuses a pod; its name differs in each event.
REFUSED = re.compile(r'^Error creating: (?:pods|Pod) "[^"]*" is (?P<how>forbidden|invalid): ')


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One problem of a component that is not ready."""

    # Or the kind and name of an object that is not a component.
    component: str
    # The first pod with the problem; "" if it is not a pod's.
    pod: str
    # Our short description, such as "image cannot be pulled".
    problem: str
    # The cluster's.
    message: str
    # Whether waiting cannot solve it.
    is_permanent: bool
    # The container whose log may give the cause; "" if there is none.
    container: str = ""
    restarts: int = 0

    def __str__(self) -> str:
        restarts = f", {self.restarts} restarts" if self.restarts else ""
        return f"{self.summary}{restarts}"

    @property
    def summary(self) -> str:
        """The text without the restart count, which would differ at every look."""
        return f"{self.component}: {self.problem}: {self.message}"


def diagnose(
    pods: Iterable[Object], events: Iterable[Object], old_pods: Set[str] = frozenset()
) -> tuple[Diagnosis, ...]:
    """One diagnosis per component and problem; a pod's status takes precedence over its events.

    Ready pods, pods being deleted and pods of Jobs that failed are skipped. ``events``: about the
    release's objects. ``old_pods``: uids of pods from before the change; their problems are never
    permanent.
    """
    newest_first = sorted(events, key=_time, reverse=True)
    diagnoses: dict[tuple[str, str], Diagnosis] = {}
    not_ready = [p for p in pods if _is_relevant(p)]
    for pod in sorted(not_ready, key=lambda p: _uid(p) in old_pods):
        is_old = _uid(pod) in old_pods
        for entry in (*_from_status(pod, is_old=is_old), *_from_events(pod, newest_first)):
            diagnoses.setdefault((entry.component, entry.problem), entry)
    for entry in (*_from_generations(not_ready), *_from_owners(newest_first)):
        diagnoses.setdefault((entry.component, entry.problem), entry)
    return tuple(diagnoses.values())


def is_ready(pod: Object) -> bool:
    return condition_of(pod, "Ready").get("status") == "True"


def restarts(pod: Object) -> int:
    return sum(int(c.get("restartCount", 0)) for c in _container_statuses(pod))


def _is_relevant(pod: Object) -> bool:
    """A Job retries failed pods and reports the failure itself."""
    labels = labels_of(pod)
    of_job = "job-name" in labels or "batch.kubernetes.io/job-name" in labels
    failed_attempt = of_job and status_of(pod).get("phase") == "Failed"
    return not (pod["metadata"].get("deletionTimestamp") or failed_attempt or is_ready(pod))


def _from_status(pod: Object, *, is_old: bool) -> Iterator[Diagnosis]:
    status, scheduled = status_of(pod), condition_of(pod, "PodScheduled")
    # Grove gates pods until the pods of a group fit together: not a problem yet.
    if scheduled.get("status") == "False" and scheduled.get("reason") != "SchedulingGated":
        yield _of_pod(pod, "unschedulable", str(scheduled.get("message", "")))
    if status.get("phase") == "Failed" and not status.get("containerStatuses"):
        message = f"{status.get('reason', 'Failed')}: {status.get('message', '')}"
        yield _of_pod(pod, "rejected by its node", message)
    for container in _container_statuses(pod):
        yield from _from_container(pod, container, is_old=is_old)


def _from_generations(pods: Sequence[Object]) -> Iterator[Diagnosis]:
    """New workers that become ready only with those of another pool, which cannot be scheduled: on
    `platform: plain`, whose readiness is a command. Both wait, as no old worker stops before."""
    unscheduled = {
        (namespace_of(pod), component_of(pod))
        for pod in pods
        if condition_of(pod, "PodScheduled").get("status") == "False"
    }
    for pod in pods:
        namespace = namespace_of(pod)
        probes = (c.get("readinessProbe") or {} for c in pod["spec"]["containers"])
        is_running = any("running" in (s.get("state") or {}) for s in _container_statuses(pod))
        if not (namespace and is_running and any("exec" in probe for probe in probes)):
            continue
        of_generation = {name for space, name in unscheduled if space == namespace}
        if others := sorted(of_generation - {component_of(pod)}):
            message = (
                f"its new workers become ready only when {' and '.join(others)} of their "
                "generation is scheduled: an update needs free GPUs for one more replica of each "
                "pool at the same time"
            )
            yield _of_pod(pod, f"waits for {' and '.join(others)}", message)


def _from_container(pod: Object, status: Mapping[str, Any], *, is_old: bool) -> Iterator[Diagnosis]:
    if status.get("ready"):
        return
    name = str(status["name"])
    state = status.get("state") or {}
    waiting = state.get("waiting") or {}
    ended = (status.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
    count = int(status.get("restartCount", 0))
    reason = str(waiting.get("reason", ""))
    if ended.get("exitCode") and (reason in ("CrashLoopBackOff", "") or count):
        is_crash_loop = count >= CRASH_LOOP_RESTARTS or bool(waiting)
        yield _of_pod(
            pod,
            CRASH_LOOP if is_crash_loop else "exited",
            f"exit code {ended['exitCode']} ({ended.get('reason', 'Error')})",
            is_permanent=is_crash_loop and not is_old,
            container=name,
            restarts=count,
        )
    elif reason in WAITING_PROBLEMS:
        message = str(waiting.get("message") or reason)
        yield _of_pod(pod, WAITING_PROBLEMS[reason], message, is_permanent=not is_old)


def _from_events(pod: Object, events: Iterable[Object]) -> Iterator[Diagnosis]:
    """Events whose problem the pod's status shows to be over are skipped."""
    is_scheduled = condition_of(pod, "PodScheduled").get("status") == "True"
    has_started = any(
        (c.get("state") or {}).get("running") is not None or c.get("restartCount")
        for c in _container_statuses(pod)
    )
    for event in events:
        regarding, reason = event.get("involvedObject") or {}, str(event.get("reason"))
        if regarding.get("name") != pod["metadata"]["name"]:
            continue
        if regarding.get("uid") not in (None, pod["metadata"].get("uid")):
            continue
        problem = "probe failed" if reason == "Unhealthy" else STARTUP_PROBLEMS.get(reason, "")
        is_over = reason in STARTUP_PROBLEMS and has_started
        is_over = is_over or (reason == "FailedScheduling" and is_scheduled)
        if problem and not is_over:
            yield _of_pod(pod, problem, str(event.get("message", "")))


def _from_owners(events: Iterable[Object]) -> Iterator[Diagnosis]:
    for event in events:
        regarding = event.get("involvedObject") or {}
        message = str(event.get("message", "")).removeprefix(COMBINED)
        is_warning = event.get("type") == "Warning" and UPDATE_CONFLICT not in message
        if is_warning and regarding.get("kind") in OWNER_KINDS:
            reason = str(event.get("reason"))
            refused = REFUSED.match(message) if reason == "FailedCreate" else None
            problem = "pods cannot be created" if reason == "FailedCreate" else reason
            text = message[refused.end() :] if refused else message
            component = f"{regarding['kind']} {regarding.get('name', '')}"
            yield of_object(component, problem, text, is_permanent=refused is not None)


def of_object(
    component: str, problem: str, message: str, *, is_permanent: bool = False, **of_pod: Any
) -> Diagnosis:
    """A problem of an object that is not a component, or of a pod."""
    return Diagnosis(
        component=component,
        problem=problem,
        message=without_secrets(message),
        is_permanent=is_permanent,
        **{"pod": "", **of_pod},
    )


def _of_pod(pod: Object, problem: str, message: str, **more: Any) -> Diagnosis:
    name = str(pod["metadata"]["name"])
    return of_object(component_of(pod) or name, problem, message, pod=name, **more)


def _uid(pod: Object) -> str:
    return str(pod["metadata"].get("uid", ""))


def _time(event: Object) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((t for t in times if t), ""))


def _container_statuses(pod: Object) -> list[Mapping[str, Any]]:
    kinds = ("initContainerStatuses", "containerStatuses")
    return [c for kind in kinds for c in status_of(pod).get(kind) or ()]
