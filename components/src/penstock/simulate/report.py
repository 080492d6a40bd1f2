"""Renders a study: a table with one row per deployment, the notes below it, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from penstock.simulate.accuracy import accuracy_line, row_intervals
from penstock.simulate.documents import (
    SCHEMA_VERSION,
    Figures,
    GraphFigures,
    Intervals,
    ScalingDocument,
    SimulatedGraph,
    SimulateDocument,
    SustainedLoadDocument,
    TriedScale,
    Workers,
    WorkingSetDocument,
)
from penstock.simulate.metrics import MAX_REFUSED, ReplayMetrics, Spread, spreads
from penstock.simulate.model import Replayable
from penstock.simulate.scaling import Scaling
from penstock.simulate.study import LONG, Row, SustainedLoad
from penstock.simulate.working_set import WorkingSet
from penstock.text.numbers import limit_text, significant
from penstock.workload.load import LoadedWorkload

DECODE_QUEUE, GPU_HOURS = "decode queue p99 (ms)", "GPU-h"
COLUMNS = (
    "graph",
    "GPUs",
    "TTFT p50 / p99 (ms)",
    "ITL p50 / p99 (ms)",
    "tok/s/user",
    "tok/s/GPU",
    "SLO met",
    "prefix hits",
    "prefill queue p99 (ms)",
    DECODE_QUEUE,
    GPU_HOURS,
    "GPU-h/Mtok",
)
COST = "cost/Mtok"  # after all others, if a price is set
# Columns of the table that fits 80 columns, and the format of their cells.
NARROW = {
    "GPUs": "{}",
    "TTFT p50 / p99 (ms)": "{} ms",
    "ITL p50 / p99 (ms)": "{} ms",
    "tok/s/GPU": "{}",
    "SLO met": "{}",
}
NARROW_WIDTH = 80
MAX_EVENTS = 24
NEVER_SIMULATED = (
    "the frontend's own work (templates, tokenization, HTTP)",
    "prefix-cache hits on the output of earlier turns of a conversation",
    "failures, slow workers, and slow first requests of an engine",
)
NOT_STEADY = " (not steady)"  # after the name of a graph
FEW_REQUESTS = 100  # below which the p99 is the maximum
FEW = " (few: the p99 is the maximum)"
FEW_OF_CLIENTS = " (few: TTFT depends on the burst of all clients at the start)"
WHOLE_EXPERTS = (
    "expert parallelism instead of tensor parallelism of the experts, which was not measured"
)


def arrival_of(loaded: LoadedWorkload) -> str:
    """`Poisson, 4 requests/s`."""
    workload = loaded.workload
    if workload.trace is not None:
        speed = "" if workload.trace.speed == 1 else f" at {workload.trace.speed:.2f} × speed"
        count = loaded.requests_without_output
        plural = "s" * (count != 1)
        left_out = f", {count} request{plural} without output left out" if count else ""
        return f"recorded arrivals{speed}{left_out}"
    arrival = workload.arrival
    assert arrival is not None
    if arrival.concurrency is not None:
        return f"concurrency {arrival.concurrency}"
    unit = "conversations/s" if workload.conversation else "requests/s"
    if arrival.ramp is not None:
        ramp = arrival.ramp
        start, end = significant(ramp.start), significant(ramp.end)
        return f"ramp from {start} to {end} {unit} in {limit_text(ramp.seconds)} s"
    if arrival.bursts is not None:
        bursts = arrival.bursts
        seconds, every = limit_text(bursts.seconds), limit_text(bursts.every)
        peak = f"{significant(bursts.peak)} {unit} for {seconds} s every {every} s"
        return f"bursts: {significant(bursts.rate)} {unit}, {peak}"
    name, rate = ("Poisson", arrival.poisson) if arrival.poisson else ("constant", arrival.constant)
    return f"{name}, {significant(rate or 0.0)} {unit}"


def title(loaded: LoadedWorkload, sustained: Sequence[SustainedLoad]) -> str:
    """`short-chat: Poisson, 4 requests/s`."""
    scale = "each graph at its highest scale" if sustained else arrival_of(loaded)
    return f"{loaded.name}: {scale}"


def marked(rows: Sequence[Row]) -> list[Row]:
    """With the names of those that have no steady state marked, for a table."""
    return [
        row if row.is_steady else row.renamed(f"{row.replayable.name}{NOT_STEADY}") for row in rows
    ]


def narrow_table(rows: Sequence[Row], most: int = NARROW_WIDTH) -> Iterator[str]:
    """The main columns, and the cost if a price is set; a graph whose name would make its line
    longer than ``most`` columns has a line of its own for it."""
    has_price = any(row.replayable.gpu_hour_price for row in rows)
    forms = {**NARROW, **({COST: "{}"} if has_price else {})}
    names = (*COLUMNS, COST)
    found = [dict(zip(names, _cells(row, has_price=has_price), strict=False)) for row in rows]
    heads = [column.removesuffix(" (ms)").replace(" / ", "/") for column in forms]
    lines = [("graph", heads)]
    for cells in found:
        texts = [form.format(cells[column]) for column, form in forms.items()]
        lines.append((cells["graph"], [text.replace(" / ", "/") for text in texts]))
    widths = [max(map(len, column)) for column in zip(*(texts for _, texts in lines), strict=True)]
    most -= sum(width + 2 for width in widths)
    margin = max(len(name) for name, _ in lines if len(name) <= max(most, len("graph")))
    for name, texts in lines:
        if len(name) > margin:
            yield name
        start = name if len(name) <= margin else ""
        padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
        yield "  ".join([start.ljust(margin), *padded]).rstrip()


def fitting_table(rows: Sequence[Row], width: int | None) -> list[str]:
    """All columns if they fit ``width`` columns, else the main ones. None: no limit."""
    lines = list(table(rows))
    fits = width is None or all(len(line) <= width for line in lines)
    return lines if fits else list(narrow_table(rows, max(width or 0, NARROW_WIDTH)))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """All columns that apply."""
    yield from aligned(table_cells(rows))


def table_cells(rows: Sequence[Row]) -> list[list[str]]:
    """The headings, then the cells of each row, in all columns that apply."""
    has_price = any(row.replayable.gpu_hour_price for row in rows)
    columns = [*COLUMNS, *([COST] if has_price else [])]
    lines = [columns, *(list(_cells(row, has_price=has_price)) for row in rows)]
    hidden = [DECODE_QUEUE] if all(len(row.replayable.pools) == 1 for row in rows) else []
    if not any(row.replayable.planner for row in rows):
        hidden.append(GPU_HOURS)
    for column in sorted(map(columns.index, hidden), reverse=True):
        lines = [[*line[:column], *line[column + 1 :]] for line in lines]
    return lines


def aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """The cells of each line in columns; the first line has the headings."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(w) for cell, w in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _cells(row: Row, *, has_price: bool) -> Iterator[str]:
    values = dict(spreads(row.metrics))

    def middle(metric: str, form: str = ".0f", factor: float = 1.0) -> str:
        return f"{values[metric].median * factor:{form}}" if metric in values else "-"

    yield row.replayable.name
    yield f"{row.gpus:.1f}" if row.replayable.planner else str(row.replayable.gpus)
    yield f"{middle('ttft_p50_ms')} / {middle('ttft_p99_ms')}"
    yield f"{middle('itl_p50_ms', '.1f')} / {middle('itl_p99_ms', '.1f')}"
    yield middle("user_rate")
    yield middle("gpu_rate")
    yield middle("goodput", ".1f", 100.0) + ("%" if row.goodput is not None else "")
    yield middle("prefix_hit_rate", ".0f", 100.0) + "%"
    yield middle("prefill_queue_p99_ms")
    yield middle("decode_queue_p99_ms")
    yield middle("gpu_hours", ".3f")
    yield middle("gpu_hours_per_million", ".3f")
    if has_price:
        price = row.replayable.gpu_hour_price
        yield middle("gpu_hours_per_million", ".3f", price) if price else "-"


