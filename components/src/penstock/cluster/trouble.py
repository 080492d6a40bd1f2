"""Why pods do not become ready, in words: from their status and the events about them.

Pure. The reasons are the kubelet's and the scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cluster.compare import without_secrets
from penstock.cluster.workloads import Object

COMPONENT = "penstock/component"

# Reasons of a container that waits → what it is, for a person.
WAITING: Mapping[str, str] = {
    "CrashLoopBackOff": "ends again and again",
    "CreateContainerConfigError": "cannot be configured",
    "CreateContainerError": "cannot be created",
    "ErrImagePull": "image cannot be pulled",
    "ErrImageNeverPull": "image cannot be pulled",
    "ImagePullBackOff": "image cannot be pulled",
    "InvalidImageName": "image cannot be pulled",
    "RunContainerError": "cannot be started",
}
# Reasons of events → the same; what a pod's own status does not say.
EVENTS: Mapping[str, str] = {
    "FailedAttachVolume": "volume cannot be attached",
    "FailedCreate": "pods cannot be created",
    "FailedMount": "volume cannot be mounted",
    "FailedScheduling": "unschedulable",
    "Unhealthy": "probe fails",
}


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """``what`` and the cluster's own ``words``; ``pod`` is the first that has it.

    ``is_final``: time alone will not mend it. ``container`` is set where its log may say more.
    """

    component: str
    pod: str
    what: str
    words: str
    is_final: bool
    container: str = ""

    def __str__(self) -> str:
        return f"{self.component}: {self.what}: {self.words}"


def troubles(pods: Iterable[Object], events: Iterable[Object]) -> tuple[Trouble, ...]:
    """One a component and kind of trouble; pods that are being deleted have none."""
    living = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
    found: dict[tuple[str, str], Trouble] = {}
    heard = list(events)
    for pod in living:
        for trouble in (*_of_pod(pod), *_of_events(pod, heard)):
            found.setdefault((trouble.component, trouble.what), trouble)
    return tuple(found.values())


def is_ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in _conditions(pod))


def restarts(pod: Object) -> int:
    return sum(int(c.get("restartCount", 0)) for c in _containers(pod))


def _of_pod(pod: Object) -> Iterator[Trouble]:
    for condition in _conditions(pod):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            words = str(condition.get("message", ""))
            yield _trouble(pod, "unschedulable", words, is_final=False)
    for status in _containers(pod):
        yield from _of_container(pod, status)


def _of_container(pod: Object, status: Mapping[str, Any]) -> Iterator[Trouble]:
    name = str(status["name"])
    state = status.get("state") or {}
    waiting = state.get("waiting") or {}
    ended = (status.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
    if (reason := str(waiting.get("reason"))) in WAITING:
        words = str(waiting.get("message") or reason)
        if ended:
            words = _ended(ended, status)
        yield _trouble(pod, WAITING[reason], words, is_final=True, container=name if ended else "")
    elif ended.get("exitCode"):
        yield _trouble(pod, "ended", _ended(ended, status), is_final=False, container=name)


def _ended(ended: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    times = int(status.get("restartCount", 0))
    often = f", {times} restart{'' if times == 1 else 's'}"
    return f"exit code {ended.get('exitCode')} ({ended.get('reason', 'Error')}){often}"


def _of_events(pod: Object, events: Iterable[Object]) -> Iterator[Trouble]:
    """Of a pod that is ready, none: its events are of the past."""
    if is_ready(pod):
        return
    name = pod["metadata"]["name"]
    told = {c.what for c in _of_pod(pod)}
    for event in events:
        about = event.get("involvedObject") or {}
        what = EVENTS.get(str(event.get("reason")))
        if about.get("name") == name and what and what not in told:
            yield _trouble(pod, what, str(event.get("message", "")), is_final=False)


def _trouble(pod: Object, what: str, words: str, *, is_final: bool, container: str = "") -> Trouble:
    metadata = pod["metadata"]
    return Trouble(
        component=str((metadata.get("labels") or {}).get(COMPONENT, metadata["name"])),
        pod=str(metadata["name"]),
        what=what,
        words=without_secrets(words),
        is_final=is_final,
        container=container,
    )


def _conditions(pod: Object) -> list[Mapping[str, Any]]:
    return list((pod.get("status") or {}).get("conditions") or ())


def _containers(pod: Object) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    kinds = ("initContainerStatuses", "containerStatuses")
    return [c for kind in kinds for c in status.get(kind) or ()]
