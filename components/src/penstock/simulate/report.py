"""The report of `penstock simulate`, and the table and the notes that `plan` shows too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from penstock.graph.slo import Slo
from penstock.reports.model import (
    Chart,
    Figure,
    Figures,
    Foldable,
    Notes,
    Part,
    Report,
    Section,
    State,
    Table,
    Verdict,
    notes_of,
)
from penstock.simulate.accuracy import METRICS, accuracy_line, row_intervals, span
from penstock.simulate.charts import latency_charts, load_charts, pareto, time_charts
from penstock.simulate.interval import COVERAGE
from penstock.simulate.metrics import (
    MAX_REFUSED,
    ReplayMetrics,
    Spread,
    served_requests,
    spreads,
    steady_requests,
)
from penstock.simulate.model import Replayable
from penstock.simulate.study import LONG, Row, SustainedLoad
from penstock.simulate.window import ServedRequest
from penstock.simulate.working_set import WorkingSet
from penstock.text.numbers import count_of, limit_text, significant
from penstock.workload.load import LoadedWorkload
from penstock.workload.model import Workload

DECODE_QUEUE, GPU_HOURS = "decode queue p99 (ms)", "GPU-h"
COST = "cost/Mtok"  # only if a price is set
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
    COST,
)
MAIN = ("GPUs", "TTFT p50 / p99 (ms)", "ITL p50 / p99 (ms)", "tok/s/GPU", "SLO met")
MAX_EVENTS = 24
SIMULATED = "simulated, not measured"
METHOD = "simulated: Dynamo's router and schedulers in virtual time, with measured kernels"
NO_SLO = "no SLO: name one with --ttft, --itl or --e2e"
MOST_VERDICTS = 4  # graphs with a verdict of their own
MOST_OPEN = 2  # graphs whose charts over time are shown without a click
NEVER_SIMULATED = (
    "queues in the frontends",
    "failures, slow workers, and slow first requests of an engine",
)
OUTPUT_HITS = "prefix-cache hits on the output of earlier turns"
NOT_STEADY, OVERLOADED = " (not steady)", " (frontends overloaded)"  # after the name of a graph
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
        left_out = f", {count_of(count, 'request')} without output left out" if count else ""
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
    if (ladder := arrival.ladder) is not None:
        rates = ", ".join(map(significant, ladder.rates))
        pause = f", with pauses of {limit_text(ladder.pause)} s" if ladder.pause else ""
        return f"ladder: {rates} {unit} for {limit_text(ladder.seconds)} s each{pause}"
    name, rate = ("Poisson", arrival.poisson) if arrival.poisson else ("constant", arrival.constant)
    return f"{name}, {significant(rate or 0.0)} {unit}"


def never_simulated(workload: Workload) -> tuple[str, ...]:
    """What is not simulated in any graph."""
    conversation = workload.conversation
    if conversation is not None and not conversation.cached_output:
        return *NEVER_SIMULATED, f"{OUTPUT_HITS} (`conversation.cached_output` is not set)"
    return NEVER_SIMULATED if workload.trace is None else (*NEVER_SIMULATED, OUTPUT_HITS)


def never_line(workload: Workload) -> str:
    return f"not simulated in any graph: {'; '.join(never_simulated(workload))}"


def title(loaded: LoadedWorkload, sustained: Sequence[SustainedLoad]) -> str:
    """`short-chat: Poisson, 4 requests/s`."""
    scale = "each graph at its highest scale" if sustained else arrival_of(loaded)
    return f"{loaded.name}: {scale}"


def marked(rows: Sequence[Row]) -> list[Row]:
    """With the names of those that have no steady state, or whose frontends are overloaded, marked,
    for a table."""
    marks = [
        NOT_STEADY * (not row.is_steady) + OVERLOADED * row.overloads_frontends for row in rows
    ]
    return [
        row.renamed(f"{row.replayable.name}{mark}") for row, mark in zip(rows, marks, strict=True)
    ]


def table_of(rows: Sequence[Row], more: Mapping[str, Sequence[str]] | None = None) -> Table:
    """All columns that apply. ``more``: columns after the name of the graph, by their heading."""
    has_price = any(row.replayable.gpu_hour_price for row in rows)
    hidden = set() if has_price else {COST}
    if all(len(row.replayable.pools) == 1 for row in rows):
        hidden.add(DECODE_QUEUE)
    if not any(row.replayable.planner for row in rows):
        hidden.add(GPU_HOURS)
    cells = [dict(zip(COLUMNS, _cells(row), strict=True)) for row in rows]
    first, *columns = [column for column in COLUMNS if column not in hidden]
    more = more or {}
    return Table(
        headings=[first, *more, *columns],
        rows=[
            [
                own[first],
                *(column[number] for column in more.values()),
                *(own[column] for column in columns),
            ]
            for number, own in enumerate(cells)
        ],
        main=[*MAIN, *([COST] if has_price else [])],
    )


def _cells(row: Row) -> Iterator[str]:
    """In the order of `COLUMNS`."""
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
    price = row.replayable.gpu_hour_price
    yield middle("gpu_hours_per_million", ".3f", price) if price else "-"


def notes(rows: Sequence[Row], sets: Sequence[WorkingSet | None]) -> Iterator[str]:
    """Below the table: shapes, spreads, what is assumed and what is not simulated. ``sets``: the
    working set of each row."""
    for row, working_set in zip(rows, sets, strict=True):
        deployment = row.replayable
        yield f"{deployment.name}: {_shape(deployment)}, router {deployment.router.mode}"
        if deployment.slo and row.is_first:
            yield f"  SLO: {deployment.slo}"
        few = FEW_OF_CLIENTS if row.is_closed_loop else FEW
        few = few if row.requests < FEW_REQUESTS else ""
        yield f"  requests in the figures: {row.requests}{few}"
        if row.steadiness and not row.steadiness.is_steady:
            yield f"  not steady: {row.steadiness.reason}"
        if spread := _spread_line(row.metrics):
            yield f"  {spread}"
        if working_set and row.is_first:
            yield f"  working set: {working_set}"
        yield f"  {frontend_line(row)}"
        if (load := row.frontend_load) and load.warning:
            yield f"  warning: {load.warning}"
        if unfinished := max(metrics.unfinished for metrics in row.metrics):
            yield f"  unfinished requests: {unfinished}"
        yield from (f"  {line}" for line in rejected(row))
        if (share := median(metrics.refused_share for metrics in row.metrics)) > MAX_REFUSED:
            yield f"  no p99: {share:.1%} of the requests have no latency"
        yield f"  {accuracy_line(row)}"
        yield from _scaling_lines(row)
        if row.is_first:
            yield from (f"  assumed: {what}" for what in assumed(row))
            yield from (f"  not simulated: {what}" for what in deployment.not_simulated)
    if any(row.stage for row in rows):
        yield (
            "the latencies of a stage include all requests that arrive in it or in its pause; its "
            "throughput is measured while its requests arrive"
        )
    if any(row.replayable.planner for row in rows):
        yield "all metrics include the start and the end of the workload"


def frontend_line(row: Row) -> str:
    """`TTFT includes 13 ms before the engine: 10 ms + 0.2 ms per 1,000 input tokens`."""
    time, tokens = row.replayable.frontend_time, fmean(row.results[0]["requests"]["input_length"])
    parts = f"{significant(time.fixed_ms)} ms + {significant(time.per_1k_ms)} ms"
    return (
        f"TTFT includes {significant(time.ms(tokens))} ms before the engine: {parts} per 1,000 "
        "input tokens"
    )


def _shape(deployment: Replayable) -> str:
    planner = deployment.planner
    if planner is None:
        return f"{deployment.shape} on {deployment.gpu.name}"
    limit = "" if planner.max_gpus is None else f", at most {count_of(planner.max_gpus, 'GPU')}"
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
        more = count_of(len(events) - MAX_EVENTS, "more event")
        yield f"    {more} in the output of --json"


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
        arrival = arrival_of(loaded.scaled(lowest.scale))
        what = f"{name} misses the SLO even at scale × {significant(lowest.scale)} ({arrival})"
        return f"{what}: {_why_missed(lowest)}"
    arrival = arrival_of(loaded.scaled(load.highest.scale))
    share = load.highest.goodput or 0.0
    more = "; no higher scale was tried"
    if load.lowest_failing is not None:
        higher = (
            f"scale × {significant(load.lowest_failing.scale)}: {_why_missed(load.lowest_failing)}"
        )
        more = f"; at {higher}" if load.lowest_failing.overloads_frontends else ""
    what = f"{name} meets the SLO at scale × {significant(load.highest.scale)} ({arrival})"
    return f"{what}: {share:.1%} of requests{more}{_length(loaded, load.highest.scale)}"


def _why_missed(row: Row) -> str:
    if (load := row.frontend_load) and row.overloads_frontends:
        return load.warning
    return f"only {row.goodput or 0.0:.1%} of requests meet it"


def _length(loaded: LoadedWorkload, scale: float) -> str:
    """How the replay of a sustained load differs from one of `--scale`; empty if it does not."""
    once = loaded.at_scale(scale).workload.fixed_requests
    long = loaded.for_search(scale, repeat=LONG).workload.fixed_requests
    if not once or not long or once == long:
        return ""
    return (
        f". These figures are of a replay with {count_of(long, 'request')}, in which a growing "
        f"queue shows; `--scale {significant(scale)}` replays {once:,}"
    )


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What the report shows."""

    rows: Sequence[Row]
    sustained: Sequence[SustainedLoad]
    """Of `--until-slo-breaks`; empty without it."""
    loaded: LoadedWorkload
    attain: float
    """Share of requests that must meet the SLO."""
    sets: Sequence[WorkingSet | None]
    """The working set of each row."""

    @property
    def common_slo(self) -> Slo:
        """That of all graphs; empty if they differ."""
        slos = [row.replayable.slo for row in self.rows]
        return slos[0] if all(slo == slos[0] for slo in slos) else Slo()

    @property
    def needed(self) -> str:
        return f"{self.attain * 100:.4g}%"

    def meets(self, row: Row) -> bool | None:
        """None without an SLO."""
        return row.meets_slo(self.attain)


