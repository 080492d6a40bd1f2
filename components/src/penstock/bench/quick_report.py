"""The report of a quick calibration."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.bench.quick import QuickRun
from penstock.bench.report import calibration_parts, kind_of, on_mockers, simulated_time
from penstock.reports.model import Report, Section, State, Table, Verdict, notes_of
from penstock.text.numbers import significant


def report_of(quick: QuickRun) -> Report:
    endpoint = quick.endpoint
    is_substitute = endpoint.engine_is_substitute
    verdicts = [Verdict(State.INCOMPLETE, on_mockers(endpoint.model))] if is_substitute else []
    calibration = [*calibration_parts(quick.calibration)] if quick.calibration else []
    return Report(
        kind="Quick calibration",
        title=str(endpoint),
        subtitle=kind_of(is_substitute=is_substitute),
        verdicts=verdicts,
        sections=[
            Section("Measured", [_table(quick)]),
            Section("Calibration", calibration),
            Section("Notes", notes_of(_notes(quick))),
        ],
    )


def _table(quick: QuickRun) -> Table:
    figures = quick.figures
    return Table(
        ("figure", "value", "repeatability"),
        [
            (
                "peak prefill throughput of a worker",
                f"{figures.peak_prefill_throughput:,.0f} tokens/s",
                f"{figures.prefill_repeatability:.1%}",
            ),
            (
                "decode step with 1 request",
                f"{significant(figures.step_ms)} ms",
                f"{figures.step_repeatability:.1%}",
            ),
            (
                f"decode step with {figures.batch} requests",
                f"{significant(figures.batch_step_ms)} ms",
                f"{figures.batch_step_repeatability:.1%}",
            ),
            ("TTFT without load", f"{significant(figures.ttft_ms)} ms", "-"),
        ],
    )


def _notes(quick: QuickRun) -> Iterator[str]:
    figures, speed = quick.figures, quick.endpoint.speed
    yield f"{figures.requests} requests in {figures.seconds:.0f} s"
    yield f"prompts of {figures.prompt_tokens:,} tokens that no prefix cache has"
    yield "repeatability: difference between the first and the second half of a phase"
    if speed != 1:
        yield simulated_time(speed)
    if quick.calibration is None:
        yield from (f"warning: {warning}" for warning in figures.warnings)
