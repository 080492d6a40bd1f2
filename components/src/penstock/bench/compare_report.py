"""A comparison of two endpoints as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from penstock.bench.compare import NAMES, Comparison
from penstock.bench.difference import INTERVAL, LEVEL, Difference, interval
from penstock.bench.documents import (
    SCHEMA_VERSION,
    ComparisonDocument,
    NamedWorkload,
    TargetDocument,
)
from penstock.bench.limits import LimitCheck
from penstock.bench.report import failures_line, on_mockers
from penstock.simulate.report import aligned, arrival_of

LABELS = {"ttft": "TTFT", "itl": "ITL", "e2e": "end-to-end"}
STATISTICS = {"mean": "geometric mean", "p50": "p50", "p90": "p90"}
MUCH = 0.01  # of the responses


def lines(found: Comparison, checked: Sequence[LimitCheck]) -> Iterator[str]:
    """``checked``: of the limits, as `limits.check_limits` returns it."""
    request = found.request
    yield f"{request.workload.name} ({arrival_of(request.workload)})"
    for name, endpoint in zip(NAMES, request.endpoints, strict=True):
        yield f"{name}: {endpoint}"
    yield from map(on_mockers, found.mocked)
    if found.interrupted:
        yield f"incomplete: {found.interrupted}"
    if found.differences:
        yield from aligned([HEADINGS, *map(cells, found.differences)])
        counted = f"{found.requests} requests in {found.pairs} pairs of slices"
        yield f"counted: {counted} after the warm-up, each served by both targets"
    for name, failures, unsent in zip(NAMES, found.failures, found.unsent, strict=True):
        if unsent:
            yield f"{name}: {unsent} requests were not sent, or have no record"
        if line := failures_line(failures):
            yield f"{name}: {line}"
    yield from cautions(found)
    yield from verdict_lines(found)
    for one in checked:
        yield f"--fail-if {one}"


HEADINGS = ("ms", "A", "B", "change from A to B", INTERVAL)


def cells(one: Difference) -> tuple[str, ...]:
    return (
        name_of(one.metric),
        f"{one.first_ms:.1f}",
        f"{one.second_ms:.1f}",
        f"{one.change:+.1%}",
        interval(one),
    )


def name_of(metric: str) -> str:
    latency, statistic = metric.split("_")
    return f"{LABELS[latency]} ({STATISTICS[statistic]})"


def cautions(found: Comparison) -> Iterator[str]:
    if found.distortion:
        yield f"this machine may have distorted the latencies: {found.distortion}"
    if found.skew_ms > found.request.slicing.gap_ms:
        seconds = f"{found.skew_ms / 1000:.1f} s"
        yield f"slices overlapped, because AIPerf started {seconds} later for one of the targets"
    elif found.overlapping > MUCH:
        what = f"{found.overlapping:.0%} of the responses ended during the other target's slice"
        yield f"{what}; if the targets share hardware, use a longer --gap"


def verdict_lines(found: Comparison) -> Iterator[str]:
    if not found.has_verdict:
        yield f"no verdict: {found.no_verdict}"
        return
    claims = [one for one in found.differences if one.claim]
    for one in claims:
        what = "higher" if one.claim > 0 else "lower"
        yield f"{name_of(one.metric)} of B is {abs(one.change):.1%} {what} than that of A"
    if not claims:
        yield "no significant difference"


def as_json(found: Comparison, checked: Sequence[LimitCheck]) -> str:
    request = found.request
    targets = zip(NAMES, request.endpoints, found.failures, found.unsent, strict=True)
    return ComparisonDocument(
        schema_version=SCHEMA_VERSION,
        kind="comparison",
        client=found.client,
        seed=request.seed,
        workload=NamedWorkload.of(request.workload.name, request.workload.workload),
        targets={
            name: TargetDocument(**asdict(endpoint), failures=failures, unsent=unsent)
            for name, endpoint, failures, unsent in targets
        },
        slicing=request.slicing,
        pairs=found.pairs,
        requests=found.requests,
        level=LEVEL,
        has_verdict=found.has_verdict,
        differences=list(found.differences),
        limits=list(checked),
        skew_ms=found.skew_ms,
        overlapping=found.overlapping,
        distortion=found.distortion or None,
        interrupted=found.interrupted or None,
    ).as_json()
