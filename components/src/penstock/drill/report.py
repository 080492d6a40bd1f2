"""A drill's result as text, as JSON, and as one HTML page with a timeline."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.table import Table

from penstock.drill.documents import (
    SCHEMA_VERSION,
    DrillDocument,
    FailureDocument,
    FaultRow,
)
from penstock.drill.evaluate import Failure, FailureType, Row, median, p99
from penstock.drill.memory import MemoryTrend
from penstock.drill.run import DrillResult
from penstock.html_mark import HTML_MARK
from penstock.terminal import fitted

SHOWN_FAILURES = 10
COLUMNS = ("kind", "target", "faults", "requests", "failed", "unavoidable", "recovery (s)")
WIDTH, HEIGHT = 900, 180  # of a plot, in pixels


def print_result(result: DrillResult, repeat: str) -> None:
    """``repeat``: the command that runs the same kinds of faults with the same seed."""
    console = Console(highlight=False, soft_wrap=True)
    table = Table(*COLUMNS)
    for row in result.evaluation.rows:
        table.add_row(*_cells(row))
    console.print(table)
    memory = map(_memory_line, result.memory)
    for line in (*summary(result), *memory):
        console.print("\n".join(fitted(line)), markup=False)
    console.print(f"repeat: {repeat}", markup=False)  # on one line, so that it can be copied


def summary(result: DrillResult) -> list[str]:
    """The verdict, then the failures that it is about."""
    evaluation = result.evaluation
    bad = evaluation.avoidable
    verdict = "passed" if evaluation.passes else "failed"
    if result.was_interrupted:
        verdict = f"partial result, interrupted: {verdict} until then"
    lines = [
        f"{verdict}: {len(result.faults)} faults, {evaluation.requests} requests, "
        f"{len(evaluation.failures)} failed, {len(evaluation.failures) - len(bad)} unavoidable"
    ]
    lines += [_failure_line(failure) for failure in bad[:SHOWN_FAILURES]]
    if len(bad) > SHOWN_FAILURES:
        lines.append(f"… and {len(bad) - SHOWN_FAILURES} more")
    if evaluation.permitted:
        if any(evaluation.above_limit):
            lines.append(f"above the limit: {', '.join(filter(None, evaluation.above_limit))}")
        limits = ", ".join(f"{kind} {n}" for kind, n in sorted(evaluation.permitted.items()))
        lines.append(f"permitted for each fault by `drill.permitted_failures`: {limits}")
    lines += [f"{f.kind} {f.target}: {f.outcome}" for f in result.faults if f.outcome]
    lines += [f"not recovered: {fault.kind} {fault.target}" for fault in evaluation.not_recovered]
    return lines + [f"left behind: {item}" for item in evaluation.leftovers]


def _failure_line(failure: Failure) -> str:
    fault = failure.fault
    when = "before the first fault" if fault is None else f"after {fault.kind} {fault.target}"
    error = f" ({failure.request.error})" if failure.request.error else ""
    return f"request {failure.request.number}: {failure.type} {when}{error}: {failure.cause}"


def _memory_line(trend: MemoryTrend) -> str:
    return (
        f"memory of {trend.process}: {trend.first_mib:.0f} → {trend.last_mib:.0f} MiB in "
        f"{trend.minutes:.0f} min, slope {trend.slope_mib_per_hour:+.1f} MiB/h"
    )


def _cells(row: Row) -> tuple[str, ...]:
    """Its texts in the order of `COLUMNS`."""
    failed = ", ".join(f"{count} {type_}" for type_, count in row.failed.items())
    counts = str(row.faults), str(row.requests), failed or "0", str(row.unavoidable)
    return row.kind, row.target, *counts, _recovery(row)


def _recovery(row: Row) -> str:
    middle, worst = median(row.recovery_s), p99(row.recovery_s)
    return f"{middle:.1f} (p99 {worst:.1f})" if middle is not None and worst is not None else "-"


def as_document(result: DrillResult, repeat: str) -> DrillDocument:
    """The JSON document of `penstock drill --json`."""
    evaluation = result.evaluation
    totals = Counter(failure.type for failure in evaluation.failures)
    return DrillDocument(
        schema_version=SCHEMA_VERSION,
        passed=evaluation.passes,
        interrupted=result.was_interrupted,
        command=repeat,
        seed=result.options.seed,
        seconds=round(result.seconds, 1),
        requests=evaluation.requests,
        failed={type_: totals[type_] for type_ in FailureType},
        unavoidable=sum(failure.is_unavoidable for failure in evaluation.failures),
        rows=list(map(_row_document, evaluation.rows)),
        failures=list(map(_failure_document, evaluation.failures)),
        faults=list(result.faults),
        not_recovered=[fault.number for fault in evaluation.not_recovered],
        leftovers=list(evaluation.leftovers),
        permitted=dict(evaluation.permitted),
        memory=list(result.memory),
    )


def _row_document(row: Row) -> FaultRow:
    return FaultRow(
        kind=row.kind,
        target=row.target,
        faults=row.faults,
        requests=row.requests,
        failed=dict(row.failed),
        unavoidable=row.unavoidable,
        recovery_s_median=_rounded(median(row.recovery_s)),
        recovery_s_p99=_rounded(p99(row.recovery_s)),
    )


def _failure_document(failure: Failure) -> FailureDocument:
    return FailureDocument(
        request=failure.request.number,
        type=failure.type,
        error=failure.request.error,
        fault=failure.fault.number if failure.fault is not None else None,
        unavoidable=failure.is_unavoidable,
        cause=failure.cause,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def page(title: str, result: DrillResult, repeat: str) -> str:
    """One HTML file that loads nothing else. ``title``: what was drilled."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row)) + "</tr>"
        for row in result.evaluation.rows
    )
    verdict = "".join(f"<p>{escape(line)}</p>" for line in summary(result))
    memory = "".join(f"<p>{escape(_memory_line(trend))}</p>" for trend in result.memory)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">{HTML_MARK}
