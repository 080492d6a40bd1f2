"""A drill's result as text and as JSON."""

from __future__ import annotations

from collections import Counter

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
from penstock.text.terminal import fitted

SHOWN_FAILURES = 10
ON_MOCKERS = "no engine ran: mockers simulated it, so an engine may take longer to recover"
COLUMNS = ("kind", "target", "faults", "requests", "failed", "unavoidable", "recovery (s)")


def print_result(result: DrillResult, repeat: str) -> None:
    """``repeat``: the command that runs the same kinds of faults with the same seed."""
    console = Console(highlight=False, soft_wrap=True)
    if result.engine_is_substitute:
        console.print("\n".join(fitted(ON_MOCKERS)), markup=False)
    table = Table(*COLUMNS)
    for row in result.evaluation.rows:
        table.add_row(*cells(row))
    console.print(table)
    memory = map(memory_line, result.memory)
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


def memory_line(trend: MemoryTrend) -> str:
    return (
        f"memory of {trend.process}: {trend.first_mib:.0f} → {trend.last_mib:.0f} MiB in "
        f"{trend.minutes:.0f} min, slope {trend.slope_mib_per_hour:+.1f} MiB/h"
    )


def cells(row: Row) -> tuple[str, ...]:
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
        engine_is_substitute=result.engine_is_substitute,
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


def as_json(result: DrillResult, repeat: str) -> str:
    return as_document(result, repeat).as_json(indent=1, ensure_ascii=False)
