"""The summary of a capture, and its warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from penstock.capture.capture import NAMED, Captured, TimedRequest
from penstock.capture.record import RequestRecord
from penstock.capture.trace_file import BlockIds
from penstock.text.numbers import significant

ON_MOCKERS = "no engine ran: mockers simulated the output lengths and the cached tokens"
PAUSE_MS = 3600 * 1000.0  # a warning names a longer one


@dataclass(frozen=True, kw_only=True)
class Report:
    lines: list[str]  # the result
    warnings: list[str]
    engine_is_substitute: bool | None  # None: not known


def report(
    captured: Captured,
    requests: Sequence[TimedRequest],
    ids: BlockIds,
    *,
    engine_is_substitute: bool | None,
) -> Report:
    """``requests``: those of the trace, in order of arrival and with lengths."""
    return Report(
        lines=[ON_MOCKERS] * bool(engine_is_substitute) + _summary(captured, requests),
        warnings=_warnings(captured, requests, ids),
        engine_is_substitute=engine_is_substitute,
    )


def _summary(captured: Captured, requests: Sequence[TimedRequest]) -> list[str]:
    seconds = span_s(requests)
    rate = f", {significant(len(requests) / seconds)} requests/s" if seconds else ""
    records = [request.record for request in requests]
    inputs = [record.input_tokens or 0 for record in records]
    outputs = [record.output_tokens or 0 for record in records]
    rows = [
        ("requests", f"{len(requests):,} in {seconds:,.1f} s{rate}"),
        ("mean ISL", f"{fmean(inputs):,.0f} tokens"),
        ("mean OSL", f"{fmean(outputs):,.0f} tokens"),
    ]
    with_prefixes = sum(1 for record in records if record.prefixes)
    rows.append(("prefix hashes", f"{with_prefixes:,} requests"))
    if (share := recorded_hit_rate(records)) is not None:
        rows.append(("recorded prefix-cache hit rate", f"{share:.1%}"))
    rows += [("left out", f"{count:,} {kind}") for kind, count in captured.left_out.items()]
    return [f"{name + ':':<32}{value}" for name, value in rows]


def span_s(requests: Sequence[TimedRequest]) -> float:
    """Seconds between the first and the last of ``requests``, which are in order of arrival."""
    return (requests[-1].arrival_ms - requests[0].arrival_ms) / 1000


def recorded_hit_rate(records: Sequence[RequestRecord]) -> float | None:
    """The prefix-cache hit rate of the requests with a number of cached tokens, as a share; None
    if there are none."""
    known = [record for record in records if record.cached_tokens is not None]
    total = sum(record.input_tokens or 0 for record in known)
    return sum(record.cached_tokens or 0 for record in known) / total if total else None


def _warnings(captured: Captured, requests: Sequence[TimedRequest], ids: BlockIds) -> list[str]:
    found = [f"skipped: {problem}" for problem in captured.broken[:NAMED]]
    if (more := len(captured.broken) - NAMED) > 0:
        found.append(f"skipped: {more:,} more broken records")
    found += [f"{file}: ends inside a line, which is skipped" for file in captured.unfinished]
    for jump in captured.jumps[:NAMED]:
        way = "back" if jump.ms < 0 else "ahead"
        found.append(
            f"{jump.file}:{jump.line}: the clock jumps {abs(jump.ms) / 1000:,.0f} s {way}; "
            "the times after it are corrected"
        )
    if (more := len(captured.jumps) - NAMED) > 0:
        found.append(f"{more:,} more jumps of the clock are corrected")
    found += _pauses(requests)
    if ids.other_sizes:
        found.append(
            f"{ids.other_sizes:,} requests have another block size than the first, and get no "
            "prefix hashes"
        )
    return found


def _pauses(requests: Sequence[TimedRequest]) -> list[str]:
    gaps = [
        (later.arrival_ms - earlier.arrival_ms, index)
        for index, (earlier, later) in enumerate(pairwise(requests), 1)
    ]
    longest, index = max(gaps, default=(0.0, 0))
    if longest <= PAUSE_MS:
        return []
    hours = longest / 3_600_000
    return [f"no request arrives for {hours:,.1f} hours before request {index + 1:,}"]
