"""What happened to a running graph, in a file of its state folder: `up` writes, live views read.

An event is the difference between two states of `up`, or an edit that it applied or rejected.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from penstock.files import write_file
from penstock.local.hung_requests import HungRequests
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import LocalState, ReplicaStatus
from penstock.manifests.deployment import Role

FILE = "events.jsonl"
STAGES = {
    Role.ENCODE: "encoding",
    Role.PREFILL: "prefill",
    Role.DECODE: "KV transfer or decode",
    Role.WORKER: "prefill or decode",
}
MOST = 1000  # events in the file; a process that crashes every 30 s writes 240 an hour
KEPT = 500


class EventKind(StrEnum):
    START = "start"  # a process or the graph has started
    READY = "ready"
    SCALE = "scale"
    GENERATION = "generation"  # workers are replaced by some with another configuration
    DRAIN = "drain"
    STOP = "stop"
    CRASH = "crash"
    RESTART = "restart"
    HANG = "hang"  # of one request; the worker serves others
    ALERT = "alert"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event."""

    time_s: float
    """Seconds since 1970."""
    kind: EventKind
    subject: str
    """The process (`decode.0`), the component (`decode`) or `graph`."""
    text: str
    """What happened to it."""


class EventLog:
    """Writes the events of one run of `up`. A full disk must not stop the graph: such events are
    lost."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = folder / FILE, clock
        self._before: LocalState | None = None
        self._hung = HungRequests()
        self._count = 0

    def begin(self) -> None:
        """Delete the events of the last run."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
        self._count = 0

    def observe(self, state: LocalState) -> None:
        """Write what has changed since the last state."""
        now_s = self._clock()
        hangs = [
            Event(time_s=now_s, kind=EventKind.HANG, subject=replica.name, text=hung(replica.role))
            for worker_id in self._hung.new(state.replicas)
            for replica in state.replicas
            if replica.worker_id == worker_id
        ]
        self._write([*changes(self._before, state, now_s), *hangs])
        self._before = state

    def replaces(self, component: str) -> None:
        """An edit has changed its configuration: all of its replicas are replaced."""
        text = "new configuration: all replicas are replaced"
        kind = EventKind.GENERATION
        event = Event(time_s=self._clock(), kind=kind, subject=component, text=text)
        self._write([event])

    def _write(self, events: list[Event]) -> None:
        if not events:
            return
        with contextlib.suppress(OSError):
            if self._count + len(events) > MOST:
                lines = self._file.read_text().splitlines(keepends=True)[-KEPT:]
                draft = self._file.with_suffix(".draft")
                write_file(draft, "".join(lines))
                draft.replace(self._file)
                self._count = len(lines)
            with self._file.open("a") as file:
                file.writelines(json.dumps(asdict(event)) + "\n" for event in events)
            self._count += len(events)


def read_events(folder: Path, most: int = KEPT) -> tuple[Event, ...]:
    """The last events of the graph's run, oldest first; none if the file cannot be read."""
    try:
        lines = (folder / FILE).read_text().splitlines()[-most:]
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(event for line in lines if (event := _event(line)) is not None)


def hung(role: Role) -> str:
    """The text of an event HANG of a worker."""
    return f"a request hung, and the frontend took it away (stage: {STAGES[role]})"


def _event(line: str) -> Event | None:
    """None for a line that `up` has not finished, or that another version wrote."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        fields = json.loads(line)
        return Event(
            time_s=float(fields["time_s"]),
            kind=EventKind(fields["kind"]),
            subject=str(fields["subject"]),
            text=str(fields["text"]),
        )
    return None


def changes(before: LocalState | None, now: LocalState, time_s: float) -> Iterator[Event]:
    """The events between two states of one run; of the first state if ``before`` is None."""

    def event(kind: EventKind, subject: str, text: str) -> Event:
        return Event(time_s=time_s, kind=kind, subject=subject, text=text)

    if before is None or before.phase is not now.phase:
        kinds = {"starting": EventKind.START, "ready": EventKind.READY}
        yield event(kinds.get(now.phase, EventKind.DRAIN), "graph", str(now.phase))
    if before is not None:
        yield from _of_components(before, now, event)
        if now.rejected_edit and now.rejected_edit != before.rejected_edit:
            yield event(EventKind.ALERT, "graph", f"edit rejected: {now.rejected_edit[0]}")
    yield from _of_replicas(before.replicas if before else (), now.replicas, event)


MakeEvent = Callable[[EventKind, str, str], Event]


def _of_components(before: LocalState, now: LocalState, event: MakeEvent) -> Iterator[Event]:
    for name, count in now.desired_replicas.items():
        earlier = before.desired_replicas.get(name, 0)
        if count != earlier:
            yield event(EventKind.SCALE, name, f"{earlier} → {count} replicas")
    for name in before.desired_replicas.keys() - now.desired_replicas.keys():
        yield event(EventKind.SCALE, name, "removed from the graph")


def _of_replicas(
    before: tuple[ReplicaStatus, ...], now: tuple[ReplicaStatus, ...], event: MakeEvent
) -> Iterator[Event]:
    earlier = {r.pid: r for r in before}
    last = {r.name: r for r in before if r.state is not ReplicaState.DRAINING}
    successors = set()
    for replica in now:
        old, previous = earlier.get(replica.pid), last.get(replica.name)
        if old is None:
            again = previous is not None and replica.restarts > previous.restarts
            if previous is not None and again:
                successors.add(previous.pid)
                if previous.state is not ReplicaState.CRASHED:  # it was restarted at once
                    yield event(EventKind.CRASH, replica.name, f"exited (pid {previous.pid})")
            kind = EventKind.RESTART if again else EventKind.START
            yield event(kind, replica.name, f"started (pid {replica.pid})")
        if old is None or old.state is not replica.state:
            yield from _of_state(replica, old, event)
    running = {r.pid for r in now} | successors
    for replica in before:
        if replica.pid not in running:
            yield event(EventKind.STOP, replica.name, f"stopped (pid {replica.pid})")


def _of_state(
    replica: ReplicaStatus, old: ReplicaStatus | None, event: MakeEvent
) -> Iterator[Event]:
    if replica.state is ReplicaState.CRASHED:
        code = "killed" if replica.exit_code is None else f"exited with code {replica.exit_code}"
        yield event(EventKind.CRASH, replica.name, code)
    elif replica.state is ReplicaState.UNHEALTHY:
        yield event(EventKind.ALERT, replica.name, "its last health check failed")
    elif replica.state is ReplicaState.DRAINING:
        yield event(EventKind.DRAIN, replica.name, "finishes its requests, and gets no new ones")
    elif replica.state is ReplicaState.READY:
        was_ill = old is not None and old.state is ReplicaState.UNHEALTHY
        yield event(EventKind.READY, replica.name, "healthy again" if was_ill else "ready")
