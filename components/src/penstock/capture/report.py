"""The report of a capture, and its warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from penstock.capture.capture import NAMED, Captured
from penstock.capture.record import RequestRecord
from penstock.capture.trace_file import BlockIds
from penstock.reports.model import Figure, Figures, Report, Section, State, Verdict
from penstock.text.numbers import significant

ON_MOCKERS = "no engine ran: mockers simulated the output lengths and the cached tokens"
PAUSE_MS = 3600 * 1000.0  # a warning names a longer one


def report_of(
    trace: Path,
    captured: Captured,
    requests: Sequence[RequestRecord],
    *,
    engine_is_substitute: bool | None,
) -> Report:
    """``requests``: those of the trace, in order of arrival and with lengths."""
    verdicts = [Verdict(State.INCOMPLETE, ON_MOCKERS)] if engine_is_substitute else []
    return Report(
        kind="Capture",
        title=str(trace),
        subtitle="recorded requests",
        verdicts=verdicts,
        sections=[Section("", [Figures(list(_figures(captured, requests)))])],
    )


def _figures(captured: Captured, requests: Sequence[RequestRecord]) -> Iterator[Figure]:
    seconds = span_s(requests)
    rate = f", {significant(len(requests) / seconds)} requests/s" if seconds else ""
    yield Figure("requests", f"{len(requests):,} in {seconds:,.1f} s{rate}")
    yield Figure("mean ISL", f"{fmean(each.input_tokens or 0 for each in requests):,.0f} tokens")
    yield Figure("mean OSL", f"{fmean(each.output_tokens or 0 for each in requests):,.0f} tokens")
    with_prefixes = sum(bool(request.prefixes) for request in requests)
    yield Figure("prefix hashes", f"{with_prefixes:,} requests")
    if (share := recorded_hit_rate(requests)) is not None:
        yield Figure("recorded prefix-cache hit rate", f"{share:.1%}")
    for kind, count in captured.left_out.items():
        yield Figure("left out", f"{count:,} {kind}")


def span_s(requests: Sequence[RequestRecord]) -> float:
    """Seconds between the first and the last of ``requests``, which are in order of arrival."""
    return (requests[-1].arrival_ms - requests[0].arrival_ms) / 1000


def recorded_hit_rate(records: Sequence[RequestRecord]) -> float | None:
    """The prefix-cache hit rate of the requests with a number of cached tokens, as a share; None
    if there are none."""
    known = [record for record in records if record.cached_tokens is not None]
    total = sum(record.input_tokens or 0 for record in known)
    return sum(record.cached_tokens or 0 for record in known) / total if total else None


def warnings_of(captured: Captured, requests: Sequence[RequestRecord], ids: BlockIds) -> list[str]:
    warnings = [f"skipped: {problem}" for problem in captured.broken[:NAMED]]
    if (more := len(captured.broken) - NAMED) > 0:
        warnings.append(f"skipped: {more:,} more broken records")
    warnings += [f"{file}: ends inside a line, which is skipped" for file in captured.unfinished]
    for jump in captured.jumps[:NAMED]:
        way = "back" if jump.ms < 0 else "ahead"
        warnings.append(
            f"{jump.file}:{jump.line}: the clock jumps {abs(jump.ms) / 1000:,.0f} s {way}; "
            "the times after it are corrected"
        )
    if (more := len(captured.jumps) - NAMED) > 0:
        warnings.append(f"{more:,} more jumps of the clock are corrected")
    warnings += _pauses(requests)
    if ids.other_sizes:
        warnings.append(
            f"{ids.other_sizes:,} requests have another block size than the first, and get no "
            "prefix hashes"
        )
    return warnings


def _pauses(requests: Sequence[RequestRecord]) -> list[str]:
    gaps = [
        (later.arrival_ms - earlier.arrival_ms, index)
        for index, (earlier, later) in enumerate(pairwise(requests), 1)
    ]
    longest, index = max(gaps, default=(0.0, 0))
    if longest <= PAUSE_MS:
        return []
    hours = longest / 3_600_000
    return [f"no request arrives for {hours:,.1f} hours before request {index + 1:,}"]