<title>penstock drill: {escape(title)}</title>
<style>body{{font:14px sans-serif;max-width:{WIDTH + 80}px;margin:2em auto}}
td,th{{padding:2px 10px;text-align:left;border-bottom:1px solid #ddd}}code{{font-size:12px}}</style>
<h1>Drill of {escape(title)}</h1>{verdict}
<h2>Completed requests per second</h2>{_plot(throughput(result), result)}
<h2>Median TTFT in ms</h2>{_plot(ttft_ms(result), result)}
<p>Each shaded bar marks a fault, from injection to recovery.</p>
<table><tr>{"".join(f"<th>{column}" for column in COLUMNS)}</tr>
{rows}</table>{memory}<p>Repeat: <code>{escape(repeat)}</code></p></html>
"""


def throughput(result: DrillResult) -> list[float]:
    """Completed requests in each second."""
    counts = [0.0] * (int(result.seconds) + 1)
    for request in result.history:
        if not request.error:
            counts[int(request.ended_s)] += 1
    return counts


def ttft_ms(result: DrillResult) -> list[float]:
    """The median time to the first token of the requests that started in each second; 0 if none."""
    buckets: list[list[float]] = [[] for _ in range(int(result.seconds) + 1)]
    for request in result.history:
        if not request.error:
            first = (request.first_token_s - request.started_s) * 1000
            buckets[int(request.started_s)].append(first)
    return [statistics.median(bucket) if bucket else 0.0 for bucket in buckets]


def _plot(values: Sequence[float], result: DrillResult) -> str:
    """A line of ``values``, one per second, above the bars of the faults."""
    top = max((*values, 1.0))
    seconds = max(len(values) - 1, 1)

    def x(second: float) -> float:
        return round(second / seconds * WIDTH, 1)

    points = " ".join(f"{x(i)},{HEIGHT - v / top * HEIGHT:.1f}" for i, v in enumerate(values))
    bars = "".join(
        f'<rect x="{x(f.started_s)}" y="0" height="{HEIGHT}" fill="#f4c7c3" '
        f'width="{max(x((f.recovered_s or result.seconds) - f.started_s), 1)}">'
        f"<title>{escape(f'{f.kind} {f.target}')}</title></rect>"
        for f in result.faults
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 20}" width="100%">{bars}'
        f'<polyline points="{points}" fill="none" stroke="#1a56db" stroke-width="1.5"/>'
        f'<text x="0" y="12" font-size="12">{top:.0f}</text>'
        f'<text x="0" y="{HEIGHT + 16}" font-size="12">0 s</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 16}" font-size="12" text-anchor="end">{seconds} s</text>'
        "</svg>"
    )


def as_json(result: DrillResult, repeat: str) -> str:
    return as_document(result, repeat).as_json(indent=1, ensure_ascii=False)
