"""The charts of a plan's HTML report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from penstock.plan.evidence import Replayed, binding_part, cost_per_million
from penstock.plan.margin import latencies, meets_slo
from penstock.plan.trials import Trial
from penstock.reports.charts import (
    BAD,
    FRAME,
    GOOD,
    Chart,
    Trace,
    axis,
    color_of,
    height_of,
    limit_line,
    line,
    names_axis,
    plain,
    points,
    rounded,
    shorter,
    wrapped,
)
from penstock.simulate.study import Row
from penstock.text.numbers import limit_text, significant

MARKS = {False: ("aggregated", "circle", 0), True: ("disaggregated", "square", 1)}
RING: Mapping[str, Any] = {"symbol": "circle-open", "size": 20, "color": "#cc79a7"}
LEAST_MS = 0.01  # on a logarithmic axis
MARGIN = 1.1  # of a limit above the highest point
HEIGHT = 440
Coordinate = Callable[[Trial], float]


def pareto_plot(replayed: Replayed, choice_name: str) -> Chart:
    """``choice_name``: what the choice is."""
    x, y = attrgetter("user_rate"), attrgetter("gpu_rate")
    hover = "%{x:,.4~g} tokens/s/user<br>%{y:,.4~g} tokens/s/GPU"
    front = replayed.front
    pareto = line("Pareto front", [*map(x, front)], [*map(y, front)], 2, hover)
    traces = [pareto, *_points(replayed, choice_name, x, y, hover)]
    itl_ms = replayed.request.slo.itl_ms
    if itl_ms is not None:
        top = MARGIN * max(map(y, replayed.trials))
        name = f"SLO: {significant(1000 / itl_ms, 4)} tokens/s/user (ITL {limit_text(itl_ms)} ms)"
        traces.append(limit_line(name, 1000 / itl_ms, top=top))
    layout = {
        **FRAME,
        "xaxis": axis("output tokens/s per user", rangemode="tozero"),
        "yaxis": axis("output tokens/s per GPU", rangemode="tozero"),
    }
    title = "Output tokens/s per user and per GPU"
    return Chart(title=title, data=traces, layout=layout, height=HEIGHT)


def cost_plot(replayed: Replayed, choice_name: str) -> Chart:
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
    hover = f"{percentile}: %{{x:,.4~g}} ms<br>%{{y:,.4~g}} {unit} per million output tokens"
    top = MARGIN * max(map(cost, replayed.trials))
    traces = [
        *_points(replayed, choice_name, latency, cost, hover),
        limit_line(f"SLO: {part} ≤ {limit_text(limit)} ms", limit, top=top),
    ]
    layout = {
        **FRAME,
        "xaxis": axis(f"{percentile} (ms)", type="log"),
        "yaxis": axis(f"{unit} per million tokens", rangemode="tozero"),
    }
    return Chart(
        title=f"Cost of output tokens, and {percentile}", data=traces, layout=layout, height=HEIGHT
    )


def sensitivity_plot(rows: Mapping[str, Row | str], replayed: Replayed) -> Chart:
    """``rows``: by what is changed. A bar has the color of a verdict, which also depends on
    `--confidence`."""
    request, attain = replayed.request, replayed.attain
    found = {name: row for name, row in rows.items() if isinstance(row, Row)}
    names = [plain(shorter(name)) for name in found]
    traces: list[Trace] = []
    for met, kind, color in ((True, "meets the SLO", GOOD), (False, "misses the SLO", BAD)):
        some = {
            number: (name, _percent(row))
            for number, (name, row) in enumerate(found.items())
            if meets_slo(row, request, attain) is met
        }
        if some:
            traces.append(_bars(kind, color, some))
    needed = limit_line(f"{attain * 100:.4g}% needed", attain * 100)
    traces.append({**needed, "y": [-0.5, len(names) - 0.5]})
    layout = {
        **FRAME,
        "xaxis": axis("requests that meet the SLO (%)", range=[0, 112]),
        "yaxis": names_axis(names),
        "barmode": "overlay",
    }
    title = "Requests that meet the SLO with other traffic"
    return Chart(title=title, data=traces, layout=layout, height=height_of(len(names)))


def _bars(kind: str, color: str, some: Mapping[int, tuple[str, float]]) -> Trace:
    shares = [share for _, share in some.values()]
    return {
        "type": "bar",
        "orientation": "h",
        "name": kind,
        "x": rounded(shares),
        "y": list(some),
        "text": [f"{share:.1f}%" for share in shares],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [wrapped(name) for name, _ in some.values()],
        "marker": {"color": color},
        "hovertemplate": f"%{{customdata}}: %{{x:.4~g}}% of requests<extra>{kind}</extra>",
    }


def _percent(row: Row) -> float:
    return 100 * (row.goodput or 0.0)


def _points(
    replayed: Replayed, choice_name: str, x: Coordinate, y: Coordinate, hover: str
) -> Iterator[Trace]:
    """A trace for each kind of graph and verdict, and the choice in a ring."""
    choice = replayed.choice
    yield points(choice_name, [x(choice)], [y(choice)], [str(choice.candidate)], hover, RING)
    for is_disaggregated, (kind, symbol, number) in MARKS.items():
        for met, verdict, end in ((True, "meets", ""), (False, "misses", "-open")):
            some = [
                trial
                for trial in replayed.trials
                if trial.candidate.is_disaggregated is is_disaggregated and trial.meets_slo is met
            ]
            if some:
                marker = {"color": color_of(number), "symbol": f"{symbol}{end}"}
                names = [str(trial.candidate) for trial in some]
                name = f"{kind}, {verdict} the SLO"
                yield points(name, [*map(x, some)], [*map(y, some)], names, hover, marker)
