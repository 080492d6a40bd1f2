"""Writes a trace in Mooncake's format, and a workload file that names it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.capture.capture import TimedRequest
from penstock.errors import InputError, Problem
from penstock.files import write_atomically
from penstock.workload.request import BLOCK_TOKENS


class _Numbers(dict[int, int]):
    """Gives each new key the next number; 100,000 requests have millions of keys."""

    def __missing__(self, key: int) -> int:
        number = self[key] = len(self)
        return number


class BlockIds:
    """Numbers prefixes in the order of their first appearance, so that no hash is in a trace."""

    def __init__(self) -> None:
        self._ids = _Numbers()
        self.block_tokens: int | None = None  # of the first request with prefixes
        self.other_sizes = 0  # requests whose blocks have another size; they get no ids

    def of(self, request: TimedRequest) -> list[int]:
        """The ids of a request's blocks; empty if the log has none."""
        record = request.record
        if not record.prefixes:
            return []
        self.block_tokens = self.block_tokens or record.block_tokens
        if record.block_tokens != self.block_tokens:
            self.other_sizes += 1
            return []
        return list(map(self._ids.__getitem__, record.prefixes))


def trace_line(request: TimedRequest, ids: BlockIds, start_ms: float) -> str:
    """One line of a trace; ``start_ms``: the Unix time of its timestamp 0.

    An earlier arrival gets 0, because a negative timestamp is no Mooncake trace.
    """
    row: dict[str, Any] = {
        "timestamp": _plain(max(request.arrival_ms - start_ms, 0.0)),
        "input_length": request.record.input_tokens,
        "output_length": request.record.output_tokens,
    }
    if blocks := ids.of(request):
        row["hash_ids"] = blocks
    return msgspec.json.encode(row).decode() + "\n"


def trace_text(requests: Sequence[TimedRequest], ids: BlockIds) -> str:
    """The whole trace; ``requests`` are in order of arrival."""
    start_ms = requests[0].arrival_ms
    return "".join(trace_line(request, ids, start_ms) for request in requests)


def _plain(ms: float) -> float | int:
    rounded = round(ms, 3)
    return int(rounded) if rounded.is_integer() else rounded


@dataclass(frozen=True, kw_only=True)
class TraceFiles:
    """The files of a trace: `NAME.jsonl`, the workload `NAME.yaml`, and on request the text of the
    requests, `NAME.requests.jsonl`."""

    trace: Path

    @property
    def workload(self) -> Path:
        return self.trace.with_suffix(".yaml")

    @property
    def requests(self) -> Path:
        return self.trace.with_suffix(".requests.jsonl")

    @property
    def partial(self) -> Path:
        """Gets each request of a live capture at once, in the order of their ends."""
        return self.trace.with_name(f"{self.trace.name}.partial")

    def write(self, requests: Sequence[TimedRequest]) -> BlockIds:
        """InputError if a file cannot be written."""
        ids = BlockIds()
        text = trace_text(requests, ids)
        for path, content in ((self.trace, text), (self.workload, self._workload_text(ids))):
            try:
                write_atomically(path, content)
            except OSError as error:
                message = f"cannot be written: {error.strerror}"
                fix = "Name a file in a folder in which you may write."
                raise InputError(Problem(file=str(path), message=message, fix=fix)) from None
        return ids

    def _workload_text(self, ids: BlockIds) -> str:
        file = json.dumps(self.trace.name, ensure_ascii=False)
        size = ids.block_tokens or BLOCK_TOKENS
        return (
            "# Written by `penstock capture`: recorded requests.\n"
            f"trace: {{format: mooncake, file: {file}, block_tokens: {size}}}\n"
        )
