"""The HTML report of `penstock bench --sweep`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.bench.measurement import Percentiles
from penstock.bench.page import (
    counted_requests,
    distributions,
    kind_of,
    mocker_verdict,
    verdicts,
)
from penstock.bench.report import Bench
from penstock.bench.sweep import Level, Sweep
from penstock.bench.sweep_report import cells, headings, highest_lines, remarks
from penstock.reports.charts import (
    BAD,
    FRAME,
    GOOD,
    GRAY,
    Chart,
    Trace,
    axis,
    curve,
    horizontal_limit,
    limit_line,
    line,
    points,
)
from penstock.reports.page import (
    Notes,
    Report,
    Section,
    State,
    Table,
    Tile,
    Verdict,
    write_report,
)
from penstock.simulate.report import arrival_of
from penstock.text.numbers import limit_text, significant

MARGIN = 1.12  # of an axis above its highest value, for the texts of points
COLORS = {True: GOOD, False: BAD, None: GRAY}
KINDS = {True: "meets the SLO", False: "misses the SLO", None: "no SLO"}


def write_page(path: Path, found: Sweep, provenance: Sequence[tuple[str, str]]) -> None:
    """InputError if the file cannot be written."""
    write_report(path, report_of(found, provenance))


def report_of(found: Sweep, provenance: Sequence[tuple[str, str]]) -> Report:
    first = found.levels[0].found
    samples = {f"scale {one.name}": counted_requests(one.found) for one in found.levels}
    charts = [pareto(found), *_by_load(found), *distributions(samples, first.slo)]
    notes = [f"scale {one.name}: {remark}" for one in found.levels for remark in remarks(one.found)]
    table = Table(
        headings=[name or "front" for name in headings(found)],
        rows=[
            ["yes" if cell == "*" else cell for cell in cells(found, one)] for one in found.levels
        ],
    )
    return Report(
        title=f"Sweep of {first.model}",
        subtitle=f"{first.url} · {first.workload.name} at several loads · "
        f"{kind_of(is_substitute=first.engine_is_substitute)}",
        verdicts=list(_verdicts(found)),
        tiles=list(_tiles(found)),
        sections=[
            Section(title="Throughput and latency", parts=[*charts, table]),
            Section(title="Notes", parts=[Notes(lines=notes)] if notes else []),
        ],
        provenance=provenance,
    )


def _verdicts(found: Sweep) -> Iterator[Verdict]:
    if found.interrupted:
        yield Verdict(state=State.INCOMPLETE, text=f"The sweep is incomplete: {found.interrupted}")
    last = found.levels[-1].found
    if last.engine_is_substitute:
        yield mocker_verdict(last.model)
    if last.meets_slo is None:
        yield from (one for one in verdicts(last) if one.state is not State.INCOMPLETE)
        return
    state = State.MET if found.highest else State.MISSED
    state = State.NONE if last.engine_is_substitute else state
    text = "; ".join(highest_lines(found))
    yield Verdict(state=state, text=text[0].upper() + text[1:])


def _tiles(found: Sweep) -> Iterator[Tile]:
    highest = found.highest
    if found.levels[0].found.slo:
        load = arrival_of(highest.found.workload) if highest else ""
        value = f"scale {highest.name}" if highest else "none"
        yield Tile(name="Highest load within the SLO", value=value, note=load)
    best = max(found.levels, key=lambda one: one.found.measurement.output_rate)
    rate = best.found.measurement.output_rate
    yield Tile(name="Most output", value=f"{rate:,.0f} tokens/s", note=f"scale {best.name}")
    gpu_rate = found.gpu_rate(best)
    if gpu_rate is not None:
        value = f"{gpu_rate:,.0f} tokens/s/GPU"
        yield Tile(name="Most output per GPU", value=value, note=f"{found.gpus} GPUs")
    fastest = max(found.levels, key=lambda one: one.found.measurement.user_rate or 0.0)
    user = fastest.found.measurement.user_rate
    if user is not None:
        note = f"scale {fastest.name}"
        yield Tile(name="Fastest for a user", value=f"{user:.1f} tokens/s", note=note)


def pareto(found: Sweep) -> Chart:
    """Output tokens/s per user and per GPU, as InferenceX shows them, with a point per load."""
    unit = "tokens/s/GPU" if found.gpus else "tokens/s"

    def rates(level: Level) -> tuple[float, float]:
        measured = level.found.measurement
        return measured.user_rate or 0.0, found.gpu_rate(level) or measured.output_rate

    hover = f"%{{x:,.4~g}} tokens/s/user<br>%{{y:,.4~g}} {unit}"
    front = sorted(map(rates, found.front))
    traces: list[Trace] = [
        line("Pareto front", [x for x, _ in front], [y for _, y in front], 0, hover)
    ]
    for met, kind in KINDS.items():
        some = [one for one in found.levels if one.found.meets_slo is met]
        if some:
            x, y = zip(*map(rates, some), strict=True)
            loads = [_load(one) for one in some]
            symbol = "circle-open" if met is False else "circle"
            marker = {"color": COLORS[met], "symbol": symbol, "line": {"width": 2}}
            traces.append(points(kind, x, y, loads, hover, marker, shows_texts=True))
    right = max(rates(one)[0] for one in found.levels)
    itl_ms = found.levels[0].found.slo.itl_ms
    if itl_ms is not None:
        name = f"SLO: {significant(1000 / itl_ms, 4)} tokens/s/user (ITL {limit_text(itl_ms)} ms)"
        top = MARGIN * max(rates(one)[1] for one in found.levels)
        traces.append(limit_line(name, 1000 / itl_ms, top=top))
        right = max(right, 1000 / itl_ms)
    layout = {
        **FRAME,
        "xaxis": axis("output tokens/s per user (median)", range=[0, MARGIN * right]),
        "yaxis": axis(f"output {unit}", rangemode="tozero"),
    }
    title = f"Output tokens/s per user and {'per GPU' if found.gpus else 'of all users'}"
    return Chart(title=title, data=traces, layout=layout, height=420)


def _load(level: Level) -> str:
    """`4 requests/s`; short, because it is next to a point."""
    workload = level.found.workload.workload
    if workload.concurrency:
        return f"concurrency {workload.concurrency}"
    rate = level.found.workload.mean_rate()
    return f"{significant(rate)} requests/s" if rate else f"scale {level.name}"


def _by_load(found: Sweep) -> Iterator[Chart]:
    slo = found.levels[0].found.slo
    yield from _latency_by_load("TTFT", "ttft_ms", slo.ttft_ms, found)
    yield from _latency_by_load("ITL", "itl_ms", slo.itl_ms, found)


def _latency_by_load(name: str, key: str, limit_ms: float | None, found: Sweep) -> Iterator[Chart]:
    def of(one: Bench, percentile: str) -> float | None:
        values: Percentiles | None = getattr(one.measurement, key)
        found: float | None = None if values is None else getattr(values, percentile)
        return found

    x = [one.found.measurement.request_rate for one in found.levels]
    traces = [
        _marked(percentile, x, [of(one.found, percentile) for one in found.levels], number)
        for number, percentile in enumerate(("p50", "p90", "p99"))
    ]
    if limit_ms is not None:
        traces.append(horizontal_limit(f"SLO: ≤ {limit_text(limit_ms)} ms", limit_ms, 0, max(x)))
    layout = {
        **FRAME,
        "xaxis": axis("requests/s served", rangemode="tozero"),
        "yaxis": axis(f"{name} (ms)", rangemode="tozero"),
    }
    yield Chart(title=f"{name} by load", data=traces, layout=layout, height=420)


def _marked(name: str, x: Sequence[float], y: Sequence[float | None], number: int) -> Trace:
    trace = curve(name, x, y, number, "ms")
    hover = "%{y:,.4~g} ms at %{x:.4~g} requests/s<extra>%{meta}</extra>"
    return {**trace, "mode": "lines+markers", "hovertemplate": hover}
