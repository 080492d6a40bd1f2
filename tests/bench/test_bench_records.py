"""What penstock reads from AIPerf's records, also of a simulation with another speed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.records import Records, read_records
from penstock.bench.trace_file import Key
from penstock.workload import Request
from tests.bench.hand_written import START_NS, record, request, traffic_of

FIRST, SECOND = ("r0", 0), ("r1", 0)
REQUESTS = {FIRST: request(0.0), SECOND: request(100.0)}


def read(
    folder: Path, *records: Any, requests: Mapping[Key, Request] = REQUESTS, **more: Any
) -> Records:
    return read_records(traffic_of(folder, requests, records, **more))


def test_latencies_of_a_served_request(tmp_path: Path) -> None:
    records = read(tmp_path, record(FIRST, 0.0, cached=64), record(SECOND, 103.0, ttft_ms=25.0))
    first, second = records.served[FIRST], records.served[SECOND]
    assert (first.ttft_ms, first.itl_ms, first.e2e_ms) == (20.0, 10.0, 120.0)
    assert (first.input_tokens, first.cached_tokens, first.tokens) == (100, 64, 11)
    assert second.arrived_ms == pytest.approx(103.0)
    assert second.first_ms == pytest.approx(128.0)
    assert second.ended_ms == pytest.approx(223.0)
    assert second.cached_tokens == 0
    assert records.chunk_gaps_ms == (10.0,) * 20
    assert (records.failed, records.unsent) == ((), 0)


@pytest.mark.parametrize(
    ("tokens", "times"),
    [(1, {"gaps_ms": None}), (11, {"ttft_ms": 50.0, "e2e_ms": 50.0})],
)
def test_tokens_that_come_at_once_have_no_itl(
    tokens: int, times: dict[str, Any], tmp_path: Path
) -> None:
    requests = {FIRST: request(0.0, output_tokens=tokens)}
    records = read(tmp_path, record(FIRST, 0.0, tokens=tokens, **times), requests=requests)
    assert (records.served[FIRST].itl_ms, records.served[FIRST].tokens) == (None, tokens)
    assert len(records.chunk_gaps_ms) == tokens - 1


def test_lateness_is_compared_with_the_request_that_was_sent_earliest(tmp_path: Path) -> None:
    records = read(tmp_path, record(FIRST, 7.0), record(SECOND, 105.0))
    assert records.start_ms == pytest.approx(START_NS / 1e6 + 5.0)
    assert records.late_ms == pytest.approx((0.0, 2.0))
    assert records.served[FIRST].arrived_ms == pytest.approx(2.0)


def test_a_fixed_concurrency_has_no_lateness(tmp_path: Path) -> None:
    records = read(tmp_path, record(FIRST, 7.0), record(SECOND, 500.0), is_scheduled=False)
    assert records.late_ms == ()
    assert records.served[SECOND].arrived_ms == pytest.approx(493.0)


CLOSED = "the connection was closed before the response"
WRONG_TOKENS = "the response had no tokens, or another number of tokens than requested"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"error": {"code": 429, "type": "Too Many Requests"}}, "HTTP 429"),
        ({"error": {"type": "ClientConnectorError"}}, "no connection"),
        ({"error": {"type": "ServerDisconnectedError"}}, CLOSED),
        ({"error": {"type": "ClientOSError"}}, CLOSED),
        ({"error": {"type": "ClientPayloadError"}}, CLOSED.replace("before", "during")),
        ({"error": {"type": "TimeoutError"}}, "no complete response within --request-timeout"),
        ({"error": {"type": "NewError"}}, "NewError"),
        ({"error": {"message": "?"}}, "unknown error"),
        ({"tokens": None}, "the response ended without a count of its tokens (`usage`)"),
        ({"tokens": 10}, WRONG_TOKENS),
        ({"ttft_ms": None}, WRONG_TOKENS),
    ],
)
def test_reasons_of_failures(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    records = read(tmp_path, record(FIRST, 0.0), record(SECOND, 100.0, **values))
    assert list(records.served) == [FIRST]
    assert [(failure.reason, failure.sent_ms) for failure in records.failed] == [(reason, 100.0)]
    assert records.unsent == 0


def test_an_incomplete_last_line_and_foreign_requests_are_left_out(tmp_path: Path) -> None:
    lines = [record(FIRST, 0.0), record(("warm-up", 0), 0.0)]
    traffic = traffic_of(tmp_path, REQUESTS, lines)
    with traffic.records.open("a") as written:
        written.write('{"metadata": {"conversation_id": "r1"')
    records = read_records(traffic)
    assert (list(records.served), records.failed, records.unsent) == ([FIRST], (), 1)


def test_without_a_file_nothing_was_sent(tmp_path: Path) -> None:
    traffic = traffic_of(tmp_path, REQUESTS, [])
    traffic.records.unlink()
    records = read_records(traffic)
    assert (records.served, records.failed, records.unsent, records.late_ms) == ({}, (), 2, ())


def test_turns_after_a_failed_turn_are_unsent(tmp_path: Path) -> None:
    keys = [("cA", 0), ("cA", 1), ("cA", 2), ("cB", 0)]
    requests = {(name, turn): request(None if turn else 0.0, session=name) for name, turn in keys}
    failed = {"code": 500, "type": "Internal Server Error"}
    lines = [record(("cA", 0), 0.0, error=failed), record(("cB", 0), 1.0)]
    records = read(tmp_path, *lines, requests=requests)
    assert (list(records.served), len(records.failed), records.unsent) == ([("cB", 0)], 1, 2)


def test_times_of_a_simulation_at_half_speed_are_half_of_the_real_ones(tmp_path: Path) -> None:
    requests = {FIRST: request(0.0), SECOND: request(50.0)}
    lines = [record(FIRST, 0.0), record(SECOND, 102.0, ttft_ms=30.0)]
    simulated = read(tmp_path, *lines, requests=requests, speed=0.5)
    second = simulated.served[SECOND]
    assert (second.ttft_ms, second.e2e_ms, second.itl_ms) == (15.0, 60.0, 4.5)
    assert (second.tokens, second.first_output_ms) == (11, 15.0)
    assert second.arrived_ms == pytest.approx(51.0, abs=0.001)
    assert simulated.late_ms == pytest.approx((0.0, 1.0), abs=0.001)
    assert simulated.chunk_gaps_ms == (5.0,) * 20
    assert simulated.start_ms == pytest.approx(START_NS / 1e6)
    lines[1] = record(SECOND, 100.0, tokens=3)
    (failed,) = read(tmp_path, *lines, requests=requests, speed=0.5).failed
    assert failed.sent_ms == pytest.approx(50.0, abs=0.001)
