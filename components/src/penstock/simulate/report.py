"""A study in words: one row a deployment, and what the figures do not say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from penstock.simulate.metrics import ReplayMetrics, Spread, spreads
from penstock.simulate.model import Replayable
from penstock.simulate.scaling import Scaling
from penstock.simulate.study import Row, SustainedLoad
from penstock.workload.load import LoadedWorkload

DECODE_QUEUE, GPU_HOURS = "decode queue p99", "GPU-h"
COLUMNS = (
    "graph",
    "GPUs",
    "TTFT p50 / p99",
    "ITL p50 / p99",
    "tok/s user",
    "tok/s GPU",
    "in SLO",
    "reuse",
    "first queue p99",
    DECODE_QUEUE,
    GPU_HOURS,
    "GPU-h/Mtok",
)
MOST_EVENTS = 24
# benchmarks/results/accuracy.json, to which a test holds them.
POINTS, ITL_ERROR, ITL_WITHIN, TTFT_SHORT_MS = 161, 0.08, 0.71, 45
KNOWN_ERROR = (
    f"known error, over {POINTS} measured points (gpt-oss-120b, TensorRT-LLM, a B200 or H200 "
    f"node): ITL {ITL_ERROR:.0%} on average, {ITL_WITHIN:.0%} of points within 10%; TTFT is some "
    f"{TTFT_SHORT_MS} ms too short, which the server's and the client's own work take"
)
ALWAYS_LEFT_OUT = (
    "the frontend's own work (templates, tokens, HTTP)",
    "answers kept in the cache for a conversation's next turn",
    "failures, stragglers and an engine's slow first requests",
)
WHOLE_EXPERTS = "experts are whole and spread over the GPUs; cut ones were not measured there"


def arrival_of(loaded: LoadedWorkload) -> str:
    """`Poisson, 4 requests/s`."""
    workload = loaded.workload
    if workload.trace is not None:
        speed = "" if workload.trace.speed == 1 else f", × {workload.trace.speed:.2f}"
        return f"recorded arrivals{speed}"
    arrival = workload.arrival
    assert arrival is not None
    if arrival.concurrency is not None:
        return f"{arrival.concurrency} users"
    if arrival.ramp is not None:
        ramp = arrival.ramp
        return f"a ramp from {ramp.start:.3g} to {ramp.end:.3g} requests/s in {ramp.seconds:g} s"
    if arrival.bursts is not None:
        bursts = arrival.bursts
        every = f"{bursts.seconds:g} s of every {bursts.every:g}"
        return f"{bursts.rate:.3g} requests/s, and {bursts.peak:.3g} in {every}"
    name, rate = ("Poisson", arrival.poisson) if arrival.poisson else ("even", arrival.constant)
    what = "conversations/s" if workload.conversation else "requests/s"
    return f"{name}, {rate:.3g} {what}"


def table(rows: Sequence[Row]) -> Iterator[str]:
    priced = any(row.replayable.gpu_hour_price for row in rows)
    columns = [*COLUMNS, *(["cost/Mtok"] if priced else [])]
    lines = [columns, *(list(_cells(row, priced=priced)) for row in rows)]
    hidden = [DECODE_QUEUE] if all(len(row.replayable.pools) == 1 for row in rows) else []
    if not any(row.replayable.planner for row in rows):
        hidden.append(GPU_HOURS)
    for at in sorted(map(columns.index, hidden), reverse=True):
        lines = [[*line[:at], *line[at + 1 :]] for line in lines]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(w) for cell, w in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _cells(row: Row, *, priced: bool) -> Iterator[str]:
    found = dict(spreads(row.metrics))

    def told(figure: str, form: str = ".0f", scale: float = 1.0) -> str:
        return f"{found[figure].median * scale:{form}}" if figure in found else "-"

    yield row.replayable.name
    yield f"{row.gpus:.1f}" if row.replayable.planner else str(row.replayable.gpus)
    yield f"{told('ttft_p50_ms')} / {told('ttft_p99_ms')} ms"
    yield f"{told('itl_p50_ms', '.1f')} / {told('itl_p99_ms', '.1f')} ms"
    yield told("user_rate")
    yield told("gpu_rate")
    yield told("goodput", ".1f", 100.0) + ("%" if row.goodput is not None else "")
    yield told("prefix_hit_rate", ".0f", 100.0) + "%"
    yield told("prefill_queue_p99_ms") + " ms"
    queued = told("decode_queue_p99_ms")
    yield queued if queued == "-" else f"{queued} ms"
    yield told("gpu_hours", ".3f")
    yield told("gpu_hours_per_million", ".3f")
    if priced:
        price = row.replayable.gpu_hour_price
        yield told("gpu_hours_per_million", ".3f", price) if price else "-"


def remarks(rows: Sequence[Row]) -> Iterator[str]:
    """Below the table: shapes, spreads, what is assumed and what is left out."""
    for row in rows:
        deployment = row.replayable
        yield f"{deployment.name}: {_shape(deployment)}, router {deployment.router.mode}"
        if deployment.slo:
            yield f"  SLO: {deployment.slo}"
        if text := _spread_words(row.metrics):
            yield f"  {text}"
        if unfinished := max(one.unfinished for one in row.metrics):
            yield f"  {unfinished} requests were not answered"
        yield from _refused(row)
        yield from _scaled(row)
        for what in assumed(row):
            yield f"  assumed: {what}"
        for what in deployment.left_out:
            yield f"  not simulated: {what}"
    if any(row.replayable.planner for row in rows):
        yield "figures are over the whole workload, its beginning and end too"
    yield f"not simulated in any: {'; '.join(ALWAYS_LEFT_OUT)}"
    yield KNOWN_ERROR


def _shape(deployment: Replayable) -> str:
    planner = deployment.planner
    if planner is None:
        return f"{deployment.shape} on {deployment.gpu.name}"
    most = "" if planner.most_gpus is None else f", at most {planner.most_gpus} GPUs"
    return f"from {deployment.shape} on {deployment.gpu.name}{most}"


def _scaled(row: Row) -> Iterator[str]:
    """What the planner did for the first seed; all of them are in the JSON."""
    if row.replayable.planner is None:
        return
    many = f", the first of {len(row.scalings)} seeds" if len(row.scalings) > 1 else ""
    events = row.scalings[0].events
    if not events:
        yield f"  scaled: never{many}"
    for number, event in enumerate(events[:MOST_EVENTS]):
        head = f"  scaled{many}:" if not number else "   "
        yield f"{head} {event.at_s:.0f} s {event.pool} {event.before} → {event.after}"
    if len(events) > MOST_EVENTS:
        yield f"    and {len(events) - MOST_EVENTS} times more (--json)"


def _refused(row: Row) -> Iterator[str]:
    step = row.replayable.prompt_limit
    if beyond := row.too_long - row.beyond_step:
        yield f"  {beyond} requests are longer than {row.replayable.context} tokens: refused"
    if row.beyond_step and step:
        yield (
            f"  {row.beyond_step} prompts are longer than {step.tokens} tokens, the step of "
            f"{step.pool}, which has no chunked prefill: refused"
        )


def assumed(row: Row) -> Iterator[str]:
    if any(answer.get("whole_experts") for answer in row.answers):
        yield WHOLE_EXPERTS
    yield from (*row.replayable.assumed, *row.replayable.unscaled)


def _spread_words(metrics: Sequence[ReplayMetrics]) -> str:
    if len(metrics) < 2:
        return ""
    figures = {"TTFT p99": "ttft_p99_ms", "ITL p50": "itl_p50_ms", "tok/s GPU": "gpu_rate"}
    found = dict(spreads(metrics))
    said = (f"{what} {_range(found[name])}" for what, name in figures.items() if name in found)
    return f"over {len(metrics)} seeds: {', '.join(said)}"


def _range(found: Spread) -> str:
    return f"{found.low:.4g} to {found.high:.4g}"


def sustained_load_line(held: SustainedLoad, loaded: LoadedWorkload) -> str:
    """`gpt-oss holds Poisson, 12 requests/s (× 3.00), 96% within the SLO`."""
    name = held.rows[0].replayable.name
    if held.most is None:
        lowest = held.rows[0]
        share = lowest.goodput or 0.0
        load = arrival_of(loaded.scaled(lowest.scale))
        return f"{name} does not hold even {load}: {share:.0%} of requests within the SLO"
    load = arrival_of(loaded.scaled(held.most.scale))
    share = held.most.goodput or 0.0
    more = "" if held.broken else "; more was not tried"
    return f"{name} holds {load} (× {held.most.scale:.2f}), {share:.0%} within the SLO{more}"


def as_json(rows: Sequence[Row], loaded: LoadedWorkload, held: Sequence[SustainedLoad] = ()) -> str:
    return json.dumps(
        {
            "workload": loaded.workload.model_dump(exclude_none=True),
            "graphs": as_rows(rows),
            "held": [_held_as_json(found) for found in held],
            "not_simulated": ALWAYS_LEFT_OUT,
            "known_error": KNOWN_ERROR,
        },
        indent=2,
    )


def as_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [_as_json(row) for row in rows]


def _held_as_json(held: SustainedLoad) -> dict[str, object]:
    """Loads as factors of the workload's."""
    return {
        "graph": held.rows[0].replayable.name,
        "holds": held.most.scale if held.most else None,
        "breaks": held.broken.scale if held.broken else None,
        "tried": [{"load": row.scale, "goodput": row.goodput} for row in held.rows],
    }


