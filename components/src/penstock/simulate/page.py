"""The HTML report of `penstock simulate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from penstock.graph.slo import Slo
from penstock.reports.charts import Chart, distribution
from penstock.reports.page import (
    Foldable,
    Notes,
    Part,
    Report,
    Section,
    State,
    Table,
    Tile,
    Verdict,
    write_report,
)
from penstock.simulate.accuracy import METRICS, row_intervals, span
from penstock.simulate.interval import COVERAGE
from penstock.simulate.metrics import served_requests, spreads, steady_requests
from penstock.simulate.page_charts import load_charts, pareto, time_charts
from penstock.simulate.report import marked, sustained_load_line, table_cells, title
from penstock.simulate.study import Row, SustainedLoad
from penstock.simulate.window import ServedRequest
from penstock.text.numbers import limit_text
from penstock.workload.load import LoadedWorkload

SIMULATED = (
    "simulated, not measured: Dynamo's router and schedulers in virtual time, with measured kernels"
)
MOST_BANNERS = 4  # graphs with a verdict of their own at the top
MOST_OPEN = 2  # graphs whose charts over time are shown without a click


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What the report shows."""

    rows: Sequence[Row]
    sustained: Sequence[SustainedLoad]
    """Of `--until-slo-breaks`; empty without it."""
    loaded: LoadedWorkload
    attain: float
    """Share of requests that must meet the SLO."""
    notes: Sequence[str]
    """As `report.notes` returns them."""

    @property
    def common_slo(self) -> Slo:
        """That of all graphs; empty if they differ."""
        first, *others = [row.replayable.slo for row in self.rows]
        return first if all(one == first for one in others) else Slo()

    def meets(self, row: Row) -> bool | None:
        """None without an SLO."""
        return None if row.goodput is None else row.goodput >= self.attain


def write_page(path: Path, found: Simulated, provenance: Sequence[tuple[str, str]]) -> None:
    """InputError if the file cannot be written."""
    write_report(path, report_of(found, provenance))


def report_of(found: Simulated, provenance: Sequence[tuple[str, str]]) -> Report:
    sustained = [sustained_load_line(load, found.loaded) for load in found.sustained]
    return Report(
        title=f"Simulation of {title(found.loaded, found.sustained)}",
        subtitle=SIMULATED,
        verdicts=list(_verdicts(found)),
        tiles=list(_tiles(found)),
        sections=[
            Section(title="Graphs", parts=[figures_table(found), *sustained, *_overview(found)]),
            Section(title="Distribution of latencies", parts=list(_distributions(found))),
            Section(title="Over time", parts=list(_over_time(found))),
            Section(title="Prediction intervals", parts=list(_intervals(found.rows))),
            Section(title="Notes", parts=[Notes(lines=list(found.notes))]),
        ],
        provenance=provenance,
    )


def _verdicts(found: Simulated) -> Iterator[Verdict]:
    known = [row for row in found.rows if found.meets(row) is not None]
    if not known:
        yield Verdict(state=State.NONE, text="No SLO: name one with --ttft, --itl or --e2e")
        return
    if len(found.rows) > MOST_BANNERS:
        met = sum(found.meets(row) is True for row in found.rows)
        state = {0: State.MISSED, len(found.rows): State.MET}.get(met, State.NONE)
        needed = f"{found.attain * 100:.4g}% of requests"
        text = f"{met} of {len(found.rows)} graphs meet the SLO for {needed}"
        yield Verdict(state=state, text=text)
        return
    yield from (_verdict(found, row) for row in found.rows)


def _verdict(found: Simulated, row: Row) -> Verdict:
    name, meets = row.replayable.name, found.meets(row)
    if meets is None:
        return Verdict(state=State.NONE, text=f"{name}: no SLO")
    state = State.MET if meets else State.MISSED
    needed = f"{found.attain * 100:.4g}% needed"
    text = f"{row.goodput or 0.0:.1%} of requests within {row.replayable.slo} ({needed})"
    scale = f" at scale × {row.scale:.2f}" if found.sustained else ""
    return Verdict(state=state, text=f"{name}: SLO {state}{scale}: {text}")


