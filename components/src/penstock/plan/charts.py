"""Charts of the graphs that a plan has replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from penstock.plan.evidence import Replayed, cost_per_million
from penstock.plan.margin import latencies
from penstock.plan.trials import Trial
from penstock.reports.charts import slo_limit, throughput_chart
from penstock.reports.model import TALL, Axis, Chart, Mark, Series

MARKS = {False: ("aggregated", "circle", 0), True: ("disaggregated", "square", 1)}
LEAST_MS = 0.01  # on a logarithmic axis
Coordinate = Callable[[Trial], float]


def pareto_chart(search: Replayed, choice_name: str) -> Chart:
    """``choice_name``: what the choice is."""
    x, y = attrgetter("user_rate"), attrgetter("gpu_rate")
    front = search.front
    pareto = Series(name="Pareto front", x=[*map(x, front)], y=[*map(y, front)], style=2)
    series = [pareto, *_points(search, choice_name, x, y)]
    return throughput_chart(series, search.request.slo.itl_ms)


def cost_chart(search: Replayed, choice_name: str) -> Chart:
    """Against the part of the SLO that has the least headroom in the choice."""
    request, attain = search.request, search.attain
    price = request.gpu_hour_price
    part, limit_ms, _ = max(
        latencies(search.choice.row, request.slo, attain),
        key=lambda latency: latency[2] / latency[1],
    )

    def latency(trial: Trial) -> float:
        took = {part: ms for part, _, ms in latencies(trial.row, request.slo, attain)}
        return max(LEAST_MS, took[part])

    def cost(trial: Trial) -> float:
        return cost_per_million(trial, price) or 0.0

    percentile = f"{part.name} p{attain * 100:.4g}"
    return Chart(
        title=f"Cost of output tokens, and {percentile}",
        x=Axis(percentile, "ms", is_logarithmic=True),
        y=Axis("", f"{'cost' if price else 'GPU-seconds'} per million tokens"),
        series=list(_points(search, choice_name, latency, cost)),
        limits=slo_limit(part.name, limit_ms, is_vertical=True),
        height=TALL,
    )


def _points(search: Replayed, choice_name: str, x: Coordinate, y: Coordinate) -> Iterator[Series]:
    """Of each kind of graph and verdict, and the choice in a ring."""
    choice = search.choice
    yield Series(
        name=choice_name,
        x=[x(choice)],
        y=[y(choice)],
        mark=Mark.POINTS,
        style=3,
        symbols=["circle-open"],
        size=20,
        texts=[str(choice.candidate)],
    )
    for is_disaggregated, (kind, symbol, number) in MARKS.items():
        for met, verdict, end in ((True, "meets", ""), (False, "misses", "-open")):
            trials = [
                trial
                for trial in search.trials
                if trial.candidate.is_disaggregated is is_disaggregated and trial.meets_slo is met
            ]
            if trials:
                yield Series(
                    name=f"{kind}, {verdict} the SLO",
                    x=[*map(x, trials)],
                    y=[*map(y, trials)],
                    mark=Mark.POINTS,
                    style=number,
                    symbols=[f"{symbol}{end}"],
                    texts=[str(trial.candidate) for trial in trials],
                )