def _as_json(row: Row) -> dict[str, object]:
    figures = {name: asdict(found) for name, found in spreads(row.metrics)}
    price = row.replayable.gpu_hour_price
    hours = figures.get("gpu_hours_per_million", {}).get("median")
    return {
        "graph": row.replayable.name,
        "gpu": row.replayable.gpu.name,
        "gpus": row.gpus,
        "shape": row.replayable.shape,
        "slo": row.replayable.slo.model_dump(),
        "load": row.scale,
        "seeds": len(row.metrics),
        "too_long": row.too_long,
        "beyond_step": row.beyond_step,
        "figures": figures,
        "scaling": [_scaling_as_json(one, row) for one in row.scalings]
        if row.replayable.planner
        else None,
        "cost_per_million": hours * price if price and hours else None,
        "assumed": list(assumed(row)),
        "not_simulated": row.replayable.left_out,
    }


def _scaling_as_json(scaling: Scaling, row: Row) -> dict[str, object]:
    """Workers of each pool from a second on: those that answer, and all that hold GPUs."""
    names = ("+".join(pool.names) for pool in row.replayable.pools)
    return {
        "events": [asdict(event) for event in scaling.events],
        "gpus": scaling.gpus(row.replayable),
        "workers": {
            name: [{"at_s": s.at_ms / 1000, "serving": s.serving, "held": s.held} for s in steps]
            for name, steps in zip(names, scaling.steps, strict=True)
        },
    }
