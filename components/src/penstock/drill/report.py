"""The report of `penstock drill`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.drill.evaluate import Failure, FailureType, FaultRecord, FaultRow
from penstock.drill.memory import MemoryTrend
from penstock.drill.run import DrillResult
from penstock.reports.charts import binned, over_time, percentile_curves
from penstock.reports.model import (
    Band,
    Chart,
    Figure,
    Figures,
    Mark,
    Part,
    Report,
    Section,
    Series,
    State,
    Table,
    Verdict,
    notes_of,
)
from penstock.simulate.window import percentile
from penstock.text.numbers import limit_text

SHOWN_FAILURES = 10
MOST_FAILURES = 200  # in the table
SHARES = (0.5, 0.9)
ON_MOCKERS = "no engine ran: mockers simulated it, so an engine may take longer to recover"
COLUMNS = ("kind", "target", "faults", "requests", "failed", "unavoidable", "recovery (s)")
FAILURES = ("request", "failure", "unavoidable", "fault", "at (s)", "error", "cause")
FAULTS = ("fault", "kind", "target", "at (s)", "recovery", "outcome")


def report_of(target: str, result: DrillResult) -> Report:
    """``target``: what was drilled."""
    options = result.options
    rows = list(map(_cells, result.evaluation.rows))
    kinds: list[Part] = [Table(COLUMNS, rows)] if rows else []
    faults: list[Part] = [_faults(result)] if result.faults else []
    return Report(
        kind="Drill",
        title=target,
        subtitle=f"{options.streams} concurrent requests of {options.tokens} output tokens "
        f"({', '.join(options.kinds)})",
        verdicts=list(_verdicts(result)),
        sections=[
            Section("", [Figures(list(_figures(result)))], is_detail=True),
            Section("Over time", list(_charts(result))),
            Section("Faults by kind", [*kinds, *notes_of(_summary(result))]),
            Section("Failed requests", list(_failures(result)), is_detail=True),
            Section("Faults", faults, is_detail=True),
            Section("Memory", notes_of(map(_memory_line, result.memory))),
        ],
    )


def _verdicts(result: DrillResult) -> Iterator[Verdict]:
    evaluation = result.evaluation
    if result.engine_is_substitute:
        yield Verdict(State.INCOMPLETE, ON_MOCKERS)
    verdict, state = ("passed", State.MET) if evaluation.passes else ("failed", State.MISSED)
    if result.was_interrupted:
        yield Verdict(State.INCOMPLETE, "partial result: the drill was interrupted")
        verdict = f"{verdict} until then"
    failed, retried = len(evaluation.failures), evaluation.retried
    yield Verdict(
        state,
        f"{verdict}: {len(result.faults)} faults, {evaluation.requests} requests, {retried} "
        f"retried, {failed} failed, {failed - len(evaluation.avoidable)} unavoidable",
    )


def _figures(result: DrillResult) -> Iterator[Figure]:
    evaluation = result.evaluation
    recovered = [s for fault in result.faults if (s := fault.recovery_s) is not None]
    yield Figure("faults", str(len(result.faults)), f"in {result.seconds:.0f} s")
    yield Figure("requests", f"{evaluation.requests:,}")
    failed = len(evaluation.failures)
    unavoidable = f"{failed - len(evaluation.avoidable)} of them unavoidable"
    yield Figure("failed requests", f"{failed:,}", unavoidable)
    yield Figure("retried requests", f"{evaluation.retried:,}", "sent again after an error")
    if recovered:
        middle, worst = percentile(recovered, 0.5), max(recovered)
        yield Figure("recovery (median)", f"{middle:.1f} s", f"longest {worst:.1f} s")
    if evaluation.not_recovered:
        yield Figure("not recovered", str(len(evaluation.not_recovered)), "faults")


def _summary(result: DrillResult) -> list[str]:
    """The failures that the verdict is about, and what else was observed."""
    evaluation = result.evaluation
    bad = evaluation.avoidable
    lines = [_failure_line(failure) for failure in bad[:SHOWN_FAILURES]]
    if len(bad) > SHOWN_FAILURES:
        lines.append(f"… and {len(bad) - SHOWN_FAILURES} more")
    if evaluation.permitted:
        if any(evaluation.above_limit):
            lines.append(f"above the limit: {', '.join(filter(None, evaluation.above_limit))}")
        limits = ", ".join(f"{kind} {n}" for kind, n in sorted(evaluation.permitted.items()))
        lines.append(f"permitted for each fault by `drill.permitted_failures`: {limits}")
    lines += [
        f"{fault.kind} {fault.target}: {fault.outcome}" for fault in result.faults if fault.outcome
    ]
    if evaluation.not_migratable:
        lines.append(
            f"{evaluation.not_migratable} requests with a grammar (guided, tools) were lost with "
            "their worker: Dynamo does not migrate them (dynamo#7930). Planned changes wait "
            "until such requests end; killed or suspended workers lose them"
        )
    lines += [
        f"recovery too slow: {fault.kind} {fault.target} took {fault.recovery_s:.1f} s, and "
        f"`drill.recovery_s` permits {limit_text(result.options.recovery_s[fault.kind])} s"
        for fault in evaluation.too_slow
    ]
    lines += [f"not recovered: {fault.kind} {fault.target}" for fault in evaluation.not_recovered]
    return lines + [f"left behind: {leftover}" for leftover in evaluation.leftovers]


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


def _cells(row: FaultRow) -> tuple[str, ...]:
    """Its texts in the order of `COLUMNS`."""
    failed = ", ".join(f"{count} {type_}" for type_, count in row.failed.items())
    requests = str(row.requests) + (f" ({row.retried} retried)" if row.retried else "")
    grammar = f" ({row.not_migratable} grammar)" if row.not_migratable else ""
    counts = str(row.faults), requests, failed or "0", f"{row.unavoidable}{grammar}"
    return row.kind, row.target, *counts, _row_recovery(row)


def _row_recovery(row: FaultRow) -> str:
    if row.recovery_s_median is None:
        return "-"
    return f"{row.recovery_s_median:.1f} (p99 {row.recovery_s_p99:.1f})"


def _charts(result: DrillResult) -> Iterator[Chart]:
    """By the second. Faults are shaded, from their injection to their recovery."""
    bins = int(result.seconds) + 1
    seconds = [float(second) for second in range(bins)]
    faults: dict[str, Any] = {
        "bands": [
            Band(begin=fault.started_s, end=_end(fault, result), text=_named(fault))
            for fault in result.faults
        ],
        "bands_name": "fault, until the recovery",
    }
    served = [request for request in result.history if not request.error]
    ended = [request.ended_s for request in served]
    counts = [float(len(requests)) for requests in binned(ended, ended, 1.0, bins)]
    completed = Series(name="completed", x=seconds, y=counts)
    yield over_time("Completed requests per second", "requests/s", [completed], **faults)
    started = [request.started_s for request in served]
    ttft_ms = [(request.first_token_s - request.started_s) * 1000 for request in served]
    curves = percentile_curves(started, ttft_ms, SHARES, 1.0, bins)
    yield over_time("TTFT by the time a request started", "ms", curves, name="TTFT", **faults)
    if result.evaluation.failures:
        failed = list(_failed(result, seconds))
        yield over_time("Failed requests per second", "requests", failed, **faults)


def _failed(result: DrillResult, seconds: list[float]) -> Iterator[Series]:
    for type_ in FailureType:
        ended = [
            failure.request.ended_s
            for failure in result.evaluation.failures
            if failure.type is type_
        ]
        if ended:
            counts = [len(requests) for requests in binned(ended, ended, 1.0, len(seconds))]
            yield Series(name=str(type_), x=seconds, y=counts, mark=Mark.STACK)


def _end(fault: FaultRecord, result: DrillResult) -> float:
    return result.seconds if fault.recovery_s is None else fault.started_s + fault.recovery_s


def _named(fault: FaultRecord) -> str:
    took = _recovery(fault)
    return f"{fault.number}: {fault.kind} {fault.target} at {fault.started_s:.1f} s, {took}"


def _recovery(fault: FaultRecord) -> str:
    if fault.recovery_s is None:
        return "not recovered"
    return f"recovered after {fault.recovery_s:.1f} s"


def _failures(result: DrillResult) -> Iterator[Part]:
    failures = sorted(result.evaluation.failures, key=lambda failure: failure.is_unavoidable)
    if not failures:
        return
    rows = [
        (
            str(failure.request.number),
            str(failure.type),
            "yes" if failure.is_unavoidable else "no",
            "-"
            if failure.fault is None
            else f"{failure.fault.number}: {failure.fault.kind} {failure.fault.target}",
            f"{failure.request.ended_s:.1f}",
            failure.request.error or "-",
            failure.cause,
        )
        for failure in failures[:MOST_FAILURES]
    ]
    yield Table(FAILURES, rows)
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
    return Table(FAULTS, rows)
