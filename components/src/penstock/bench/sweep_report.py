"""The report of one endpoint at several loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.bench.measurement import Bench, Percentiles
from penstock.bench.report import (
    PERCENTILES,
    failures_line,
    kind_of,
    limits_of,
    on_mockers,
    verdicts,
)
from penstock.bench.sweep import Level, Sweep, scale_text
from penstock.reports.charts import slo_limit, throughput_chart
from penstock.reports.model import (
    BAD,
    GOOD,
    GRAY,
    TALL,
    Axis,
    Chart,
    Figure,
    Figures,
    Mark,
    Report,
    Section,
    Series,
    State,
    Table,
    Verdict,
    notes_of,
)
from penstock.simulate.charts import latency_charts
from penstock.simulate.report import arrival_of
from penstock.text.numbers import significant

COLORS = {True: GOOD, False: BAD, None: GRAY}
KINDS = {True: "meets the SLO", False: "misses the SLO", None: "no SLO"}
FRONT = "front: on the Pareto front of tokens/s per user and tokens/s"


def report_of(sweep: Sweep) -> Report:
    first = sweep.levels[0].bench
    endpoint = first.endpoint
    requests = {f"scale {level.name}": level.bench.log.counted for level in sweep.levels}
    charts = [
        pareto(sweep),
        _by_load("TTFT", "ttft_ms", first.slo.ttft_ms, sweep.levels),
        _by_load("ITL", "itl_ms", first.slo.itl_ms, sweep.levels),
        *latency_charts(requests, first.slo),
    ]
    remarks = [
        f"scale {level.name}: {remark}"
        for level in sweep.levels
        for remark in _remarks(level.bench)
    ]
    return Report(
        kind="Sweep",
        title=f"{first.workload.name} at several loads, {endpoint.model} at {endpoint.url}",
        subtitle=kind_of(is_substitute=endpoint.engine_is_substitute),
        verdicts=list(_verdicts(sweep)),
        sections=[
            Section("Throughput and latency", [*charts, _table(sweep), FRONT]),
            Section("", [Figures(list(_figures(sweep)))], is_detail=True),
            Section("Notes", notes_of(remarks)),
        ],
    )


def _verdicts(sweep: Sweep) -> Iterator[Verdict]:
    if sweep.interrupted:
        yield Verdict(State.INCOMPLETE, f"incomplete: {sweep.interrupted}")
    last = sweep.levels[-1].bench
    if last.endpoint.engine_is_substitute:
        yield Verdict(State.INCOMPLETE, on_mockers(last.endpoint.model))
    if last.meets_slo is None:
        yield from (verdict for verdict in verdicts(last) if verdict.state is not State.INCOMPLETE)
    else:
        state = State.MET if sweep.highest else State.MISSED
        state = State.NONE if last.endpoint.engine_is_substitute else state
        yield Verdict(state, "; ".join(_highest_load(sweep)))


def _highest_load(sweep: Sweep) -> Iterator[str]:
    last, highest = sweep.levels[-1], sweep.highest
    slo = last.bench.slo
    if highest is None:
        yield f"the SLO ({slo}) is missed at the lowest scale"
    else:
        more = "" if last.bench.meets_slo else f", and missed at {last.name}"
        yield f"the SLO ({slo}) is met up to scale {highest.name}{more}"
    if sweep.unmeasured:
        yield f"not measured: {', '.join(map(scale_text, sweep.unmeasured))}"


def _table(sweep: Sweep) -> Table:
    per_gpu = ["tokens/s/GPU"] if sweep.gpus else []
    slo = ["within SLO"] if sweep.levels[0].bench.slo else []
    rates = ["requests/s", "tokens/s", *per_gpu, "tokens/s per user"]
    latencies = ["TTFT p50 / p99 (ms)", "ITL p50 / p99 (ms)"]
    return Table(
        ["scale", "load", *rates, *latencies, *slo, "front"],
        [list(_cells(sweep, level)) for level in sweep.levels],
    )


def _cells(sweep: Sweep, level: Level) -> Iterator[str]:
    bench, measured = level.bench, level.bench.measurement
    yield level.name
    yield arrival_of(bench.workload)
    yield f"{measured.request_rate:.2f}"
    yield f"{measured.output_rate:.0f}"
    gpu_rate = sweep.gpu_rate(level)
    if gpu_rate is not None:
        yield f"{gpu_rate:.0f}"
    yield "-" if measured.user_rate is None else f"{measured.user_rate:.1f}"
    yield _percentiles(measured.ttft_ms, 0)
    yield _percentiles(measured.itl_ms, 1)
    if bench.slo:
        yield "-" if measured.goodput is None else f"{measured.goodput:.1%}"
    yield "yes" if level in sweep.front else ""


def _percentiles(values: Percentiles | None, decimals: int) -> str:
    if values is None:
        return "-"
    p99 = "-" if values.p99 is None else f"{values.p99:.{decimals}f}"
    return f"{values.p50:.{decimals}f} / {p99}"


def _remarks(bench: Bench) -> Iterator[str]:
    """What limits the meaning of a level."""
    if line := failures_line(bench.measurement.failures):
        yield line
    yield from limits_of(bench.measurement)


def _figures(sweep: Sweep) -> Iterator[Figure]:
    highest = sweep.highest
    if sweep.levels[0].bench.slo:
        load = arrival_of(highest.bench.workload) if highest else ""
        scale = f"scale {highest.name}" if highest else "none"
        yield Figure("highest load within the SLO", scale, load)
    best = max(sweep.levels, key=lambda level: level.bench.measurement.output_rate)
    rate = best.bench.measurement.output_rate
    yield Figure("most output", f"{rate:,.0f} tokens/s", f"scale {best.name}")
    gpu_rate = sweep.gpu_rate(best)
    if gpu_rate is not None:
        yield Figure("most output per GPU", f"{gpu_rate:,.0f} tokens/s/GPU", f"{sweep.gpus} GPUs")
    fastest = max(sweep.levels, key=lambda level: level.bench.measurement.user_rate or 0.0)
    user = fastest.bench.measurement.user_rate
    if user is not None:
        yield Figure("fastest for a user", f"{user:.1f} tokens/s", f"scale {fastest.name}")


def pareto(sweep: Sweep) -> Chart:
    """A point for each load, and the Pareto front as a line."""

    def rates(level: Level) -> tuple[float, float]:
        measured = level.bench.measurement
        return measured.user_rate or 0.0, sweep.gpu_rate(level) or measured.output_rate

    x, y = zip(*sorted(map(rates, sweep.front)), strict=True)
    series = [Series(name="Pareto front", x=x, y=y)]
    for met, kind in KINDS.items():
        levels = [level for level in sweep.levels if level.bench.meets_slo is met]
        if levels:
            x, y = zip(*map(rates, levels), strict=True)
            loads = [_load(level) for level in levels]
            points = Series(
                name=kind,
                x=x,
                y=y,
                mark=Mark.POINTS,
                color=COLORS[met],
                symbols=["circle-open" if met is False else "circle"],
                texts=loads,
                labels=loads,
            )
            series.append(points)
    slo_itl_ms = sweep.levels[0].bench.slo.itl_ms
    return throughput_chart(series, slo_itl_ms, is_per_gpu=bool(sweep.gpus))


def _load(level: Level) -> str:
    """`4 requests/s`; short, because it is next to a point."""
    workload = level.bench.workload.workload
    if workload.concurrency:
        return f"concurrency {workload.concurrency}"
    rate = level.bench.workload.mean_rate()
    return f"{significant(rate)} requests/s" if rate else f"scale {level.name}"


def _by_load(name: str, key: str, limit_ms: float | None, levels: Sequence[Level]) -> Chart:
    def latency(level: Level, percentile: str) -> float | None:
        values: Percentiles | None = getattr(level.bench.measurement, key)
        return None if values is None else getattr(values, percentile)

    return Chart(
        title=f"{name} by load",
        x=Axis("served", "requests/s"),
        y=Axis(name, "ms"),
        series=[
            Series(
                name=percentile,
                x=[level.bench.measurement.request_rate for level in levels],
                y=[latency(level, percentile) for level in levels],
                mark=Mark.DOTTED_LINE,
                size=6,
            )
            for percentile in PERCENTILES
        ],
        limits=slo_limit(name, limit_ms),
        height=TALL,
    )
