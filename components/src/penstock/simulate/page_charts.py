"""Charts of simulated graphs: throughput, latencies by load, and what happens over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.graph.slo import Slo
from penstock.reports.charts import (
    FRAME,
    MOST_NAMES,
    SYMBOLS,
    Chart,
    Trace,
    axis,
    color_of,
    curve,
    horizontal_limit,
    limit_line,
    over_time,
    points,
    steps,
)
from penstock.simulate.accuracy import row_intervals
from penstock.simulate.study import Row, SustainedLoad
from penstock.text.numbers import limit_text, significant

MARGIN = 1.1  # of a limit above the highest point


def pareto(loads: Sequence[Sequence[Row]], slo: Slo, meets: Callable[[Row], bool | None]) -> Chart:
    """Output tokens/s per user and per GPU; a line for each graph, with a point for each load.
    Open marks miss the SLO."""
    known = [[row for row in rows if row.metrics[0].user_rate is not None] for rows in loads]
    traces = [_graph(rows, number, meets) for number, rows in enumerate(known) if rows]
    rates = [row.metrics[0].gpu_rate for rows in known for row in rows]
    if slo.itl_ms is not None and rates:
        rate = significant(1000 / slo.itl_ms, 4)
        name = f"SLO: {rate} tokens/s/user (ITL {limit_text(slo.itl_ms)} ms)"
        traces.append(limit_line(name, 1000 / slo.itl_ms, top=max(rates) * MARGIN))
    layout = {
        **FRAME,
        "xaxis": axis("output tokens/s per user (median)", rangemode="tozero"),
        "yaxis": axis("output tokens/s per GPU", rangemode="tozero"),
        "showlegend": len(traces) <= MOST_NAMES + 1,
    }
    title = "Output tokens/s per user and per GPU (open marks miss the SLO)"
    return Chart(title=title, data=traces, layout=layout, height=420)


def _graph(rows: Sequence[Row], number: int, meets: Callable[[Row], bool | None]) -> Trace:
    name = rows[0].replayable.name
    x = [row.metrics[0].user_rate or 0.0 for row in rows]
    y = [row.metrics[0].gpu_rate for row in rows]
    texts = [f"{name}, {_load(row)}" for row in rows]
    shape = SYMBOLS[number // 6 % len(SYMBOLS)]
    marker = {
        "color": color_of(number),
        "symbol": [f"{shape}-open" if meets(row) is False else shape for row in rows],
        "line": {"width": 2},
    }
    hover = "%{x:,.4~g} tokens/s/user<br>%{y:,.4~g} tokens/s/GPU"
    trace = points(name, x, y, texts, hover, marker)
    errors = _errors(rows)
    if len(rows) > 1:
        trace |= {"mode": "lines+markers", "line": {"color": color_of(number), "width": 1}}
    return trace | ({"error_x": errors} if errors else {})


def _load(row: Row) -> str:
    share = "" if row.goodput is None else f", {row.goodput:.1%} within the SLO"
    return f"{significant(row.metrics[0].request_rate)} requests/s{share}"


def _errors(rows: Sequence[Row]) -> Mapping[str, Any]:
    """The prediction interval of ITL, as one of tokens/s per user; empty without one."""
    found = [row_intervals(row).get("itl") for row in rows]
    if not any(found):
        return {}
    rates = [row.metrics[0].user_rate or 0.0 for row in rows]
    pairs = list(zip(rates, found, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [rate / one.low - rate if one else 0.0 for rate, one in pairs],
        "arrayminus": [rate - rate / one.high if one else 0.0 for rate, one in pairs],
        "thickness": 1,
    }


def load_charts(sustained: Sequence[SustainedLoad], slo: Slo) -> Iterator[Chart]:
    """TTFT and ITL by the request rate, of `--until-slo-breaks`."""
    if not sustained:
        return
    for title, metric, limit in (
        ("TTFT p99", "ttft_p99_ms", slo.ttft_ms),
        ("ITL p50", "itl_p50_ms", slo.itl_ms),
    ):
        traces = [_by_rate(metric, load, number) for number, load in enumerate(sustained)]
        rates = [rate for trace in traces for rate in trace["x"]]
        if limit is not None and rates:
            traces.append(horizontal_limit(f"SLO: ≤ {limit_text(limit)} ms", limit, 0, max(rates)))
        layout = {
            **FRAME,
            "xaxis": axis("requests/s", rangemode="tozero"),
            "yaxis": axis(f"{title} (ms)", type="log"),
        }
        yield Chart(title=f"{title} by request rate", data=traces, layout=layout, height=420)


def _by_rate(metric: str, load: SustainedLoad, number: int) -> Trace:
    found = sorted(
        (row.metrics[0].request_rate, max(0.01, value))
        for row in load.rows
        if (value := getattr(row.metrics[0], metric)) is not None
    )
    name = load.rows[0].replayable.name
    trace = curve(name, [rate for rate, _ in found], [ms for _, ms in found], number, "ms")
    hover = "%{y:,.4~g} ms at %{x:.4~g} requests/s<extra>%{meta}</extra>"
    return {**trace, "mode": "lines+markers", "hovertemplate": hover}


def time_charts(row: Row) -> Iterator[Chart]:
    """Requests, KV cache and workers of the first seed."""
    samples = row.results[0]["samples"]
    seconds = [sample["at_ms"] / 1000 for sample in samples]
    pools = {"decode": "+".join(row.replayable.pools[-1].names)}
    if len(row.replayable.pools) > 1:
        pools = {"prefill": "+".join(row.replayable.pools[0].names), **pools}
    if samples:
        kinds = [(pool, what) for pool in pools for what in ("running", "waiting")]
        requests = [
            steps(
                f"{pools[pool]}, {what}", seconds, [s[pool][what] for s in samples], n, "requests"
            )
            for n, (pool, what) in enumerate(kinds)
        ]
        yield over_time("Running and waiting requests", "requests", requests)
        cache = [
            steps(name, seconds, [100 * s[pool]["cache"] for s in samples], number, "%")
            for number, (pool, name) in enumerate(pools.items())
        ]
        yield over_time("KV cache in use", "% of the blocks", cache)
    if row.replayable.planner:
        yield _workers(row)


def _workers(row: Row) -> Chart:
    """Ready and allocated workers of each pool."""
    scaling = row.scalings[0]
    traces: list[Trace] = []
    for pool, changes in zip(row.replayable.pools, scaling.steps, strict=True):
        seconds = [*(step.at_ms / 1000 for step in changes), scaling.end_ms / 1000]
        name = "+".join(pool.names)
        serving = [float(step.serving) for step in changes]
        allocated = [float(step.allocated) for step in changes]
        for state, workers in (("ready", serving), ("allocated", allocated)):
            line = [*workers, workers[-1]]
            traces.append(steps(f"{name}, {state}", seconds, line, len(traces), "workers"))
    return over_time("Workers", "workers", traces)