def report_of(study: Simulated) -> Report:
    rows = study.rows
    counted = {row.replayable.name: _counted(row) for row in rows}
    sustained = [sustained_load_line(load, study.loaded) for load in study.sustained]
    about = [*notes(rows, study.sets), never_line(study.loaded.workload), METHOD]
    return Report(
        kind="Simulation",
        title=title(study.loaded, study.sustained),
        subtitle=SIMULATED,
        verdicts=list(_verdicts(study)),
        sections=[
            Section("", [Figures(list(_figures(study)))], is_detail=True),
            Section(
                "Graphs", [_table_with_verdicts(study), *notes_of(sustained), *_overview(study)]
            ),
            Section("Distribution of latencies", [*latency_charts(counted, study.common_slo)]),
            Section("Over time", list(_over_time(rows))),
            Section("Prediction intervals", list(_intervals(rows)), is_detail=True),
            Section("Notes", [Notes(about)]),
        ],
    )


def _verdicts(study: Simulated) -> Iterator[Verdict]:
    outcomes = [study.meets(row) for row in study.rows]
    met, count = outcomes.count(True), len(outcomes)
    if outcomes.count(None) == count:
        yield Verdict(State.NONE, NO_SLO)
    elif count > MOST_VERDICTS:
        state = {0: State.MISSED, count: State.MET}.get(met, State.NONE)
        what = "stages" if study.rows[0].stage else "graphs"
        text = f"{met} of {count} {what} meet the SLO for {study.needed} of requests"
        yield Verdict(state, text)
    else:
        yield from (_verdict(study, row) for row in study.rows)


