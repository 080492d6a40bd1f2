"""Writes a trace in Mooncake's format, and a workload file that names it.

For logs without token counts, lengths are sampled from the distribution that the user states.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from penstock.capture.capture import Captured
from penstock.capture.record import RequestRecord
from penstock.errors import InputError
from penstock.files import write_atomically
from penstock.workload.model import Lengths
from penstock.workload.request import BLOCK_TOKENS
from penstock.workload.sample import sample_length

_FORM = re.compile(r"(?P<mean>[1-9]\d{0,8})(?::(?P<cv>\d(?:\.\d+)?))?")


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

    def of(self, request: RequestRecord) -> list[int]:
        """The ids of a request's blocks; empty if the log has none."""
        if not request.prefixes:
            return []
        self.block_tokens = self.block_tokens or request.block_tokens
        if request.block_tokens != self.block_tokens:
            self.other_sizes += 1
            return []
        return list(map(self._ids.__getitem__, request.prefixes))


def trace_line(request: RequestRecord, ids: BlockIds, start_ms: float) -> str:
    """One line of a trace; ``start_ms``: the Unix time of its timestamp 0.

    An earlier arrival gets 0, because a negative timestamp is no Mooncake trace.
    """
    row: dict[str, Any] = {
        "timestamp": _plain(max(request.arrival_ms - start_ms, 0.0)),
        "input_length": request.input_tokens,
        "output_length": request.output_tokens,
    }
    if blocks := ids.of(request):
        row["hash_ids"] = blocks
    return msgspec.json.encode(row).decode() + "\n"


def trace_text(requests: Sequence[RequestRecord], ids: BlockIds) -> str:
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

    def write(self, requests: Sequence[RequestRecord]) -> BlockIds:
        """InputError if a file cannot be written."""
        ids = BlockIds()
        text = trace_text(requests, ids)
        for path, content in ((self.trace, text), (self.workload, self._workload_text(ids))):
            try:
                write_atomically(path, content)
            except OSError as error:
                message = f"cannot be written: {error.strerror}"
                fix = "Name a file in a folder in which you may write."
                raise InputError(message, file=str(path), fix=fix) from None
        return ids

    def _workload_text(self, ids: BlockIds) -> str:
        file = json.dumps(self.trace.name, ensure_ascii=False)
        size = ids.block_tokens or BLOCK_TOKENS
        return (
            "# Written by `penstock capture`: recorded requests.\n"
            f"trace: {{format: mooncake, file: {file}, block_tokens: {size}}}\n"
        )


@dataclass(frozen=True, kw_only=True)
class LengthOption:
    input: Lengths | None
    output: Lengths | None
    seed: int = 0


def parse_lengths(text: str) -> Lengths:
    """`MEAN` or `MEAN:CV`, in tokens. ValueError for another form."""
    match = _FORM.fullmatch(text)
    cv = float(match["cv"] or 0) if match else 0.0
    if match is None or cv > 5:
        raise ValueError(text)
    return Lengths(mean=int(match["mean"]), cv=cv)


def with_lengths(captured: Captured, option: LengthOption) -> list[RequestRecord]:
    """The requests in order of arrival, with lengths where the log has none.

    Lengths in the log are kept. InputError if the log and ``option`` have none.
    """
    requests = captured.in_order()
    for name, lengths in (("input", option.input), ("output", option.output)):
        _require_lengths(name, lengths, requests)
    randoms = Random(f"input {option.seed}"), Random(f"output {option.seed}")
    return [_complete(request, option, *randoms) for request in requests]


def _complete(
    request: RequestRecord, option: LengthOption, random_in: Random, random_out: Random
) -> RequestRecord:
    if request.input_tokens and request.output_tokens is not None:
        return request
    output = request.output_tokens
    return replace(
        request,
        input_tokens=request.input_tokens or _length(option.input, random_in),
        output_tokens=_length(option.output, random_out) if output is None else output,
    )


def _require_lengths(name: str, lengths: Lengths | None, requests: Sequence[RequestRecord]) -> None:
    counts = [getattr(request, f"{name}_tokens") for request in requests]
    # A record has an input of at least one token, and may have an output of none.
    missing = sum(not count if name == "input" else count is None for count in counts)
    if lengths is None and missing:
        message = f"{missing:,} of {len(requests):,} requests have no number of {name} tokens"
        fix = f"State their mean and coefficient of variation, such as --{name}-tokens 1000:0.5"
        raise InputError(message, fix=fix)


def _length(lengths: Lengths | None, random: Random) -> int:
    assert lengths is not None  # `_require_lengths`
    return sample_length(lengths, random)
