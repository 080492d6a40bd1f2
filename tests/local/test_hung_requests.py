"""The requests that a frontend took away from a worker, from its log."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace as with_fields

from penstock.local.events import EventKind, EventLog, read_events
from penstock.local.hung_requests import HungRequests
from penstock.manifests.deployment import Role
from tests.local.builders import running

(DECODE,) = running().replicas
# As a frontend of Dynamo 1.6.1 wrote it, in shorter form.
LINE = (
    "2026-12-01T10:42:41.487938Z  WARN http-request:kv_router.route_request: request_span: route "
    'request failed request.outcome="timeout" error.type="response_timeout" method=POST '
    "uri=/v1/chat/completions request_id=63f4674a dp_rank=0 phase=Decode worker_id={worker} "
    'request.attempt=0 otel.status_code="error" otel.status_description="response_timeout"\n'
)
OTHERS = (
    'request_span: migration retry scheduled migration.reason="response_timeout" '
    "migration.from_worker_id=7 request.attempt=1\n"
    'request_span: route request failed request.outcome="error" error.type="worker_unavailable" '
    "worker_id=7\n"
)


def follow(log: Path, *writes: str) -> list[list[str]]:
    """What is new after each write to the log."""
    frontend = with_fields(DECODE, role=Role.FRONTEND, log=str(log))
    hung = HungRequests()
    assert list(hung.new([frontend, DECODE])) == []
    found = []
    for text in writes:
        with log.open("a") as file:
            file.write(text)
        found.append(list(hung.new([frontend, DECODE])))
    return found


def test_each_request_that_was_taken_from_a_worker_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "frontend.log"
    log.write_text(LINE.format(worker=1))  # of an earlier run
    two = LINE.format(worker=255) + OTHERS + LINE.format(worker=16)
    assert follow(log, OTHERS, two, OTHERS) == [[], ["ff", "10"], []]


def test_a_line_counts_when_it_is_complete(tmp_path: Path) -> None:
    log = tmp_path / "frontend.log"
    log.touch()
    line = LINE.format(worker=255)
    assert follow(log, line[:-20], line[-20:]) == [[], ["ff"]]


def test_a_log_that_is_missing_or_was_emptied_has_none(tmp_path: Path) -> None:
    log = tmp_path / "frontend.log"
    assert follow(log, LINE.format(worker=1)) == [[]]  # followed from here on
    hung = HungRequests()
    frontend = with_fields(DECODE, role=Role.FRONTEND, log=str(log))
    list(hung.new([frontend]))
    log.write_text("")
    assert list(hung.new([frontend])) == []
    log.write_text(LINE.format(worker=9))
    assert list(hung.new([frontend])) == ["9"]


def test_the_event_names_the_worker_and_the_stage(tmp_path: Path) -> None:
    log = tmp_path / "frontend.log"
    log.touch()
    frontend = with_fields(DECODE, name="frontend.0", role=Role.FRONTEND, log=str(log))
    worker = with_fields(DECODE, worker_id="ff", role=Role.DECODE)
    state = with_fields(running(), replicas=(frontend, worker))
    events = EventLog(tmp_path)
    events.observe(state)
    log.write_text(LINE.format(worker=255) + LINE.format(worker=256))
    events.observe(state)
    hangs = [e for e in read_events(tmp_path) if e.kind is EventKind.HANG]
    assert [e.subject for e in hangs] == [worker.name]
    assert "stage: KV transfer or decode" in hangs[0].text
