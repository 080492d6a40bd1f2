"""Whether a graph meets the SLO up to the upper end of its prediction intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pydantic import computed_field

from penstock.graph.slo import Slo
from penstock.plan.request import PlanRequest
from penstock.reports.json_document import Document
from penstock.simulate.accuracy import WIDEST, is_known, no_points, row_intervals
from penstock.simulate.interval import COVERAGE
from penstock.simulate.metrics import steady_requests
from penstock.simulate.study import Row
from penstock.simulate.window import ServedRequest, percentile
from penstock.text.numbers import significant

PREDICTED = {"ttft": 1.0, "itl": 1.0}  # by the metric of an interval: factors of the prediction
TTFT, ITL = "TTFT", "ITL"


@dataclass(frozen=True)
class Part:
    """A latency that an SLO can limit."""

    name: str
    field: str  # of `Slo`
    metrics: tuple[str, ...]  # whose factors change it
    ms: Callable[[ServedRequest, Mapping[str, float]], float]  # of a request, with these factors


PARTS = (
    Part(TTFT, "ttft_ms", ("ttft",), lambda r, factors: r.ttft_ms * factors["ttft"]),
    Part(ITL, "itl_ms", ("itl",), lambda r, factors: (r.itl_ms or 0.0) * factors["itl"]),
    Part(
        "end-to-end latency",
        "e2e_ms",
        ("ttft", "itl"),
        lambda r, factors: r.ttft_ms * factors["ttft"] + (r.ended_ms - r.first_ms) * factors["itl"],
    ),
)


class Margin(Document):
    """One latency of the SLO."""

    name: str
    """Latency that the SLO limits."""
    limit: float
    """Limit of the SLO in ms."""
    predicted: float
    """Predicted percentile of the requests that must meet the limit, in ms."""
    highest: float | None
    """Upper end of the interval of the prediction in ms; null without measured points near it."""

    def counted(self, request: PlanRequest) -> float:
        """What must be within the limit: with `--confidence`, the upper end of the interval."""
        return self.highest if request.confidence and self.highest else self.predicted

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_met(self) -> bool:
        """Whether the upper end of the interval is within the limit."""
        return self.highest is not None and self.highest <= self.limit


def latencies(
    row: Row, slo: Slo, share: float, factors: Mapping[str, float] = PREDICTED
) -> Iterator[tuple[Part, float, float]]:
    """(part, limit in ms, percentile ``share`` in ms) of each part of the SLO, the median over the
    seeds.

    ``factors``: of the time to first token, and of the time after it; a part without its factors is
    left out.
    """
    seeds = [steady_requests(result) for result in row.results]
    for part in PARTS:
        limit = getattr(slo, part.field)
        if limit is not None and factors.keys() >= set(part.metrics):
            times = ([part.ms(request, factors) for request in requests] for requests in seeds)
            yield part, limit, median(percentile(ms, share) for ms in times)


def margins(row: Row, slo: Slo, share: float, coverage: float = COVERAGE) -> list[Margin]:
    """``coverage``: share of the measurements that the intervals include."""
    widened = latencies(row, slo, share, highest_factors(row, coverage))
    highest = {part: ms for part, _, ms in widened}
    return [
        Margin(name=part.name, limit=limit, predicted=predicted, highest=highest.get(part))
        for part, limit, predicted in latencies(row, slo, share)
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
    """The upper ends of the intervals, as factors for `latencies`."""
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
    widened = {part.name for part in PARTS if set(wide) & set(part.metrics)}
    known = [margin for margin in row_margins if margin.name not in widened]
    above = [margin for margin in known if not margin.is_met]
    if len(known) < len(row_margins) and not above:
        names = " and ".join(name.upper() for name in PREDICTED if name in wide)
        width = f"wider than a factor of {WIDEST:g}"
        return f"not known: the {coverage:.0%} interval of {names} is {width}"
    texts = ", ".join(
        f"{m.name} up to {shown_ms(m.highest or 0.0)} ms of {shown_ms(m.limit)} ms"
        for m in above or row_margins
    )
    verdict = "the SLO may be missed" if above else "the SLO is met"
    return f"{texts}: {verdict} within the {coverage:.0%} interval"
