"""The events that `up` records from one state of a graph to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from penstock.local.events import MOST, EventKind, EventLog, changes, read_events
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import LocalState, Phase, ReplicaStatus
from tests.local.builders import running

(READY,) = running().replicas


def with_replicas(*replicas: ReplicaStatus, **more: object) -> LocalState:
    return with_fields(running(), replicas=replicas, **more)


def replica(**changed: object) -> ReplicaStatus:
    return with_fields(READY, **changed)


STARTING = replica(name="decode.1", pid=7, state=ReplicaState.STARTING)
DRAINING = with_replicas(replica(state=ReplicaState.DRAINING))
CRASHED = with_replicas(replica(state=ReplicaState.CRASHED, exit_code=-9))
AGAIN = with_replicas(replica(pid=8, restarts=1, state=ReplicaState.STARTING))
ILL = with_replicas(replica(state=ReplicaState.UNHEALTHY))
REJECTED = with_fields(running(), rejected_edit=("decode.replicas: got -1",))
NEW = replica(pid=9)
DRAIN_OLD = with_replicas(replica(state=ReplicaState.DRAINING), NEW)
SCALED = with_replicas(READY, STARTING, desired_replicas={"decode": 2})


@pytest.mark.parametrize(
    ("before", "now", "events"),
    [
        (None, running(), "ready graph, start decode.0, ready decode.0"),
        (running(), running(), ""),
        (running(), SCALED, "scale decode, start decode.1"),
        (running(), DRAINING, "drain decode.0"),
        (DRAINING, with_replicas(), "stop decode.0"),
        (running(), CRASHED, "crash decode.0: exited with code -9"),
        (CRASHED, AGAIN, "restart decode.0"),
        (running(), AGAIN, "crash decode.0, restart decode.0"),  # between the two states
        (running(), ILL, "alert decode.0"),
        (ILL, running(), "ready decode.0: healthy again"),
        (running(), REJECTED, "alert graph"),
        (REJECTED, REJECTED, ""),
        (running(), with_replicas(READY, NEW), "start decode.0, ready decode.0"),
        (with_replicas(READY, NEW), DRAIN_OLD, "drain decode.0"),
        (running(), with_fields(running(), desired_replicas={}), "scale decode"),
    ],
)
def test_what_changes_from_one_state_to_the_next(
    before: LocalState | None, now: LocalState, events: str
) -> None:
    """With the text of the event, where ``events`` has one."""
    expected = [part.split(": ") for part in events.split(", ") if part]
    found = list(changes(before, now, 0.0))
    assert [f"{event.kind} {event.subject}" for event in found] == [name for name, *_ in expected]
    for event, (_, *text) in zip(found, expected, strict=True):
        assert text in ([], [event.text])


def test_events_are_read_in_order_with_their_times(tmp_path: Path) -> None:
    log = EventLog(tmp_path, clock=iter([1.0, 2.0, 3.0]).__next__)
    log.observe(running())
    log.replaces("decode")
    log.observe(with_fields(running(), phase=Phase.DRAINING))
    events = read_events(tmp_path)
    assert [(e.time_s, e.kind) for e in events] == [
        (1.0, EventKind.READY),
        (1.0, EventKind.START),
        (1.0, EventKind.READY),
        (2.0, EventKind.GENERATION),
        (3.0, EventKind.DRAIN),
    ]
    log.begin()
    assert read_events(tmp_path) == ()


@pytest.mark.parametrize("line", ["", "{", "[]", '{"time_s": 1, "kind": "other"}', "\x00"])
def test_a_line_that_is_not_an_event_is_left_out(line: str, tmp_path: Path) -> None:
    EventLog(tmp_path, clock=lambda: 1.0).replaces("decode")
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write(line)
    assert [event.subject for event in read_events(tmp_path)] == ["decode"]


def test_the_file_stays_small_and_keeps_the_newest_events(tmp_path: Path) -> None:
    times = iter(range(10 * MOST))
    log = EventLog(tmp_path, clock=lambda: float(next(times)))
    for _ in range(MOST + 10):
        log.replaces("decode")
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) <= MOST
    assert read_events(tmp_path)[-1].time_s == MOST + 9


def test_a_folder_that_cannot_be_written_loses_events_and_raises_nothing(tmp_path: Path) -> None:
    EventLog(tmp_path / "missing").observe(running())
    assert read_events(tmp_path / "missing") == ()
