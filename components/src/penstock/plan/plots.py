"""The plots of a plan's HTML page, as data that `simulate/html_report.py` draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from penstock.plan.evidence import Replayed, binding_part, cost_per_million
from penstock.plan.margin import latencies
from penstock.plan.trials import Trial
from penstock.simulate.html_report import Plot, Series, plot, series_of
from penstock.simulate.study import Row

MARKS = {False: ("aggregated", "o", "C0"), True: ("disaggregated", "s", "C1")}
RING = {"linestyle": "none", "marker": "o", "markersize": 13, "color": "k", "fillstyle": "none"}
FRONT = {"color": "0.4", "linewidth": 1, "zorder": 1}
LEAST_MS = 0.01  # on a logarithmic axis
MET, MISSED = "C0", "C1"
Coordinate = Callable[[Trial], float]


def pareto_plot(replayed: Replayed, choice_name: str) -> Plot:
    """``choice_name``: what the choice is."""
    x, y = attrgetter("user_rate"), attrgetter("gpu_rate")
    front = replayed.front
    line = series_of("Pareto front", [*map(x, front)], [*map(y, front)], FRONT)
    points = _points(replayed, choice_name, x, y)
    name = "Output tokens/s per user and per GPU"
    return plot(name, "output tokens/s per user", "output tokens/s per GPU", [line, *points])


def cost_plot(replayed: Replayed, choice_name: str) -> Plot:
    """Against the part of the SLO that has the least headroom in the choice."""
    request, attain = replayed.request, replayed.attain
    part, limit = binding_part(replayed.choice.row, request.slo, attain)
    price = request.gpu_hour_price
    unit = "cost" if price else "GPU-seconds"

    def latency(trial: Trial) -> float:
        took = {name: ms for name, _, ms in latencies(trial.row, request.slo, attain)}
        return max(LEAST_MS, took[part])

    def cost(trial: Trial) -> float:
        return cost_per_million(trial, price) or 0.0

    percentile = f"{part} p{attain * 100:.4g}"
    return plot(
        f"Cost and {percentile}",
        f"{percentile} (ms)",
        f"{unit} per million output tokens",
        [*_points(replayed, choice_name, latency, cost)],
        log="x",
        limit={"name": f"SLO: {limit:g} ms", "x": limit},
    )


def sensitivity_plot(rows: Mapping[str, Row | str], attain: float) -> Plot:
    """``rows``: by what is changed."""
    shares = {name: _percent(row) for name, row in rows.items() if isinstance(row, Row)}
    colors = [MET if share >= attain * 100 else MISSED for share in shares.values()]
    bars = series_of("", list(shares.values()), list(shares), {"color": colors})
    x = f"requests that meet the SLO (%); dashed line: {attain * 100:.4g}% required"
    limit = {"name": "", "x": attain * 100}
    return plot("Requests that meet the SLO", x, "", [bars], bars=True, limit=limit)


def _percent(row: Row) -> float:
    return 100 * (row.goodput or 0.0)


def _points(replayed: Replayed, choice_name: str, x: Coordinate, y: Coordinate) -> Iterator[Series]:
    """A series for each kind of graph and verdict, and the choice in a ring."""
    for is_disaggregated, (kind, marker, color) in MARKS.items():
        for meets_slo, verdict, fill in ((True, "meets", "full"), (False, "misses", "none")):
            some = [
                trial
                for trial in replayed.trials
                if trial.candidate.is_disaggregated is is_disaggregated
                and trial.meets_slo is meets_slo
            ]
            style = {"linestyle": "none", "marker": marker, "color": color, "fillstyle": fill}
            if some:
                name = f"{kind}, {verdict} the SLO"
                yield series_of(name, [*map(x, some)], [*map(y, some)], style)
    choice = replayed.choice
    yield series_of(choice_name, [x(choice)], [y(choice)], RING)