def _verdict(study: Simulated, row: Row) -> Verdict:
    name, meets = row.replayable.name, study.meets(row)
    if meets is None:
        return Verdict(State.NONE, f"no SLO for {name}")
    state = State.MET if meets else State.MISSED
    why = (
        f"{row.goodput or 0.0:.1%} of requests within {row.replayable.slo} ({study.needed} needed)"
    )
    if (load := row.frontend_load) and row.overloads_frontends:
        why = load.warning
    scale = f" at scale × {significant(row.scale)}" if study.sustained else ""
    return Verdict(state, f"SLO {state} by {name}{scale}: {why}")


def _figures(study: Simulated) -> Iterator[Figure]:
    """Of the only graph, or the best figures of several."""
    rows = study.rows
    yield Figure("graphs", str(sum(row.is_first for row in rows)), f"workload {study.loaded.name}")
    if study.common_slo:
        yield Figure("SLO", str(study.common_slo), f"for {study.needed} of requests")
    best = {
        "TTFT p99": ("ttft_p99_ms", "{:,.0f} ms", min),
        "ITL p50": ("itl_p50_ms", "{:,.1f} ms", min),
        "output per user": ("user_rate", "{:,.0f} tokens/s", max),
        "output per GPU": ("gpu_rate", "{:,.0f} tokens/s", max),
    }
    for name, (metric, form, choose) in best.items():
        values = {
            row.replayable.name: metrics[metric].median
            for row in rows
            if metric in (metrics := dict(spreads(row.metrics)))
        }
        if values:
            graph = choose(values, key=lambda graph: values[graph])
            note = graph if len(rows) > 1 else ""
            label = f"{name} (best)" if note else name
            yield Figure(label, form.format(values[graph]), note)