def _tiles(found: Simulated) -> Iterator[Tile]:
    """Of the only graph, or the best figures of several."""
    yield Tile(name="Graphs", value=str(len(found.rows)), note=f"workload {found.loaded.name}")
    if found.common_slo:
        needed = f"for {found.attain * 100:.4g}% of requests"
        yield Tile(name="SLO", value=str(found.common_slo), note=needed)
    best = {
        "TTFT p99": ("ttft_p99_ms", "{:,.0f} ms", min),
        "ITL p50": ("itl_p50_ms", "{:,.1f} ms", min),
        "Output per user": ("user_rate", "{:,.0f} tokens/s", max),
        "Output per GPU": ("gpu_rate", "{:,.0f} tokens/s", max),
    }
    for name, (metric, form, choose) in best.items():
        values = {
            row.replayable.name: own[metric].median
            for row in found.rows
            if metric in (own := dict(spreads(row.metrics)))
        }
        if values:
            graph = choose(values, key=lambda one: values[one])
            note = graph if len(found.rows) > 1 else ""
            label = f"{name} (best)" if note else name
            yield Tile(name=label, value=form.format(values[graph]), note=note)


def figures_table(found: Simulated) -> Table:
    """The columns of the text, and the verdict."""
    head, *rows = table_cells(marked(found.rows))
    if all(found.meets(row) is None for row in found.rows):
        return Table(headings=head, rows=rows)
    names = {True: "✓ met", False: "✗ missed", None: "no SLO"}
    verdicts = [names[found.meets(row)] for row in found.rows]
    return Table(
        headings=[head[0], "SLO", *head[1:]],
        rows=[[row[0], own, *row[1:]] for row, own in zip(rows, verdicts, strict=True)],
    )


def _overview(found: Simulated) -> Iterator[Chart]:
    """The Pareto chart if there is more than one point, and latencies by load."""
    loads = [load.rows for load in found.sustained] or [(row,) for row in found.rows]
    if sum(map(len, loads)) > 1:
        yield pareto(loads, found.common_slo, found.meets)
    yield from load_charts(found.sustained, found.common_slo)


def _counted(row: Row) -> list[ServedRequest]:
    """Of the first seed: those that the figures describe."""
    if row.steadiness is None:
        return served_requests(row.results[0])
    return steady_requests(row.results[0])


def _distributions(found: Simulated) -> Iterator[Chart]:
    counted = {row.replayable.name: _counted(row) for row in found.rows}
    slo = found.common_slo
    of_each: dict[str, tuple[float | None, Callable[[ServedRequest], float | None]]] = {
        "TTFT": (slo.ttft_ms, lambda one: one.ttft_ms),
        "ITL": (slo.itl_ms, lambda one: one.itl_ms),
        "end to end": (slo.e2e_ms, lambda one: one.e2e_ms),
    }
    titles = {"ITL": "ITL (mean of a request)", "end to end": "end-to-end latency"}
    for name, (limit, latency) in of_each.items():
        samples = {
            graph: [value for one in some if (value := latency(one)) is not None]
            for graph, some in counted.items()
        }
        chart = distribution(f"Distribution of {titles.get(name, name)}", name, samples, limit)
        if chart is not None:
            yield chart


def _over_time(found: Simulated) -> Iterator[Part]:
    are_open = len(found.rows) <= MOST_OPEN
    for row in found.rows:
        seeds = f" (first of {len(row.results)} seeds)" if len(row.results) > 1 else ""
        title_ = f"{row.replayable.name}{seeds}"
        yield Foldable(title=title_, charts=list(time_charts(row)), is_open=are_open)


def _intervals(rows: Sequence[Row]) -> Iterator[Part]:
    """Nothing if no graph has measured points."""
    lines = []
    for row in rows:
        values, intervals = dict(spreads(row.metrics)), row_intervals(row)
        cells = [row.replayable.name]
        for metric, (name, *_) in METRICS.items():
            if metric in intervals and name in values:
                cells.append(span(values[name].median, intervals[metric]))
            else:
                cells.append("-")
        points = [one.points for one in intervals.values()]
        if points:
            lines.append([*cells, limit_text(median(points))])
    if lines:
        head = ["graph", "ITL p50 (ms)", "TTFT p50 (ms)", "tok/s/GPU", "measured points"]
        yield f"{COVERAGE:.0%} of the measurements are expected in these ranges."
        yield Table(headings=head, rows=lines)
