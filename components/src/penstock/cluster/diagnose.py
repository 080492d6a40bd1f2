"""Why pods do not become ready, in words: from their status and the events about them.

Pure. The reasons are the kubelet's, the scheduler's and the controllers'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from penstock.cluster.compare import without_secrets
from penstock.cluster.workloads import POD_COMPONENT, Object

AGAIN = "ends again and again"
OFTEN = 2  # restarts, from which on a container that ends is taken to end again

# Reasons of a container that waits → what it is, for a person.
WAITING: Mapping[str, str] = {
    "CrashLoopBackOff": AGAIN,
    "CreateContainerConfigError": "cannot be configured",
    "CreateContainerError": "cannot be created",
    "ErrImagePull": "image cannot be pulled",
    "ErrImageNeverPull": "image cannot be pulled",
    "ImagePullBackOff": "image cannot be pulled",
    "InvalidImageName": "image cannot be pulled",
    "RunContainerError": "cannot be started",
}
# Reasons of events about a pod that has not started → the same.
BEFORE_START: Mapping[str, str] = {
    "FailedAttachVolume": "volume cannot be attached",
    "FailedCreatePodSandBox": "sandbox cannot be created",
    "FailedMapVolume": "volume cannot be mounted",
    "FailedMount": "volume cannot be mounted",
    "FailedPrepareDynamicResources": "devices cannot be prepared",
    "FailedScheduling": "unschedulable",
}
# Objects between the release's and its pods: their warnings are about pods that are not there.
OWNERS = (
    "DynamoComponentDeployment",
    "DynamoGraphDeployment",
    "Deployment",
    "Job",
    "LeaderWorkerSet",
    "PersistentVolumeClaim",
    "PodClique",
    "PodCliqueScalingGroup",
    "PodCliqueSet",
    "ReplicaSet",
    "StatefulSet",
)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """``what`` and the cluster's own ``words``; ``pod`` is the first that has it, "" for what is no
    pod's.

    ``is_final``: time alone will not mend it. ``container`` is set where its log may say more.
    """

    component: str
    pod: str
    what: str
    words: str
    is_final: bool
    container: str = ""
    restarts: int = 0

    def __str__(self) -> str:
        again = f", {self.restarts} restarts" if self.restarts else ""
        return f"{self.said}{again}"

    @property
    def said(self) -> str:
        """Without what grows."""
        return f"{self.component}: {self.what}: {self.words}"


def troubles(
    pods: Iterable[Object], events: Iterable[Object], release: str, old: Set[str] = frozenset()
) -> tuple[Diagnosis, ...]:
    """One a component and kind of trouble: a pod's own words before those of its newest event.

    Pods that are being deleted, or ended well, have none. ``old``: uids of pods that were there
    before; theirs are never final. ``release`` is the name that the objects between it and its pods
    begin with.
    """
    warnings = sorted(events, key=_time, reverse=True)
    found: dict[tuple[str, str], Diagnosis] = {}
    living = [p for p in pods if _is_of_interest(p)]
    for pod in sorted(living, key=lambda p: _uid(p) in old):
        is_old = _uid(pod) in old
        for trouble in (*_of_pod(pod, is_old=is_old), *_of_events(pod, warnings)):
            found.setdefault((trouble.component, trouble.what), trouble)
    for trouble in _of_owners(warnings, release):
        found.setdefault((trouble.component, trouble.what), trouble)
    return tuple(found.values())


def is_ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in _conditions(pod))


def restarts(pod: Object) -> int:
    return sum(int(c.get("restartCount", 0)) for c in _containers(pod))


def _is_of_interest(pod: Object) -> bool:
    """A Job tells of its own pods; what is going, or has done its work, is in order."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    of_job = "job-name" in labels or "batch.kubernetes.io/job-name" in labels
    failed = of_job and (pod.get("status") or {}).get("phase") == "Failed"
    return not (metadata.get("deletionTimestamp") or failed or is_ready(pod))


