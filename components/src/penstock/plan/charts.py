"""Charts of the graphs that a plan has replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from penstock.plan.evidence import Replayed, cost_per_million
from penstock.plan.margin import latencies, meets_slo
from penstock.plan.trials import Trial
from penstock.reports.charts import slo_limit, throughput_chart
from penstock.reports.model import BAD, GOOD, TALL, Axis, Chart, Limit, Mark, Series, height_of
from penstock.simulate.study import Row

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


def sensitivity_chart(rows: Mapping[str, Row | str], search: Replayed) -> Chart:
    """``rows``: by what is changed. A bar has the color of a verdict, which also depends on
    `--confidence`."""
    request, attain = search.request, search.attain
    replays = {name: row for name, row in rows.items() if isinstance(row, Row)}
    series = []
    for met, kind, color in ((True, "meets the SLO", GOOD), (False, "misses the SLO", BAD)):
        shares = {
            number: (name, 100 * (row.goodput or 0.0))
            for number, (name, row) in enumerate(replays.items())
            if meets_slo(row, request, attain) is met
        }
        if shares:
            bars = Series(
                name=kind,
                x=[share for _, share in shares.values()],
                y=list(shares),
                mark=Mark.ROWS,
                color=color,
                texts=[name for name, _ in shares.values()],
                labels=[f"{share:.1f}%" for _, share in shares.values()],
            )
            series.append(bars)
    needed = Limit(name=f"{attain * 100:.4g}% needed", at=attain * 100, is_vertical=True)
    return Chart(
        title="Requests that meet the SLO with other traffic",
        x=Axis("requests that meet the SLO", "%", limits=(0, 112)),
        y=Axis("", names=list(replays)),
        series=series,
        limits=[needed],
        height=height_of(len(replays)),
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