def notes(rows: Sequence[Row], sets: Sequence[WorkingSet | None]) -> Iterator[str]:
    """Below the table: shapes, spreads, what is assumed and what is not simulated. ``sets``: the
    working set of each row."""
    for row, found in zip(rows, sets, strict=True):
        deployment = row.replayable
        yield f"{deployment.name}: {_shape(deployment)}, router {deployment.router.mode}"
        if deployment.slo:
            yield f"  SLO: {deployment.slo}"
        few = FEW_OF_CLIENTS if row.is_closed_loop else FEW
        few = few if row.requests < FEW_REQUESTS else ""
        yield f"  requests in the figures: {row.requests}{few}"
        if row.steadiness and not row.steadiness.is_steady:
            yield f"  not steady: {row.steadiness.reason}"
        if spread := _spread_line(row.metrics):
            yield f"  {spread}"
        if found:
            yield f"  working set: {found}"
        if unfinished := max(one.unfinished for one in row.metrics):
            yield f"  unfinished requests: {unfinished}"
        yield from (f"  {line}" for line in rejected(row))
        if (share := median(one.refused_share for one in row.metrics)) > MAX_REFUSED:
            yield f"  no p99: {share:.1%} of the requests have no latency"
        yield f"  {accuracy_line(row)}"
        yield from _scaling_lines(row)
        for what in assumed(row):
            yield f"  assumed: {what}"
        for what in deployment.not_simulated:
            yield f"  not simulated: {what}"
    if any(row.replayable.planner for row in rows):
        yield "all metrics include the start and the end of the workload"
    yield f"not simulated in any graph: {'; '.join(NEVER_SIMULATED)}"