def _of_pod(pod: Object, *, is_old: bool) -> Iterator[Diagnosis]:
    status = pod.get("status") or {}
    for condition in _conditions(pod):
        # Grove holds pods back until all of a group fit: that is no trouble yet.
        if (
            condition["type"] == "PodScheduled"
            and condition["status"] == "False"
            and condition.get("reason") != "SchedulingGated"
        ):
            yield _trouble(pod, "unschedulable", str(condition.get("message", "")))
    if status.get("phase") == "Failed" and not status.get("containerStatuses"):
        words = f"{status.get('reason', 'Failed')}: {status.get('message', '')}"
        yield _trouble(pod, "refused by its node", words)
    for container in _containers(pod):
        yield from _of_container(pod, container, is_old=is_old)


def _of_container(pod: Object, status: Mapping[str, Any], *, is_old: bool) -> Iterator[Diagnosis]:
    if status.get("ready"):
        return
    name = str(status["name"])
    state = status.get("state") or {}
    waiting = state.get("waiting") or {}
    ended = (status.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
    times = int(status.get("restartCount", 0))
    reason = str(waiting.get("reason", ""))
    if ended.get("exitCode") and (reason in ("CrashLoopBackOff", "") or times):
        what = AGAIN if times >= OFTEN or waiting else "ended"
        words = f"exit code {ended['exitCode']} ({ended.get('reason', 'Error')})"
        final = what == AGAIN and not is_old
        yield _trouble(pod, what, words, is_final=final, container=name, restarts=times)
    elif reason in WAITING:
        words = str(waiting.get("message") or reason)
        yield _trouble(pod, WAITING[reason], words, is_final=not is_old)


def _of_events(pod: Object, events: Iterable[Object]) -> Iterator[Diagnosis]:
    """What is past by the pod's own status is left out."""
    is_scheduled = any(
        c["type"] == "PodScheduled" and c["status"] == "True" for c in _conditions(pod)
    )
    has_started = any(
        (c.get("state") or {}).get("running") is not None or c.get("restartCount")
        for c in _containers(pod)
    )
    for event in events:
        about, reason = event.get("involvedObject") or {}, str(event.get("reason"))
        if about.get("name") != pod["metadata"]["name"]:
            continue
        if about.get("uid") not in (None, pod["metadata"].get("uid")):
            continue
        what = "probe fails" if reason == "Unhealthy" else BEFORE_START.get(reason, "")
        past = reason in BEFORE_START and has_started
        past = past or (reason == "FailedScheduling" and is_scheduled)
        if what and not past:
            yield _trouble(pod, what, str(event.get("message", "")))


def _of_owners(events: Iterable[Object], release: str) -> Iterator[Diagnosis]:
    for event in events:
        about = event.get("involvedObject") or {}
        name = str(about.get("name", ""))
        own = name == release or name.startswith(f"{release}-")
        if event.get("type") == "Warning" and own and about.get("kind") in OWNERS:
            quota = event.get("reason") == "FailedCreate"
            yield Diagnosis(
                component=f"{about['kind']} {name}",
                pod="",
                what="pods cannot be created" if quota else str(event.get("reason")),
                words=without_secrets(str(event.get("message", ""))),
                is_final=False,
            )


def _trouble(
    pod: Object,
    what: str,
    words: str,
    *,
    is_final: bool = False,
    container: str = "",
    restarts: int = 0,
) -> Diagnosis:
    metadata = pod["metadata"]
    return Diagnosis(
        component=str((metadata.get("labels") or {}).get(POD_COMPONENT, metadata["name"])),
        pod=str(metadata["name"]),
        what=what,
        words=without_secrets(words),
        is_final=is_final,
        container=container,
        restarts=restarts,
    )


def _uid(pod: Object) -> str:
    return str(pod["metadata"].get("uid", ""))


def _time(event: Object) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((t for t in times if t), ""))


def _conditions(pod: Object) -> list[Mapping[str, Any]]:
    return list((pod.get("status") or {}).get("conditions") or ())


def _containers(pod: Object) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    kinds = ("initContainerStatuses", "containerStatuses")
    return [c for kind in kinds for c in status.get(kind) or ()]
