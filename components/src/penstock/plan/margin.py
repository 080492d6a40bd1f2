"""Whether a graph meets the SLO up to the upper end of its prediction intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.graph.slo import Slo
from penstock.simulate.accuracy import no_points, row_intervals
from penstock.simulate.interval import COVERAGE
from penstock.simulate.metrics import percentile, steady_requests
from penstock.simulate.study import Row

TTFT, ITL, END_TO_END = "TTFT", "ITL", "end-to-end latency"
# The intervals that widen a part of the SLO; the end-to-end latency consists of both.
WIDENED_BY = {TTFT: ("ttft",), ITL: ("itl",), END_TO_END: ("ttft", "itl")}


@dataclass(frozen=True, kw_only=True)
class Margin:
    """One part of the SLO, in milliseconds."""

    name: str
    limit: float
    predicted: float  # percentile of the requests that must meet the limit
    highest: float | None  # upper end of its interval; None: no measured points are near

    @property
    def is_met(self) -> bool:
        return self.highest is not None and self.highest <= self.limit


def latencies(row: Row, slo: Slo, share: float) -> Iterator[tuple[str, float, float]]:
    """(name, limit in ms, percentile ``share`` in ms) of each part of the SLO, the median over the
    seeds."""
    requests = [steady_requests(result) for result in row.results]
    values = {
        TTFT: (slo.ttft_ms, [[one.ttft_ms for one in some] for some in requests]),
        ITL: (slo.itl_ms, [[one.itl_ms or 0.0 for one in some] for some in requests]),
        END_TO_END: (
            slo.e2e_ms,
            [[one.ended_ms - one.arrived_ms for one in some] for some in requests],
        ),
    }
    for name, (limit, seeds) in values.items():
        if limit is not None:
            yield name, limit, median(percentile(some, share) for some in seeds)


def worst_latencies(
    rows: Sequence[Row], slo: Slo, share: float
) -> Iterator[tuple[str, float, float]]:
    """As `latencies`: of each part the highest of all ``rows``."""
    for part in zip(*(latencies(row, slo, share) for row in rows), strict=True):
        yield max(part, key=lambda one: one[2])


def margins(row: Row, slo: Slo, share: float, coverage: float = COVERAGE) -> list[Margin]:
    """``coverage``: share of the measurements that the intervals include."""
    factors = highest_factors(row, coverage)
    return [
        Margin(
            name=name,
            limit=limit,
            predicted=predicted,
            highest=predicted * factors[name] if name in factors else None,
        )
        for name, limit, predicted in latencies(row, slo, share)
    ]


def highest_factors(row: Row, coverage: float) -> dict[str, float]:
    """Part of the SLO → upper end of its interval, as a factor of the prediction."""
    intervals = row_intervals(row, coverage)
    return {
        name: max(intervals[one].high for one in needed)
        for name, needed in WIDENED_BY.items()
        if all(one in intervals for one in needed)
    }


def margin_line(row: Row, found: Sequence[Margin], coverage: float = COVERAGE) -> str:
    """`ITL up to 20.9 ms of 20 ms: above the SLO within the 90% interval`."""
    if any(one.highest is None for one in found):
        return f"not known: {no_points(row.replayable)}"
    above = [one for one in found if not one.is_met]
    shown = ", ".join(
        f"{m.name} up to {m.highest:.4g} ms of {m.limit:g} ms" for m in above or found
    )
    verdict = "the SLO may be missed" if above else "the SLO is met"
    return f"{shown}: {verdict} within the {coverage:.0%} interval"
