"""Reads the logs of a capture into requests, in order of arrival.

A few broken lines are skipped and reported, because logs of production have some. `--strict` makes
each of them, and each jump of the clock, an error.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from penstock.capture.access_log import is_access_log, is_own_message, other_kind, parse_envoy
from penstock.capture.dynamo_trace import is_dynamo_trace, parse_dynamo
from penstock.capture.log_files import find_files, read_lines, stream_of
from penstock.capture.record import (
    BrokenRecordError,
    Clocks,
    Jump,
    LeftOut,
    RequestRecord,
    StreamClock,
)
from penstock.errors import InputError, Problem

FileFormat = Literal["dynamo", "envoy"]
Parser = Callable[[bytes], RequestRecord | LeftOut]
PARSERS: dict[FileFormat, Parser] = {"dynamo": parse_dynamo, "envoy": parse_envoy}
SAMPLE_LINES = 100  # that decide the format of a file
SKIPPED_LINES, SKIPPED_SHARE = 3, 0.01  # of a file that may be broken: the larger of both
NAMED = 5  # problems that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRequest:
    """A record with its corrected arrival."""

    arrival_ms: float  # Unix time
    record: RequestRecord


@dataclass(kw_only=True)
class Captured:
    """What was read so far."""

    requests: list[TimedRequest] = field(default_factory=list)
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    records: int = 0  # lines or messages, all kinds
    broken: list[Problem] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # files that end inside a line
    files: dict[str, FileFormat] = field(default_factory=dict)
    jumps: list[Jump] = field(default_factory=list)
    _keys: set[tuple[str, float]] = field(default_factory=set)

    def add(
        self, record: RequestRecord, clock: StreamClock, file: str, line: int
    ) -> TimedRequest | None:
        """Append the request with the time of ``clock``; None for a duplicate, which the clock does
        not count: a log that is repeated is no jump.
        """
        key = (record.key, record.arrival_ms)
        if key in self._keys:
            self.left_out[LeftOut.DUPLICATE] += 1
            return None
        self._keys.add(key)
        shift_ms = clock.shift_ms(record, file, line)
        request = TimedRequest(arrival_ms=record.arrival_ms + shift_ms, record=record)
        self.requests.append(request)
        return request

    def in_order(self) -> list[TimedRequest]:
        """The requests by arrival, merged over all logs."""
        return sorted(self.requests, key=lambda request: request.arrival_ms)


def capture_files(
    sources: Sequence[str],
    *,
    file_format: FileFormat | None = None,
    strict: bool = False,
    on_other: Callable[[bytes], None] = lambda _: None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Captured:
    """The requests of all files that ``sources`` name.

    ``file_format``: None: detect it for each file. ``on_other``: gets each record of another event
    than the end of a request; BrokenRecordError makes it a broken line. ``on_progress``: gets the
    number of records about once a second. InputError for a file that cannot be read, has another
    format or too many broken lines, and with ``strict`` for any broken line or jump of the clock.
    """
    captured = Captured()
    clocks = Clocks()
    for path in find_files(sources):
        _read_file(path, captured, clocks, file_format, strict, on_other, on_progress)
    captured.jumps = clocks.jumps
    if strict and captured.jumps:
        raise InputError(*(jump_problem(jump) for jump in captured.jumps[:NAMED]))
    if not captured.requests:
        raise InputError(*captured.broken[:NAMED], _no_request(captured, sources))
    return captured


def jump_problem(jump: Jump) -> Problem:
    """An error with the size of the jump."""
    way = "backwards" if jump.ms < 0 else "ahead"
    message = f"the clock jumps {abs(jump.ms) / 1000:,.0f} s {way}"
    fix = "Omit --strict to correct the times, or split the file here."
    return Problem(file=jump.file, line=jump.line, message=message, fix=fix)


def _read_file(
    path: Path,
    captured: Captured,
    clocks: Clocks,
    file_format: FileFormat | None,
    strict: bool,
    on_other: Callable[[bytes], None],
    on_progress: Callable[[int], None],
) -> None:
    chosen = file_format or _detect(path)
    if chosen is None:
        if path.stat().st_size:
            captured.unfinished.append(str(path))
        return
    captured.files[str(path)] = chosen
    broken: list[Problem] = []
    clock: StreamClock | None = None
    lines = 0
    next_report = time.monotonic() + 1
    for line in read_lines(path):
        lines += 1
        captured.records += 1
        if not lines % 1000 and time.monotonic() > next_report:
            on_progress(captured.records)
            next_report = time.monotonic() + 1
        try:
            parsed = PARSERS[chosen](line.text)
            if parsed is LeftOut.OTHER_EVENT:
                on_other(line.text)
        except BrokenRecordError as error:
            if not line.is_complete:
                captured.unfinished.append(str(path))
                continue
            broken.append(Problem(file=str(path), line=line.number, message=str(error)))
            continue
        if isinstance(parsed, LeftOut):
            captured.left_out[parsed] += 1
            continue
        clock = clock or clocks.of(stream_of(path), parsed)
        captured.add(parsed, clock, str(path), line.number)
    _check_broken(broken, lines, strict)
    captured.broken += broken


def _check_broken(broken: list[Problem], lines: int, strict: bool) -> None:
    most = 0 if strict else max(SKIPPED_LINES, int(lines * SKIPPED_SHARE))
    if len(broken) <= most:
        return
    limit = "--strict allows none" if strict else f"at most {most:,} may be broken"
    fix = "Remove the lines." if strict else "Check that the file is the log that you mean."
    message = f"{len(broken):,} of {lines:,} lines are broken; {limit}"
    summary = Problem(file=broken[0].file, message=message, fix=fix)
    raise InputError(*broken[:NAMED], summary)


def _detect(path: Path) -> FileFormat | None:
    """The format of a file; None for one without a complete line. InputError for a file of another
    format."""
    lines = list(islice(read_lines(path), SAMPLE_LINES))
    complete = [line.text for line in lines if line.is_complete]
    sample = complete or [line.text for line in lines if line.text]
    texts = [text for text in sample if not is_own_message(text)]
    if any(map(is_dynamo_trace, texts)):
        return "dynamo"
    if any(map(is_access_log, texts)) or (sample and not texts):
        return "envoy"
    if not texts or (not complete and texts[0].startswith((b"{", b"["))):
        return None  # the first line is being written
    message, fix = other_kind(texts[0])
    raise InputError(Problem(file=str(path), line=1, message=message, fix=fix))


def _no_request(captured: Captured, sources: Sequence[str]) -> Problem:
    counts = "; ".join(f"{count:,} {kind}" for kind, count in captured.left_out.items())
    message = f"no request in {captured.records:,} records"
    if not captured.records:
        message = "has no complete line" if captured.unfinished else "is empty"
    message += f" ({counts})" if counts else ""
    return Problem(file=", ".join(sources), message=message, fix="Name a log with requests.")