def _table_with_verdicts(study: Simulated) -> Table:
    names = {True: "✓ met", False: "✗ missed", None: "no SLO"}
    outcomes = [study.meets(row) for row in study.rows]
    has_slo = any(outcome is not None for outcome in outcomes)
    more = {"SLO": [names[outcome] for outcome in outcomes]} if has_slo else {}
    return table_of(marked(study.rows), more)


def _overview(study: Simulated) -> Iterator[Chart]:
    """The Pareto chart if there is more than one point, and latencies by load."""
    loads = [load.rows for load in study.sustained] or [(row,) for row in study.rows]
    if sum(map(len, loads)) > 1:
        yield pareto(loads, study.common_slo, study.meets)
    yield from load_charts(study.sustained, study.common_slo)


def _counted(row: Row) -> list[ServedRequest]:
    """Of the first seed: those that the figures describe."""
    if row.steadiness is None or row.stage is not None:
        return served_requests(row.results[0])
    return steady_requests(row.results[0])


def _over_time(rows: Sequence[Row]) -> Iterator[Part]:
    for row in rows:
        seeds = f" (first of {len(row.results)} seeds)" if len(row.results) > 1 else ""
        heading = f"{row.replayable.name}{seeds}"
        yield Foldable(heading, list(time_charts(row)), is_open=len(rows) <= MOST_OPEN)


def _intervals(rows: Sequence[Row]) -> Iterator[Part]:
    """Nothing if no graph has measured points."""
    lines = []
    for row in rows:
        values, intervals = dict(spreads(row.metrics)), row_intervals(row)
        spans = (
            span(values[name].median, intervals[metric])
            if metric in intervals and name in values
            else "-"
            for metric, (name, *_) in METRICS.items()
        )
        if intervals:
            points = median(interval.points for interval in intervals.values())
            lines.append([row.replayable.name, *spans, limit_text(points)])
    if lines:
        yield f"{COVERAGE:.0%} of the measurements are expected in these ranges."
        headings = ["graph", "ITL p50 (ms)", "TTFT p50 (ms)", "tok/s/GPU", "measured points"]
        yield Table(headings, lines)
