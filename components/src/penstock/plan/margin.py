"""Whether a graph meets the SLO up to the upper end of its prediction intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.graph.slo import Slo
from penstock.plan.request import PlanRequest
from penstock.simulate.accuracy import WIDEST, is_known, no_points, row_intervals
from penstock.simulate.interval import COVERAGE
from penstock.simulate.metrics import steady_requests
from penstock.simulate.study import Row
from penstock.simulate.window import ServedRequest, percentile
from penstock.text.numbers import significant

TTFT, ITL, END_TO_END = "TTFT", "ITL", "end-to-end latency"
PREDICTED = {"ttft": 1.0, "itl": 1.0}  # by the metric of an interval: factors of the prediction
# Of each part of the SLO: the metrics whose intervals widen it.
METRICS_OF = {TTFT: ("ttft",), ITL: ("itl",), END_TO_END: ("ttft", "itl")}


@dataclass(frozen=True, kw_only=True)
class Margin:
    """One part of the SLO, in milliseconds."""

    name: str
    limit: float
    predicted: float  # percentile of the requests that must meet the limit
    highest: float | None  # upper end of its interval; None: no measured points are near

    def counted(self, request: PlanRequest) -> float:
        """What must be within the limit: with `--confidence`, the upper end of the interval."""
        return self.highest if request.confidence and self.highest else self.predicted

    @property
    def is_met(self) -> bool:
        return self.highest is not None and self.highest <= self.limit


def latencies(
    row: Row, slo: Slo, share: float, factors: Mapping[str, float] = PREDICTED
) -> Iterator[tuple[str, float, float]]:
    """(name, limit in ms, percentile ``share`` in ms) of each part of the SLO, the median over the
    seeds. ``factors``: as in `part_values`."""
    seeds = [part_values(steady_requests(result), factors) for result in row.results]
    limits = {TTFT: slo.ttft_ms, ITL: slo.itl_ms, END_TO_END: slo.e2e_ms}
    for name, limit in limits.items():
        if limit is not None and all(name in values for values in seeds):
            yield name, limit, median(percentile(values[name], share) for values in seeds)


def part_values(
    requests: Sequence[ServedRequest], factors: Mapping[str, float]
) -> dict[str, list[float]]:
    """Part of the SLO → milliseconds of each request.

    ``factors``: of the time to first token, and of the time after it; a part without its factors is
    left out.
    """
    ttft, itl = factors.get("ttft"), factors.get("itl")
    values = {}
    if ttft is not None:
        values[TTFT] = [request.ttft_ms * ttft for request in requests]
    if itl is not None:
        values[ITL] = [(request.itl_ms or 0.0) * itl for request in requests]
    if ttft is not None and itl is not None:
        values[END_TO_END] = [
            request.ttft_ms * ttft + (request.ended_ms - request.first_ms) * itl
            for request in requests
        ]
    return values


def margins(row: Row, slo: Slo, share: float, coverage: float = COVERAGE) -> list[Margin]:
    """``coverage``: share of the measurements that the intervals include."""
    widened = latencies(row, slo, share, highest_factors(row, coverage))
    highest = {name: ms for name, _, ms in widened}
    return [
        Margin(name=name, limit=limit, predicted=predicted, highest=highest.get(name))
        for name, limit, predicted in latencies(row, slo, share)
    ]


def worst_margins(rows: Sequence[Row], request: PlanRequest, share: float) -> list[Margin]:
    """For each part of the SLO, the margin in the row in which it takes longest; in one without an
    interval, which could take longer still, if there is one."""
    every = (margins(row, request.slo, share, request.confidence or COVERAGE) for row in rows)
    return [
        max(part, key=lambda m: (m.highest is None, m.highest or m.predicted))
        for part in zip(*every, strict=True)
    ]


def meets_slo(row: Row, request: PlanRequest, share: float) -> bool:
    """Whether the row meets the SLO; with `--confidence`, also at the intervals' upper end."""
    if row.goodput is None or row.goodput < share:
        return False
    if request.confidence is None:
        return True
    return all(margin.is_met for margin in margins(row, request.slo, share, request.confidence))


def highest_factors(row: Row, coverage: float) -> dict[str, float]:
    """The upper ends of the intervals, as factors for `part_values`."""
    intervals = row_intervals(row, coverage)
    return {name: intervals[name].high for name in PREDICTED if name in intervals}


def shown_ms(value: float) -> str:
    """Four digits, and all digits from 1000 on."""
    return significant(value, 4) if value < 1000 else f"{value:.0f}"


def margin_line(row: Row, row_margins: Sequence[Margin], confidence: float | None = None) -> str:
    """`ITL up to 20.9 ms of 20 ms: the SLO may be missed within the 90% interval`.

    Without `--confidence`, the upper end of an interval that is not printed is not printed either.
    """
    coverage = confidence or COVERAGE
    intervals = row_intervals(row, coverage)
    if unknown := [margin.name for margin in row_margins if margin.highest is None]:
        if intervals:
            # Idle requests and load have their own intervals of TTFT.
            missing = [name.upper() for name in PREDICTED if name not in intervals] or unknown
            return f"not known: too few measured points of {' and '.join(missing)} at such a load"
        return f"not known: {no_points(row.replayable)}"
    wide = [name for name, entry in intervals.items() if not (confidence or is_known(entry))]
    known = [margin for margin in row_margins if not set(wide) & set(METRICS_OF[margin.name])]
    above = [margin for margin in known if not margin.is_met]
    if len(known) < len(row_margins) and not above:
        names = " and ".join(name.upper() for name in PREDICTED if name in wide)
        return f"not known: the {coverage:.0%} interval of {names} is wider than ×{WIDEST:g}"
    texts = ", ".join(
        f"{m.name} up to {shown_ms(m.highest or 0.0)} ms of {shown_ms(m.limit)} ms"
        for m in above or row_margins
    )
    verdict = "the SLO may be missed" if above else "the SLO is met"
    return f"{texts}: {verdict} within the {coverage:.0%} interval"
