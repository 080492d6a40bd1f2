"""What penstock reads from AIPerf's records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.bench.records import Records, read_records
from tests.bench.hand_written import START_NS, record, request, write

FIRST, SECOND = ("r0", 0), ("r1", 0)
REQUESTS = {FIRST: request(0.0), SECOND: request(100.0)}


def read(folder: Path, *records: Any, is_scheduled: bool = True) -> Records:
    return read_records(
        write(folder / "records.jsonl", records), REQUESTS, is_scheduled=is_scheduled
    )


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


def test_a_single_token_has_no_itl(tmp_path: Path) -> None:
    file = write(tmp_path / "records.jsonl", [record(FIRST, 0.0, tokens=1, gaps_ms=None)])
    records = read_records(file, {FIRST: request(0.0, output_tokens=1)}, is_scheduled=True)
    assert records.served[FIRST].itl_ms is None
    assert records.chunk_gaps_ms == ()


def test_tokens_that_come_at_once_have_no_itl(tmp_path: Path) -> None:
    file = write(tmp_path / "records.jsonl", [record(FIRST, 0.0, ttft_ms=50.0, e2e_ms=50.0)])
    records = read_records(file, {FIRST: request(0.0)}, is_scheduled=True)
    assert records.served[FIRST].itl_ms is None
    assert records.served[FIRST].tokens == 11


def test_lateness_is_compared_with_the_request_that_was_sent_earliest(tmp_path: Path) -> None:
    records = read(tmp_path, record(FIRST, 7.0), record(SECOND, 105.0))
    assert records.start_ms == pytest.approx(START_NS / 1e6 + 5.0)
    assert records.late_ms == pytest.approx((0.0, 2.0))
    assert records.served[FIRST].arrived_ms == pytest.approx(2.0)


def test_a_fixed_concurrency_has_no_lateness(tmp_path: Path) -> None:
    records = read(tmp_path, record(FIRST, 7.0), record(SECOND, 500.0), is_scheduled=False)
    assert records.late_ms == ()
    assert records.served[SECOND].arrived_ms == pytest.approx(493.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"error": {"code": 429, "type": "Too Many Requests"}}, "HTTP 429"),
        ({"error": {"type": "ClientConnectorError"}}, "no connection"),
        (
            {"error": {"type": "ServerDisconnectedError"}},
            "the connection was closed before the response",
        ),
        ({"error": {"type": "ClientOSError"}}, "the connection was closed before the response"),
        (
            {"error": {"type": "ClientPayloadError"}},
            "the connection was closed during the response",
        ),
        ({"error": {"type": "TimeoutError"}}, "no complete response within --request-timeout"),
        ({"error": {"type": "NewError"}}, "NewError"),
        ({"error": {"message": "?"}}, "unknown error"),
        ({"tokens": None}, "the response ended without a count of its tokens (`usage`)"),
        ({"tokens": 10}, "the response had no tokens, or another number of tokens than requested"),
        (
            {"ttft_ms": None},
            "the response had no tokens, or another number of tokens than requested",
        ),
    ],
)
def test_reasons_of_failures(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    records = read(tmp_path, record(FIRST, 0.0), record(SECOND, 100.0, **values))
    assert list(records.served) == [FIRST]
    assert [(failure.reason, failure.sent_ms) for failure in records.failed] == [(reason, 100.0)]
    assert records.unsent == 0


def test_an_incomplete_last_line_and_foreign_requests_are_left_out(tmp_path: Path) -> None:
    file = write(tmp_path / "records.jsonl", [record(FIRST, 0.0), record(("warm-up", 0), 0.0)])
    with file.open("a") as written:
        written.write('{"metadata": {"conversation_id": "r1"')
    records = read_records(file, REQUESTS, is_scheduled=True)
    assert (list(records.served), records.failed, records.unsent) == ([FIRST], (), 1)


def test_without_a_file_nothing_was_sent(tmp_path: Path) -> None:
    records = read_records(tmp_path / "missing.jsonl", REQUESTS, is_scheduled=True)
    assert (records.served, records.failed, records.unsent, records.late_ms) == ({}, (), 2, ())


def test_turns_after_a_failed_turn_are_unsent(tmp_path: Path) -> None:
    keys = [("cA", 0), ("cA", 1), ("cA", 2), ("cB", 0)]
    requests = {(name, turn): request(None if turn else 0.0, session=name) for name, turn in keys}
    failed = {"code": 500, "type": "Internal Server Error"}
    records = [record(("cA", 0), 0.0, error=failed), record(("cB", 0), 1.0)]
    file = write(tmp_path / "records.jsonl", records)
    read = read_records(file, requests, is_scheduled=True)
    assert (list(read.served), len(read.failed), read.unsent) == ([("cB", 0)], 1, 2)