def _shape(deployment: Replayable) -> str:
    planner = deployment.planner
    if planner is None:
        return f"{deployment.shape} on {deployment.gpu.name}"
    limit = "" if planner.max_gpus is None else f", at most {planner.max_gpus} GPUs"
    return f"initially {deployment.shape} on {deployment.gpu.name}{limit}"


def _scaling_lines(row: Row) -> Iterator[str]:
    """The planner's decisions for the first seed; the JSON has all seeds."""
    if row.replayable.planner is None:
        return
    which = f" (first of {len(row.scalings)} seeds)" if len(row.scalings) > 1 else ""
    events = row.scalings[0].events
    if not events:
        yield f"  scaling events{which}: none"
    for number, event in enumerate(events[:MAX_EVENTS]):
        head = f"  scaling events{which}:" if not number else "   "
        yield f"{head} {event.at_s:.0f} s {event.pool} {event.before} → {event.after}"
    if len(events) > MAX_EVENTS:
        yield f"    {len(events) - MAX_EVENTS} more events are in the output of --json"


def rejected(row: Row) -> Iterator[str]:
    """The requests that the engines refuse, and why; nothing if there are none."""
    limit = row.replayable.input_limit
    if too_long := row.too_long - row.over_input_limit:
        context = row.replayable.context
        yield f"rejected requests: {too_long} (input and output longer than {context} tokens)"
    if row.over_input_limit and limit:
        yield (
            f"rejected requests: {row.over_input_limit} (input longer than {limit.tokens} tokens, "
            f"the maximum per step of {limit.pool} without chunked prefill)"
        )


def assumed(row: Row) -> Iterator[str]:
    if any(result.get("whole_experts") for result in row.results):
        yield WHOLE_EXPERTS
    yield from (*row.replayable.assumed, *row.replayable.unscaled)


def _spread_line(metrics: Sequence[ReplayMetrics]) -> str:
    if len(metrics) < 2:
        return ""
    names = {"TTFT p99 (ms)": "ttft_p99_ms", "ITL p50 (ms)": "itl_p50_ms", "tok/s/GPU": "gpu_rate"}
    values = dict(spreads(metrics))
    ranges = (f"{what} {_range(values[name])}" for what, name in names.items() if name in values)
    return f"range over {len(metrics)} seeds: {', '.join(ranges)}"


def _range(spread: Spread) -> str:
    return f"{significant(spread.low, 4)} to {significant(spread.high, 4)}"


