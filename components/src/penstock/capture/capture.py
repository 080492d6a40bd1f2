"""Reads the logs of a capture into requests, in order of arrival.

A few broken lines are skipped and reported, because logs of production have some. `--strict` makes
each of them, and each jump of the clock, an error.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import os
import re
import stat
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from penstock.capture.log_formats import (
    is_access_log,
    is_dynamo_trace,
    is_own_message,
    other_kind,
    parse_dynamo,
    parse_envoy,
)
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
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".log", ".log.gz")  # in a folder
LONGEST_LINE = 64 * 2**20  # bytes; a record of a million tokens has about 1 MiB
_SEGMENT = re.compile(r"\.\d{6}(?=\.jsonl\.gz$)")  # of Dynamo's file sink
_READABLE = "Check the path and its permissions."


@dataclass(kw_only=True)
class Captured:
    """What was read so far."""

    requests: list[RequestRecord] = field(default_factory=list)
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    records: int = 0  # lines or messages, all kinds
    broken: list[Problem] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # files that end inside a line
    files: dict[str, FileFormat] = field(default_factory=dict)
    jumps: list[Jump] = field(default_factory=list)
    _keys: set[tuple[str, float]] = field(default_factory=set)

    def add(self, record: RequestRecord, clock: StreamClock, file: str, line: int) -> bool:
        """Append the request with the time of ``clock``; False for a duplicate, which the clock
        does not count: a log that is repeated is no jump.
        """
        key = (record.key, record.arrival_ms)
        if key in self._keys:
            self.left_out[LeftOut.DUPLICATE] += 1
            return False
        self._keys.add(key)
        shift_ms = clock.shift_ms(record, file, line)
        self.requests.append(replace(record, arrival_ms=record.arrival_ms + shift_ms))
        return True

    def in_order(self) -> list[RequestRecord]:
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
    raise InputError(message, file=str(path), line=1, fix=fix)


def _no_request(captured: Captured, sources: Sequence[str]) -> Problem:
    counts = "; ".join(f"{count:,} {kind}" for kind, count in captured.left_out.items())
    message = f"no request in {captured.records:,} records"
    if not captured.records:
        message = "has no complete line" if captured.unfinished else "is empty"
    message += f" ({counts})" if counts else ""
    return Problem(file=", ".join(sources), message=message, fix="Name a log with requests.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    number: int  # from 1
    text: bytes
    is_complete: bool = True  # False: the file ends inside the line


def find_files(sources: Sequence[str]) -> list[Path]:
    """The files that paths, patterns and folders name, each once, in the order of their names.

    InputError for a source without files.
    """
    files: dict[str, Path] = {}
    problems: list[Problem] = []
    for source in sources:
        paths, problem = _files_of(source)
        problems += [problem] if problem else []
        for path in paths:
            # Unlike Path.resolve, realpath raises nothing for a symbolic link to itself.
            files.setdefault(os.path.realpath(path), path)
    if problems:
        raise InputError(*problems)
    return list(files.values())


def _files_of(source: str) -> tuple[list[Path], Problem | None]:
    path = Path(source)
    if path.is_dir():
        try:
            files = sorted(p for p in path.iterdir() if p.name.endswith(SUFFIXES) and p.is_file())
        except OSError as error:
            return [], _unreadable(path, error)
        endings = ", ".join(SUFFIXES)
        message = f"the folder has no file that ends with {endings}"
        return files, None if files else Problem(file=source, message=message, fix="Name files.")
    if path.exists() and not path.is_file():
        # Each file is read twice: to detect its format, and for its requests.
        message, fix = "is not a regular file", "Write the log to a file, and name that file."
        return [], Problem(file=source, message=message, fix=fix)
    if path.exists() or path.is_symlink():
        return [path], None
    names = glob.glob(source, recursive=True)  # noqa: PTH207  # Path.glob needs a relative pattern
    files = sorted(path for path in map(Path, names) if path.is_file())
    message = "no file matches" if glob.has_magic(source) else "no such file"
    return files, None if files else Problem(file=source, message=message, fix="Check the path.")


def stream_of(path: Path) -> str:
    """Equal for the files of Dynamo's file sink that have the same path in its settings."""
    return str(path.with_name(_SEGMENT.sub("", path.name)))


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file that are not empty.

    A compressed file that is still being written ends with an incomplete line. InputError for a
    file that cannot be read.
    """
    number = 0
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise IsADirectoryError(0, "is a directory")
        with path.open("rb") as raw:
            is_compressed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_compressed else path.open("rb") as file:
            while text := file.readline(LONGEST_LINE):
                number += 1
                if number == 1:
                    text = text.removeprefix(codecs.BOM_UTF8)
                if stripped := text.strip():
                    is_complete = text.endswith(b"\n")
                    yield Line(number=number, text=stripped, is_complete=is_complete)
                if not text.endswith(b"\n") and len(text) == LONGEST_LINE:
                    message = f"is longer than {LONGEST_LINE // 2**20} MiB"
                    fix = "Name a log with one record per line."
                    raise InputError(message, file=str(path), line=number, fix=fix)
    except EOFError:
        yield Line(number=number + 1, text=b"", is_complete=False)
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f"is damaged after line {number}: {error}"
        fix = "Copy the file again, or remove it."
        raise InputError(message, file=str(path), fix=fix) from None
    except OSError as error:
        raise InputError(_unreadable(path, error)) from None


def _unreadable(path: Path, error: OSError) -> Problem:
    message = f"cannot be read: {error.strerror or error}"
    return Problem(file=str(path), message=message, fix=_READABLE)
