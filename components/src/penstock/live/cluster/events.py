"""Events of a release: those of the Kubernetes API, and the changes between two reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.cluster.compare import without_secrets
from penstock.cluster.diagnose import COMBINED, UPDATE_CONFLICT
from penstock.cluster.workloads import Object
from penstock.live.cluster.state import PodReplica, ReleaseState, seconds_of
from penstock.local.events import Event, EventKind
from penstock.local.reconcile import ReplicaState

GRAPH = "graph"
# By the reason that the controllers and the kubelet set; other normal events are not shown.
KINDS: Mapping[str, EventKind] = {
    "Killing": EventKind.DRAIN,
    "RollingUpdateCompleted": EventKind.GENERATION,
    "RollingUpdateStarted": EventKind.GENERATION,
    "Scaled": EventKind.SCALE,
    "ScalingReplicaSet": EventKind.SCALE,
    "SuccessfulCreate": EventKind.START,
    "SuccessfulDelete": EventKind.DRAIN,
    "SuccessfulRescale": EventKind.SCALE,
    "TaintManagerEviction": EventKind.DRAIN,
}
# A controller's message about a pod that it creates or deletes.
POD = re.compile(r"^(?:Created|Deleted) pod: (?P<name>\S+)$")
SCALED = re.compile(r"from (?P<before>\d+) to (?P<after>\d+)")
# Both the controller and the comparison of two reads report it; the latter within a few seconds.
SAME_S = 30.0
ONCE = (EventKind.START, EventKind.DRAIN)  # of each pod


def events_of(listed: Iterable[tuple[Object, str]]) -> list[Event]:
    """The API server's events about the objects of a release, each with its component."""
    return [event for entry in listed if (event := _event(*entry)) is not None]


def _event(listed: Object, component: str) -> Event | None:
    regarding = listed.get("involvedObject") or {}
    name, kind = str(regarding.get("name", "")), str(regarding.get("kind", ""))
    reason, message = str(listed.get("reason") or ""), str(listed.get("message") or "")
    is_warning = listed.get("type") == "Warning"
    is_known = is_warning or reason in KINDS
    time_s = _time(listed)
    if not is_known or time_s is None:
        return None
    if UPDATE_CONFLICT in message:
        return None  # the operator retries at once
    event_kind, subject = KINDS.get(reason, EventKind.ALERT), name if kind == "Pod" else component
    if reason == "BackOff" and "restarting failed container" in message:
        event_kind = EventKind.CRASH
    if reason == "Killing" and not message.startswith("Stopping container"):
        event_kind = EventKind.RESTART  # a failed liveness probe
    text = without_secrets(message.removeprefix(COMBINED))
    if pod := POD.match(message):
        subject = pod["name"]
        text = "created" if event_kind is EventKind.START else "is being deleted"
    elif event_kind is EventKind.SCALE and (numbers := SCALED.search(message)):
        text = f"{numbers['before']} → {numbers['after']} replicas"
    elif event_kind is EventKind.ALERT:
        text = f"{reason}: {text}"
    count = _series(listed).get("count") or listed.get("count")
    if isinstance(count, int) and count > 1 and event_kind not in (*ONCE, EventKind.SCALE):
        text += f" ({count} times)"
    return Event(time_s=time_s, kind=event_kind, subject=subject or GRAPH, text=text)


def _series(listed: Object) -> Object:
    series = listed.get("series")
    return series if isinstance(series, dict) else {}


def _time(listed: Object) -> float | None:
    times = (
        _series(listed).get("lastObservedTime"),
        listed.get("lastTimestamp"),
        listed.get("eventTime"),
        listed["metadata"].get("creationTimestamp"),
    )
    return next((t for text in times if (t := seconds_of(text)) is not None), None)


def history(state: ReleaseState) -> Iterator[Event]:
    """What the pods tell about the time before the first read."""
    for pod in state.replicas:
        if pod.ended_at_s is not None:
            kind = EventKind.CRASH
            yield Event(time_s=pod.ended_at_s, kind=kind, subject=pod.name, text=pod.ended)
        if pod.ready_at_s is not None:
            kind = EventKind.READY
            yield Event(time_s=pod.ready_at_s, kind=kind, subject=pod.name, text="ready")


def changes(before: ReleaseState, now: ReleaseState, time_s: float) -> Iterator[Event]:
    """What is different in ``now``, which was read at ``time_s``."""

    def event(kind: EventKind, subject: str, text: str) -> Event:
        return Event(time_s=time_s, kind=kind, subject=subject, text=text)

    if now.phase != before.phase:
        kind = EventKind.READY if now.phase == "ready" else EventKind.GENERATION
        yield event(kind, GRAPH, now.phase)
    for name, count in now.desired_replicas.items():
        earlier = before.desired_replicas.get(name, 0)
        if count != earlier:
            yield event(EventKind.SCALE, name, f"{earlier} → {count} replicas")
    old = {pod.key.partition(" ")[0]: pod for pod in before.replicas}
    for pod in now.replicas:
        yield from _of_pod(old.pop(pod.key.partition(" ")[0], None), pod, time_s)
    for pod in old.values():
        yield event(EventKind.STOP, pod.name, "deleted")


def _of_pod(before: PodReplica | None, now: PodReplica, time_s: float) -> Iterator[Event]:
    def event(kind: EventKind, text: str) -> Event:
        return Event(time_s=time_s, kind=kind, subject=now.name, text=text)

    if before is None:
        yield event(EventKind.START, "created")
    elif now.restarts > before.restarts:
        yield event(EventKind.RESTART, f"container restarted: {now.ended or 'unknown exit code'}")
    if before is not None and before.state is now.state:
        return
    if now.state is ReplicaState.CRASHED:
        yield event(EventKind.CRASH, now.ended or "crashed")
    elif now.state is ReplicaState.UNHEALTHY or (
        now.state is ReplicaState.STARTING and before and before.state is ReplicaState.READY
    ):
        yield event(EventKind.ALERT, "is no longer ready")
    elif now.state is ReplicaState.DRAINING:
        yield event(EventKind.DRAIN, "is being deleted")
    elif now.state is ReplicaState.READY:
        yield event(EventKind.READY, "ready")


def merged(groups: Iterable[Sequence[Event]], most: int) -> tuple[Event, ...]:
    """The newest events of all groups, oldest first, without those that are reported twice."""
    kept: list[Event] = []
    last: dict[tuple[str, str, str], float] = {}
    for event in sorted((e for group in groups for e in group), key=lambda e: e.time_s):
        # The numbers before the arrow differ while a rollout goes on.
        text = "" if event.kind in ONCE else event.text.partition("→")[2] or event.text
        key = (event.kind, event.subject, text)
        if key in last and (event.kind in ONCE or event.time_s - last[key] <= SAME_S):
            continue
        if event.kind in ONCE:  # a pod of the same name may come again
            for kind in ONCE:
                last.pop((kind, event.subject, text), None)
        last[key] = event.time_s
        kept.append(event)
    return tuple(kept[-most:])
