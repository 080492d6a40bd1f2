"""The phases of the System Load Test as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.bench import aiperf
from penstock.bench.methods.artificial_analysis import Spread
from penstock.bench.methods.definitions import DEFINITIONS, definition_lines
from penstock.bench.methods.documents import SCHEMA_VERSION, SystemLoadDocument
from penstock.bench.methods.system_load import PHASE_S, TOKENS, Phase, SystemLoad
from penstock.bench.report import failures_line, simulated_time
from penstock.simulate.report import aligned

HEADINGS = (
    "concurrency",
    "window (s)",
    "tokens/s",
    "responses",
    "TTFT (ms)",
    "end-to-end (ms)",
    "output speed",
    "throughput",
)
SHORT = 0.99  # of the phase, from which a window counts as complete


def lines(found: SystemLoad) -> Iterator[str]:
    yield f"artificial-analysis system-load, {found.endpoint}"
    yield f"{TOKENS:,} input and {TOKENS:,} output tokens per request; medians of each phase"
    if found.endpoint.speed != 1.0:
        yield simulated_time(found.endpoint.speed)
    if found.interrupted:
        yield f"incomplete: {found.interrupted}"
    yield from aligned([HEADINGS, *(_cells(phase) for phase in found.phases)])
    yield "tokens/s: output of all requests. Output speed and throughput, tokens/s of a request:"
    yield from definition_lines()
    yield from remarks(found)


def _cells(phase: Phase) -> tuple[str, ...]:
    return (
        str(phase.concurrency),
        f"{phase.window_s:.0f}",
        f"{phase.system_throughput:.0f}",
        f"{phase.response_rate:.1%}",
        _median(phase.ttft_ms),
        _median(phase.e2e_ms),
        _median(phase.output_speed),
        _median(phase.throughput),
    )


def _median(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.median:.1f}"


def remarks(found: SystemLoad) -> Iterator[str]:
    """The result, and what limits the comparison with published figures."""
    best = found.best
    highest = f"{best.system_throughput:.0f} tokens/s at concurrency {best.concurrency}"
    yield f"highest throughput: {highest}" + (
        "" if found.reached_ceiling else "; the test ended before the throughput stopped rising"
    )
    if found.phase_s < PHASE_S:
        yield f"phases last {found.phase_s:g} s; those of Artificial Analysis last {PHASE_S:g} s"
    for phase in found.phases:
        if phase.window_s < SHORT * found.phase_s:
            yield (
                f"concurrency {phase.concurrency}: the window is shorter than a phase, because "
                "requests took longer than before, or all prompts were sent"
            )
        if line := failures_line(phase.failures):
            yield f"concurrency {phase.concurrency}: {line}"
        if phase.distortion:
            yield (
                f"concurrency {phase.concurrency}: this machine may have distorted the "
                f"latencies: {phase.distortion}"
            )


def document(found: SystemLoad) -> SystemLoadDocument:
    return SystemLoadDocument(
        schema_version=SCHEMA_VERSION,
        kind="artificial-analysis-system-load",
        method="artificial-analysis",
        part="system-load",
        client=aiperf.VERSION,
        endpoint=found.endpoint,
        phase_s=found.phase_s,
        phases=list(found.phases),
        reached_ceiling=found.reached_ceiling,
        definitions=DEFINITIONS,
        interrupted=found.interrupted or None,
        remarks=list(remarks(found)),
    )


def as_json(found: SystemLoad) -> str:
    return document(found).as_json()
