"""Charts of simulated graphs: throughput, latencies by load, and what happens over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.graph.slo import Slo
from penstock.reports.charts import distributions, over_time, slo_limit, throughput_chart
from penstock.reports.model import TALL, Axis, Chart, Mark, Series
from penstock.reports.plotly import COLORS, SYMBOLS
from penstock.simulate.accuracy import is_known, row_intervals
from penstock.simulate.study import Row, SustainedLoad
from penstock.simulate.window import ServedRequest
from penstock.text.numbers import significant


def latency_charts(requests: Mapping[str, Sequence[ServedRequest]], slo: Slo) -> Iterator[Chart]:
    """Distributions of TTFT, ITL and end-to-end latency. ``requests``: by what they are of."""
    samples = {
        "TTFT": {name: [one.ttft_ms for one in served] for name, served in requests.items()},
        "ITL": {
            name: [one.itl_ms for one in served if one.itl_ms is not None]
            for name, served in requests.items()
        },
        "end to end": {name: [one.e2e_ms for one in served] for name, served in requests.items()},
    }
    limits = {"TTFT": slo.ttft_ms, "ITL": slo.itl_ms, "end to end": slo.e2e_ms}
    yield from distributions(samples, limits)


def pareto(loads: Sequence[Sequence[Row]], slo: Slo, meets: Callable[[Row], bool | None]) -> Chart:
    """A line for each graph, with a point for each load. Open marks miss the SLO."""
    known = [[row for row in rows if row.metrics[0].user_rate is not None] for rows in loads]
    series = [_graph(rows, number, meets) for number, rows in enumerate(known) if rows]
    return throughput_chart(series, slo.itl_ms, remark=" (open marks miss the SLO)")


def _graph(rows: Sequence[Row], number: int, meets: Callable[[Row], bool | None]) -> Series:
    name = rows[0].replayable.name
    symbol = SYMBOLS[number // len(COLORS) % len(SYMBOLS)]
    return Series(
        name=name,
        x=[row.metrics[0].user_rate or 0.0 for row in rows],
        y=[row.metrics[0].gpu_rate for row in rows],
        mark=Mark.DOTTED_LINE if len(rows) > 1 else Mark.POINTS,
        style=number,
        symbols=[f"{symbol}-open" if meets(row) is False else symbol for row in rows],
        texts=[f"{name}, {_load(row)}" for row in rows],
        errors=_errors(rows),
    )


def _load(row: Row) -> str:
    share = "" if row.goodput is None else f", {row.goodput:.1%} within the SLO"
    return f"{significant(row.metrics[0].request_rate)} requests/s{share}"


def _errors(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The prediction interval of ITL, as one of tokens/s per user; empty without one."""
    intervals = [row_intervals(row).get("itl") for row in rows]
    if not any(intervals):
        return []
    rates = [row.metrics[0].user_rate or 0.0 for row in rows]
    return [
        (rate - rate / interval.high, rate / interval.low - rate)
        if interval and is_known(interval)
        else (0.0, 0.0)
        for rate, interval in zip(rates, intervals, strict=True)
    ]


def load_charts(sustained: Sequence[SustainedLoad], slo: Slo) -> Iterator[Chart]:
    """TTFT and ITL by the request rate, of `--until-slo-breaks`."""
    metrics = {
        "TTFT p99": ("ttft_p99_ms", slo.ttft_ms),
        "ITL p50": ("itl_p50_ms", slo.itl_ms),
    }
    for title, (metric, limit) in metrics.items():
        if sustained:
            yield Chart(
                title=f"{title} by request rate",
                x=Axis("", "requests/s"),
                y=Axis(title, "ms", is_logarithmic=True),
                series=[_by_rate(metric, load) for load in sustained],
                limits=slo_limit(title, limit),
                height=TALL,
            )


def _by_rate(metric: str, load: SustainedLoad) -> Series:
    points = sorted(
        (row.metrics[0].request_rate, max(0.01, value))
        for row in load.rows
        if (value := getattr(row.metrics[0], metric)) is not None
    )
    return Series(
        name=load.rows[0].replayable.name,
        x=[rate for rate, _ in points],
        y=[ms for _, ms in points],
        mark=Mark.DOTTED_LINE,
        size=6,
    )


def time_charts(row: Row) -> Iterator[Chart]:
    """Requests, KV cache and workers of the first seed."""
    samples = row.results[0]["samples"]
    seconds = [sample["at_ms"] / 1000 for sample in samples]
    pools = {"decode": "+".join(row.replayable.pools[-1].names)}
    if len(row.replayable.pools) > 1:
        pools = {"prefill": "+".join(row.replayable.pools[0].names), **pools}
    if samples:
        counts = {
            f"{name}, {state}": [sample[pool][state] for sample in samples]
            for pool, name in pools.items()
            for state in ("running", "waiting")
        }
        shares = {name: [100 * s[pool]["cache"] for s in samples] for pool, name in pools.items()}
        yield over_time("Running and waiting requests", "requests", _steps(seconds, counts))
        yield over_time("KV cache in use", "% of the blocks", _steps(seconds, shares))
    if row.replayable.planner:
        yield over_time("Workers", "workers", list(_workers(row)))


def _steps(seconds: Sequence[float], values: Mapping[str, Sequence[float]]) -> list[Series]:
    return [Series(name=name, x=seconds, y=y, mark=Mark.STEPS) for name, y in values.items()]


def _workers(row: Row) -> Iterator[Series]:
    """Ready and allocated workers of each pool."""
    scaling = row.scalings[0]
    for pool, changes in zip(row.replayable.pools, scaling.steps, strict=True):
        seconds = [*(step.at_ms / 1000 for step in changes), scaling.end_ms / 1000]
        name = "+".join(pool.names)
        ready = [float(step.serving) for step in changes]
        allocated = [float(step.allocated) for step in changes]
        states = {f"{name}, ready": ready, f"{name}, allocated": allocated}
        yield from _steps(seconds, {state: [*n, n[-1]] for state, n in states.items()})
