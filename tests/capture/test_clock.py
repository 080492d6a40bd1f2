"""Jumps of the clock in a log: found with their line and size, and corrected."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.capture.logs import START_MS, Capture, entry, enveloped, record

HOUR = 3_600_000


def _arrivals(capture: Capture, source: Path, *options: str) -> list[float]:
    """Seconds. ``source``: a file or a pattern."""
    return [row["timestamp"] / 1000 for row in capture.rows(source, *options)]


def _log(folder: Path, jumps: dict[int, int], *, with_writer: bool) -> Path:
    """Ten records, one per second, with the clock moved by so many ms from these records on."""
    moved, lines = 0, []
    for number in range(10):
        moved += jumps.get(number, 0)
        row = record(number, at_ms=START_MS + 1000 * number + moved)
        lines.append(enveloped(row, 1000 * number) if with_writer else json.dumps(row) + "\n")
    path = folder / "log.jsonl"
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("ms", [-HOUR, -5000, 5000, HOUR, 48 * HOUR, -100 * HOUR])
def test_with_the_writers_clock_times_stay_as_they_were(
    tmp_path: Path, capture: Capture, ms: int
) -> None:
    log = _log(tmp_path, {4: ms}, with_writer=True)
    assert _arrivals(capture, log) == list(range(10))
    way = "back" if ms < 0 else "ahead"
    message = f"{log}:5: the clock jumps {abs(ms) // 1000:,} s {way}"
    assert message in capture.printed().err
    error = capture.fails(log, "-o", tmp_path / "s.jsonl", "--strict")
    assert f"{log}:5: the clock jumps {abs(ms) // 1000:,} s" in error


def test_one_line_with_a_wrong_time_keeps_its_place(tmp_path: Path, capture: Capture) -> None:
    log = _log(tmp_path, {4: 72 * HOUR, 5: -72 * HOUR}, with_writer=True)
    assert _arrivals(capture, log) == list(range(10))
    log = _log(tmp_path, {4: 72 * HOUR, 5: -72 * HOUR}, with_writer=False)
    capture.printed()
    assert _arrivals(capture, log) == [0, 1, 2, 3, 3, 5, 6, 7, 8, 9]
    assert capture.printed().err.count("jumps") == 1


def test_without_the_writers_clock_the_order_of_the_lines_is_kept(
    tmp_path: Path, capture: Capture
) -> None:
    log = _log(tmp_path, {4: -HOUR}, with_writer=False)
    assert _arrivals(capture, log) == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8]
    assert f"{log}:5: the clock jumps 3,599 s back" in capture.printed().err


def test_a_long_pause_is_kept_and_named(tmp_path: Path, capture: Capture) -> None:
    log = _log(tmp_path, {4: 3 * HOUR}, with_writer=False)
    assert _arrivals(capture, log)[4] == 4 + 3 * 3600
    err = capture.printed().err
    assert "no request arrives for 3.0 hours before request 5" in err
    assert "jumps" not in err


def test_a_restart_of_the_frontend_is_no_jump(capture: Capture) -> None:
    rows = [record(number) for number in range(6)]
    writer = [90_000, 91_000, 92_000, 10, 1010, 2010]
    log = capture.write(*map(enveloped, rows, writer))
    assert _arrivals(capture, log) == list(range(6))
    assert "jumps" not in capture.printed().err


def test_requests_that_end_in_another_order_than_they_began_are_no_jump(capture: Capture) -> None:
    slow = entry(1, duration=30_000)
    log = capture.write(entry(20), entry(25), slow, entry(31))
    lengths = ("--input-tokens", "100", "--output-tokens", "10")
    assert _arrivals(capture, log, *lengths) == [0, 19, 24, 30]
    assert "jumps" not in capture.printed().err


def _segments(folder: Path, *parts: Sequence[str]) -> Path:
    """Files of Dynamo's file sink that have the same path."""
    for number, lines in enumerate(parts):
        path = folder / f"trace.{number:06d}.jsonl.gz"
        path.write_bytes(gzip.compress("".join(lines).encode()))
    return folder / "trace.*.jsonl.gz"


def test_frontends_that_write_files_in_turn_are_no_jump(tmp_path: Path, capture: Capture) -> None:
    """The second one started 4 s later. Each has two files."""
    first = [enveloped(record(number), 1000 * number + 300) for number in range(0, 40, 2)]
    second = [enveloped(record(number), 1000 * (number - 4)) for number in range(5, 40, 2)]
    assert _arrivals(
        capture, _segments(tmp_path, first[:9], second[:9], second[9:], first[9:])
    ) == [
        *(0, 2, 4),
        *range(5, 40),
    ]
    assert "jumps" not in capture.printed().err


def test_a_jump_in_one_file_is_corrected_in_the_next_one_of_its_frontend(
    tmp_path: Path, capture: Capture
) -> None:
    times = [START_MS + 1000 * number - (HOUR if number >= 3 else 0) for number in range(8)]
    lines = [
        enveloped(record(number, at_ms=at_ms), 1000 * number) for number, at_ms in enumerate(times)
    ]
    other = [enveloped(record(10 + number), 1000 * number) for number in range(5)]
    arrivals = _arrivals(capture, _segments(tmp_path, lines[:5], other, lines[5:]))
    assert arrivals == [*range(8), *range(10, 15)]
    assert capture.printed().err.count("jumps") == 1