def sustained_load_line(load: SustainedLoad, loaded: LoadedWorkload) -> str:
    """`gpt-oss meets the SLO at scale × 3.00 (Poisson, 12 requests/s): 96.0% of requests`."""
    name = load.rows[0].replayable.name
    if load.highest is None:
        lowest = load.rows[0]
        share = lowest.goodput or 0.0
        arrival = arrival_of(loaded.scaled(lowest.scale))
        what = f"{name} misses the SLO even at scale × {significant(lowest.scale)} ({arrival})"
        return f"{what}: only {share:.1%} of requests meet it"
    arrival = arrival_of(loaded.scaled(load.highest.scale))
    share = load.highest.goodput or 0.0
    more = "" if load.lowest_failing else "; no higher scale was tried"
    what = f"{name} meets the SLO at scale × {load.highest.scale:.2f} ({arrival})"
    return f"{what}: {share:.1%} of requests{more}{_length(loaded, load.highest.scale)}"


def _length(loaded: LoadedWorkload, scale: float) -> str:
    """How the replay of a sustained load differs from one of `--scale`; empty if it does not."""
    once = loaded.at_scale(scale).workload.fixed_requests
    long = loaded.for_search(scale, repeat=LONG).workload.fixed_requests
    if not once or not long or once == long:
        return ""
    return (
        f". These figures are of a replay with {long:,} requests, in which a growing queue shows; "
        f"`--scale {scale:.2f}` replays {once:,}"
    )


def as_json(
    rows: Sequence[Row],
    loaded: LoadedWorkload,
    sustained: Sequence[SustainedLoad],
    sets: Sequence[WorkingSet | None],
) -> str:
    """``sets``: the working set of each row."""
    return SimulateDocument(
        schema_version=SCHEMA_VERSION,
        workload=loaded.workload,
        graphs=[
            SimulatedGraph(**_figures(row), working_set=working_set_document(found))
            for row, found in zip(rows, sets, strict=True)
        ],
        sustained=list(map(_sustained_document, sustained)),
        not_simulated=NEVER_SIMULATED,
    ).as_json()


def figures_of(row: Row) -> GraphFigures:
    return GraphFigures(**_figures(row))


def as_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [figures_of(row).model_dump(mode="json", warnings=False) for row in rows]


def working_set_document(found: WorkingSet | None) -> WorkingSetDocument | None:
    return WorkingSetDocument(**asdict(found), fits=found.fits) if found else None


def _sustained_document(load: SustainedLoad) -> SustainedLoadDocument:
    return SustainedLoadDocument(
        graph=load.rows[0].replayable.name,
        highest_scale=load.highest.scale if load.highest else None,
        lowest_failing_scale=load.lowest_failing.scale if load.lowest_failing else None,
        tried=[TriedScale(scale=row.scale, goodput=row.goodput) for row in load.rows],
    )


def _figures(row: Row) -> dict[str, Any]:
    """The fields of `GraphFigures`."""
    figures = dict(spreads(row.metrics))
    price = row.replayable.gpu_hour_price
    hours = figures.get("gpu_hours_per_million")
    return {
        "graph": row.replayable.name,
        "gpu": row.replayable.gpu.name,
        "gpus": row.gpus,
        "shape": row.replayable.shape,
        "slo": row.replayable.slo,
        "scale": row.scale,
        "seeds": len(row.metrics),
        "steadiness": row.steadiness,
        "is_steady": row.is_steady,
        "too_long": row.too_long,
        "over_input_limit": row.over_input_limit,
        "figures": Figures(**figures),
        "intervals": Intervals(**row_intervals(row)),
        "scaling": [_scaling_document(one, row) for one in row.scalings]
        if row.replayable.planner
        else None,
        "cost_per_million": hours.median * price if price and hours and hours.median else None,
        "assumed": list(assumed(row)),
        "calibration": row.replayable.calibration,
        "not_simulated": row.replayable.not_simulated,
    }


def _scaling_document(scaling: Scaling, row: Row) -> ScalingDocument:
    names = ("+".join(pool.names) for pool in row.replayable.pools)
    return ScalingDocument(
        events=list(scaling.events),
        gpus=scaling.gpus(row.replayable),
        workers={
            name: [
                Workers(at_s=step.at_ms / 1000, serving=step.serving, allocated=step.allocated)
                for step in steps
            ]
            for name, steps in zip(names, scaling.steps, strict=True)
        },
    )
