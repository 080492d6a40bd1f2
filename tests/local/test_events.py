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


def found(before: LocalState | None, now: LocalState) -> list[tuple[str, str]]:
    return [(event.kind, event.subject) for event in changes(before, now, 0.0)]


def test_the_first_state_reports_the_graph_and_its_processes() -> None:
    assert found(None, running()) == [
        ("ready", "graph"),
        ("start", "decode.0"),
        ("ready", "decode.0"),
    ]


def test_equal_states_report_nothing() -> None:
    assert found(running(), running()) == []


def test_a_scale_up_reports_the_edit_and_the_new_process() -> None:
    new = replica(name="decode.1", pid=7, state=ReplicaState.STARTING)
    after = with_replicas(READY, new, desired_replicas={"decode": 2})
    assert found(running(), after) == [("scale", "decode"), ("start", "decode.1")]


def test_a_drain_ends_with_a_stop() -> None:
    draining = with_replicas(replica(state=ReplicaState.DRAINING))
    assert found(running(), draining) == [("drain", "decode.0")]
    assert found(draining, with_replicas()) == [("stop", "decode.0")]


def test_a_crash_is_followed_by_a_restart() -> None:
    crashed = with_replicas(replica(state=ReplicaState.CRASHED, exit_code=-9))
    again = with_replicas(replica(pid=8, restarts=1, state=ReplicaState.STARTING))
    (crash,) = changes(running(), crashed, 0.0)
    assert (crash.kind, crash.text) == ("crash", "exited with code -9")
    assert found(crashed, again) == [("restart", "decode.0")]


def test_a_crash_between_two_states_is_reported() -> None:
    again = with_replicas(replica(pid=8, restarts=1, state=ReplicaState.STARTING))
    assert found(running(), again) == [("crash", "decode.0"), ("restart", "decode.0")]


def test_a_failed_health_check_is_an_alert_until_the_process_is_healthy() -> None:
    ill = with_replicas(replica(state=ReplicaState.UNHEALTHY))
    assert found(running(), ill) == [("alert", "decode.0")]
    (event,) = changes(ill, running(), 0.0)
    assert (event.kind, event.text) == ("ready", "healthy again")


def test_a_rejected_edit_is_an_alert_once() -> None:
    rejected = with_fields(running(), rejected_edit=("decode.replicas: got -1",))
    assert found(running(), rejected) == [("alert", "graph")]
    assert found(rejected, rejected) == []


def test_a_replacement_next_to_its_predecessor_is_a_start() -> None:
    draining, new = replica(state=ReplicaState.DRAINING), replica(pid=9)
    before, after = with_replicas(READY, new), with_replicas(draining, new)
    assert found(running(), before) == [("start", "decode.0"), ("ready", "decode.0")]
    assert found(before, after) == [("drain", "decode.0")]


def test_a_pool_that_leaves_the_graph_is_reported() -> None:
    after = with_fields(running(), desired_replicas={})
    assert found(running(), after) == [("scale", "decode")]


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
