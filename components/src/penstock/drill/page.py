"""The HTML report of `penstock drill`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.drill.evaluate import FailureType, FaultRecord
from penstock.drill.report import COLUMNS, ON_MOCKERS, cells, memory_line, summary
from penstock.drill.run import DrillResult
from penstock.reports.charts import Chart, Trace, curve, over_time, stacked, wrapped
from penstock.reports.page import (
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
from penstock.reports.samples import binned
from penstock.simulate.window import percentile

HEIGHT = 360
FAULT_COLOR = "#cc79a7"
MOST_FAILURES = 200  # in the table


def write_page(
    path: Path, target: str, result: DrillResult, provenance: Sequence[tuple[str, str]]
) -> None:
    """``target``: what was drilled. InputError if the file cannot be written."""
    write_report(path, report_of(target, result, provenance))


def report_of(target: str, result: DrillResult, provenance: Sequence[tuple[str, str]]) -> Report:
    options = result.options
    load = f"{options.streams} concurrent requests of {options.tokens} output tokens"
    return Report(
        title=f"Drill of {target}",
        subtitle=f"{load}; {ON_MOCKERS}" if result.engine_is_substitute else load,
        verdicts=list(_verdicts(result)),
        tiles=list(_tiles(result)),
        sections=[
            Section(title="Over time", parts=list(_charts(result))),
            Section(title="Faults by kind", parts=list(_kinds(result))),
            Section(title="Failed requests", parts=list(_failures(result))),
            Section(title="Faults", parts=[_faults(result)] if result.faults else []),
            Section(title="Memory", parts=list(_memory(result))),
        ],
        provenance=provenance,
    )


def _verdicts(result: DrillResult) -> Iterator[Verdict]:
    evaluation = result.evaluation
    if result.was_interrupted:
        text = "The drill is incomplete: it was interrupted"
        yield Verdict(state=State.INCOMPLETE, text=text)
    state = State.MET if evaluation.passes else State.MISSED
    text = summary(result)[0].rpartition("interrupted: ")[2]
    yield Verdict(state=state, text=text[0].upper() + text[1:])


def _tiles(result: DrillResult) -> Iterator[Tile]:
    evaluation = result.evaluation
    recovered = [s for fault in result.faults if (s := fault.recovery_s) is not None]
    note = f"in {result.seconds:.0f} s"
    yield Tile(name="Faults", value=str(len(result.faults)), note=note)
    yield Tile(name="Requests", value=f"{evaluation.requests:,}")
    failed = len(evaluation.failures)
    unavoidable = f"{failed - len(evaluation.avoidable)} of them unavoidable"
    yield Tile(name="Failed requests", value=f"{failed:,}", note=unavoidable)
    if recovered:
        middle, worst = percentile(recovered, 0.5), max(recovered)
        yield Tile(name="Recovery (median)", value=f"{middle:.1f} s", note=f"longest {worst:.1f} s")
    if evaluation.not_recovered:
        yield Tile(name="Not recovered", value=str(len(evaluation.not_recovered)), note="faults")


def throughput(result: DrillResult) -> list[float]:
    """Completed requests in each second."""
    ended = [one.ended_s for one in result.history if not one.error]
    return [float(len(some)) for some in binned(ended, ended, 1.0, _seconds(result))]


def ttft_ms(result: DrillResult, share: float = 0.5) -> list[float | None]:
    """A percentile of the time to first token of the requests that started in each second; None if
    none did."""
    served = [one for one in result.history if not one.error]
    first = [(one.first_token_s - one.started_s) * 1000 for one in served]
    some = binned([one.started_s for one in served], first, 1.0, _seconds(result))
    return [percentile(values, share) if values else None for values in some]


def _seconds(result: DrillResult) -> int:
    return int(result.seconds) + 1


def _charts(result: DrillResult) -> Iterator[Chart]:
    x = [float(second) for second in range(_seconds(result))]
    shades = _shades(result)
    completed = throughput(result)
    ttft = [ttft_ms(result, share) for share in (0.5, 0.9)]
    rate = curve("completed", x, [*completed], 0, "requests/s")
    top = max(completed, default=1.0) or 1.0
    faults = _hover(result, top)
    title = "Completed requests per second"
    yield over_time(title, "requests/s", [rate, *faults], **shades)
    curves = [
        {**curve(name, x, values, number, "ms"), "connectgaps": False}
        for number, (name, values) in enumerate(zip(("p50", "p90"), ttft, strict=True))
    ]
    highest = max((value for values in ttft for value in values if value), default=1.0)
    title = "TTFT by the time a request started"
    yield over_time(title, "TTFT (ms)", [*curves, *_hover(result, highest)], **shades)
    if result.evaluation.failures:
        yield _failures_over_time(result, x, shades)


def _shades(result: DrillResult) -> dict[str, Any]:
    """A shape for each fault, from its injection to its recovery."""
    shape = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    look = {"fillcolor": FAULT_COLOR, "opacity": 0.3, "line": {"width": 0}}
    return {
        "shapes": [
            {**shape, **look, "x0": fault.started_s, "x1": _end(fault, result)}
            for fault in result.faults
        ]
    }


def _end(fault: FaultRecord, result: DrillResult) -> float:
    return result.seconds if fault.recovery_s is None else fault.started_s + fault.recovery_s


def _hover(result: DrillResult, top: float) -> list[Trace]:
    """A mark above each shade, which names the fault. Without faults, nothing."""
    if not result.faults:
        return []
    middles = [(fault.started_s + _end(fault, result)) / 2 for fault in result.faults]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "fault, until the recovery",
            "x": [round(middle, 2) for middle in middles],
            "y": [top * 1.08] * len(middles),
            "customdata": [wrapped(_named(fault)) for fault in result.faults],
            "marker": {"symbol": "triangle-down", "size": 11, "color": FAULT_COLOR},
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    ]


def _named(fault: FaultRecord) -> str:
    took = _recovery(fault)
    return f"{fault.number}: {fault.kind} {fault.target} at {fault.started_s:.1f} s, {took}"


def _recovery(fault: FaultRecord) -> str:
    if fault.recovery_s is None:
        return "not recovered"
    return f"recovered after {fault.recovery_s:.1f} s"


def _failures_over_time(result: DrillResult, x: Sequence[float], shades: dict[str, Any]) -> Chart:
    traces = []
    for number, type_ in enumerate(FailureType):
        ended = [one.request.ended_s for one in result.evaluation.failures if one.type is type_]
        if ended:
            counts = [float(len(some)) for some in binned(ended, ended, 1.0, len(x))]
            traces.append(stacked(str(type_), x, counts, number, "requests"))
    title = "Failed requests per second"
    return over_time(title, "requests", traces, barmode="stack", bargap=0, **shades)


def _kinds(result: DrillResult) -> Iterator[Part]:
    if result.evaluation.rows:
        yield Table(headings=COLUMNS, rows=[cells(row) for row in result.evaluation.rows])
    _, *lines = summary(result)
    if lines:
        yield Notes(lines=lines)


def _failures(result: DrillResult) -> Iterator[Part]:
    failures = sorted(result.evaluation.failures, key=lambda one: one.is_unavoidable)
    if not failures:
        return
    rows = [
        (
            str(one.request.number),
            str(one.type),
            "yes" if one.is_unavoidable else "no",
            "-"
            if one.fault is None
            else f"{one.fault.number}: {one.fault.kind} {one.fault.target}",
            f"{one.request.ended_s:.1f}",
            one.request.error or "-",
            one.cause,
        )
        for one in failures[:MOST_FAILURES]
    ]
    head = ("request", "failure", "unavoidable", "fault", "at (s)", "error", "cause")
    yield Table(headings=head, rows=rows)
    if len(failures) > MOST_FAILURES:
        yield f"{len(failures) - MOST_FAILURES} more are in the output of --json."


def _faults(result: DrillResult) -> Table:
    rows = [
        (
            str(fault.number),
            fault.kind,
            fault.target,
            f"{fault.started_s:.1f}",
            _recovery(fault),
            fault.outcome or "-",
        )
        for fault in result.faults
    ]
    return Table(headings=("fault", "kind", "target", "at (s)", "recovery", "outcome"), rows=rows)


def _memory(result: DrillResult) -> Iterator[Part]:
    if result.memory:
        yield Notes(lines=[memory_line(trend) for trend in result.memory])
