"""Reads recorded requests: Mooncake's JSON Lines and Azure's CSV.

Formats: kvcache-ai/Mooncake FAST25-release/traces; Azure/AzurePublicDataset LLM inference traces.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil
from typing import Any

from penstock.errors import InputError, Problem
from penstock.text.numbers import limit_text
from penstock.workload.model import Trace
from penstock.workload.request import BLOCK_TOKENS, Request

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
LONGEST_HEADING = 10_000  # characters of the first line of a CSV file
MAX_PROBLEMS = 5
LARGEST = 1e15  # number in a trace


class _LineError(Exception):
    """A problem with one line."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


@dataclass(frozen=True, kw_only=True)
class Recorded:
    requests: tuple[Request, ...]  # in order of arrival, the first one at 0 ms
    without_output: int  # requests that are left out


@lru_cache(maxsize=2)  # `tune` reads the same trace for each of many replays
def read_trace(trace: Trace, text: str, source: str, limit: int | None) -> Recorded:
    """The first ``limit`` requests of a trace that have output; ``source`` is its file, for
    messages.

    InputError with the number of every broken line, up to five.
    """
    read: Callable[[str], Iterator[tuple[int, Any]]]
    read, make = (_json_lines, _mooncake) if trace.format == "mooncake" else (_csv_rows, _azure)
    requests: list[Request] = []
    without_output = 0
    problems: list[Problem] = []
    for line, row in read(text):
        if len(requests) == limit or len(problems) == MAX_PROBLEMS:
            break
        try:
            if isinstance(row, _LineError):
                raise row
            at_ms, request = make(row, trace)
        except _LineError as error:
            problems.append(Problem(file=source, line=line, message=str(error), fix=error.fix))
            continue
        if request is None:
            without_output += 1
        else:
            requests.append(replace(request, at_ms=at_ms))
    if not problems and not requests:
        without = " with output tokens" if without_output else ""
        message = f"the trace has no request{without}"
        problems = [Problem(file=source, message=message, fix="Name another file.")]
    if problems:
        raise InputError(*problems)
    return Recorded(requests=_from_start(requests, trace.speed), without_output=without_output)


def _from_start(requests: Sequence[Request], speed: float) -> tuple[Request, ...]:
    arrivals = [request.at_ms or 0.0 for request in requests]
    first = min(arrivals)
    moved = (
        replace(request, at_ms=(at_ms - first) / speed)
        for at_ms, request in zip(arrivals, requests, strict=True)
    )
    return tuple(sorted(moved, key=lambda request: request.at_ms or 0.0))


def format_of(text: str) -> str | None:
    """The format of a text that is a trace, judged by its first line."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if set(AZURE) <= set(next(csv.reader([first[:LONGEST_HEADING]]), [])):
        return "azure"
    row = next(_json_lines(first), (1, None))[1]
    is_request = isinstance(row, dict) and "input_length" in row
    return "mooncake" if is_request else None


def _json_lines(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except json.JSONDecodeError as error:
            message = f"invalid JSON at column {error.colno}: {error.msg}"
            yield number, _LineError(message, "Correct or remove the line.")
        except (ValueError, RecursionError) as error:  # a number too large, or nesting too deep
            yield number, _LineError(f"invalid JSON: {error}", "Correct or remove the line.")


def _mooncake(row: Any, trace: Trace) -> tuple[float, Request | None]:
    if not isinstance(row, dict):
        raise _LineError("must be a JSON object", "Write one object per line.")
    at_ms = _number(row, "timestamp", least=0)
    tokens, output = _integer(row, "input_length", 1), _integer(row, "output_length", 0)
    ids = row.get("hash_ids", [])
    if not isinstance(ids, list) or not all(type(i) is int and i >= 0 for i in ids):
        raise _LineError("hash_ids must be a list of integers of at least 0", "Correct the line.")
    needed = ceil(tokens / trace.block_tokens)
    if ids and len(ids) != needed:
        length = f"{tokens} tokens in blocks of {trace.block_tokens}"
        message = f"{len(ids)} hash_ids instead of {needed} for {length}"
        raise _LineError(message, "Correct the line, or set `trace.block_tokens`.")
    blocks = _split(ids, tokens, trace.block_tokens)
    return at_ms, _request(tokens, output, blocks)


def _split(ids: list[int], tokens: int, block_tokens: int) -> tuple[int, ...]:
    """The trace's blocks as blocks of `BLOCK_TOKENS`; empty if it has no ids."""
    parts = block_tokens // BLOCK_TOKENS
    split = [block * parts + part + 1 for block in ids for part in range(parts)]
    return tuple(split[: ceil(tokens / BLOCK_TOKENS)])


def _request(tokens: int, output: int, blocks: tuple[int, ...]) -> Request | None:
    if not output:
        return None
    return Request(at_ms=0.0, input_tokens=tokens, output_tokens=output, blocks=blocks)


def _csv_rows(text: str) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text))
    if missing := [name for name in AZURE if name not in (reader.fieldnames or ())]:
        message = f"there is no column {', '.join(missing)}"
        yield 1, _LineError(message, f"Name the columns in the first line: {','.join(AZURE)}")
        return
    for row in reader:
        yield reader.line_num, row


def _azure(row: Any, _: Trace) -> tuple[float, Request | None]:
    try:
        # Python reads six of the seven digits of a second. All lines have the same time zone.
        at_s = datetime.fromisoformat(str(row["TIMESTAMP"]).strip()[:19]).replace(tzinfo=UTC)
        fraction = re.match(r".{19}(\.[0-9]+)?", str(row["TIMESTAMP"]).strip())
        at_ms = (at_s.timestamp() + float((fraction and fraction[1]) or 0)) * 1000
    except ValueError:
        message = f"TIMESTAMP {row['TIMESTAMP']!r} is not a time"
        raise _LineError(message, "Write it as 2023-11-16 18:15:46.6805900") from None
    counts = {name: _text_count(row[name], name) for name in AZURE[1:]}
    tokens = max(1, counts["ContextTokens"])
    return at_ms, _request(tokens, counts["GeneratedTokens"], ())


def _text_count(text: Any, name: str) -> int:
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,12}", text.strip()):
        raise _LineError(f"{name} is {text!r}, not an integer", "Correct the line.")
    return int(text)


def _number(row: dict[str, Any], name: str, least: int) -> float:
    value: Any = row.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value < LARGEST:
        raise _LineError(_mismatch("a number", name, value, least), "Correct the line.")
    return float(value)


def _integer(row: dict[str, Any], name: str, least: int) -> int:
    value = row.get(name)
    if type(value) is not int or not least <= value < LARGEST:
        raise _LineError(_mismatch("an integer", name, value, least), "Correct the line.")
    return value


def _mismatch(kind: str, name: str, value: Any, least: int) -> str:
    most = f"less than {limit_text(LARGEST)}"
    return f"{name} is {json.dumps(value)}, not {kind} of at least {least} and {most}"
