"""A study as one self-contained HTML file: the table, the notes and the plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.simulate.html_report import (
    Plot,
    Series,
    bullets,
    drawn,
    escaped,
    html_table,
    plot,
    series_of,
    side_by_side,
    write_html,
)
from penstock.simulate.metrics import served_requests
from penstock.simulate.report import marked, notes, sustained_load_line, table_cells, title
from penstock.simulate.study import Row, SustainedLoad
from penstock.simulate.window import percentile
from penstock.workload.load import LoadedWorkload

POINTS = 101
MARKS, STEPS = {"marker": "o", "markersize": 3}, {"drawstyle": "steps-post"}
SIMULATED = (
    "Simulated, not measured: Dynamo's router and schedulers in virtual time, with measured "
    "kernels."
)


def write_page(
    path: Path, rows: Sequence[Row], sustained: Sequence[SustainedLoad], loaded: LoadedWorkload
) -> None:
    """InputError if the file cannot be written."""
    parts = [
        f"<p>{escaped(SIMULATED)}",
        html_table(table_cells(marked(rows))),
        *(f"<p>{escaped(sustained_load_line(load, loaded))}" for load in sustained),
        bullets(notes(rows, loaded)),
        side_by_side(drawn(list(_plots(rows, sustained)))),
    ]
    write_html(path, title(loaded, sustained), "\n".join(parts))


def _plots(rows: Sequence[Row], sustained: Sequence[SustainedLoad]) -> Iterator[Plot]:
    if sustained:
        yield _by_rate("TTFT p99", "ttft_p99_ms", sustained)
        yield _by_rate("ITL p50", "itl_p50_ms", sustained)
    yield plot(
        "Distribution of ITL",
        "mean ITL of a request (ms)",
        "cumulative share of requests",
        [_distribution(row) for row in rows],
    )
    for row in rows:
        if row.replayable.planner:
            yield _workers(row)
        yield from _over_time(row)


def _by_rate(what: str, metric: str, sustained: Sequence[SustainedLoad]) -> Plot:
    series = []
    for load in sustained:
        found = [row.metrics[0] for row in load.rows if getattr(row.metrics[0], metric) is not None]
        rates = [one.request_rate for one in found]
        values = [max(0.01, getattr(one, metric)) for one in found]
        series.append(series_of(load.rows[0].replayable.name, rates, values, MARKS))
    return plot(f"{what} by request rate", "requests/s", "ms", series, log="y")


def _distribution(row: Row) -> Series:
    gaps = [one.itl_ms for one in served_requests(row.results[0]) if one.itl_ms is not None]
    shares = [number / (POINTS - 1) for number in range(POINTS)]
    x = [percentile(gaps, share) for share in shares]
    return series_of(row.replayable.name, x, shares, MARKS)


def _workers(row: Row) -> Plot:
    """Ready and allocated workers of the first seed over time."""
    scaling = row.scalings[0]
    series = []
    for pool, steps in zip(row.replayable.pools, scaling.steps, strict=True):
        seconds = [*(step.at_ms / 1000 for step in steps), scaling.end_ms / 1000]
        name = "+".join(pool.names)
        serving = [step.serving for step in steps]
        allocated = [step.allocated for step in steps]
        for state, workers in (("ready", serving), ("allocated", allocated)):
            line = [*workers, workers[-1]]
            series.append(series_of(f"{name}, {state}", seconds, line, STEPS))
    return plot(f"{row.replayable.name}: workers", "time (s)", "workers", series)


def _over_time(row: Row) -> Iterator[Plot]:
    samples = row.results[0]["samples"]
    seconds = [sample["at_ms"] / 1000 for sample in samples]
    pools = {"decode": "+".join(row.replayable.pools[-1].names)}
    if len(row.replayable.pools) > 1:
        pools = {"prefill": "+".join(row.replayable.pools[0].names), **pools}
    requests = [
        series_of(f"{name}, {what}", seconds, [s[pool][what] for s in samples], STEPS)
        for pool, name in pools.items()
        for what in ("running", "waiting")
    ]
    name = row.replayable.name
    yield plot(f"{name}: requests", "time (s)", "requests", requests)
    cache = [
        series_of(name, seconds, [100 * s[pool]["cache"] for s in samples], STEPS)
        for pool, name in pools.items()
    ]
    yield plot(f"{name}: KV cache in use", "time (s)", "%", cache)
