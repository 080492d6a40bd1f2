"""Prints each probe when it ends, and the report of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape

from penstock.files import page
from penstock.reports import model
from penstock.reports.model import (
    BAD,
    GOOD,
    GRAY,
    Axis,
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
    height_of,
)
from penstock.text.terminal import fitted
from penstock.verify.probes import NOT_COVERED, ProbeRun
from penstock.verify.result import Verdict

ON_MOCKERS = (
    "no engine runs: mockers simulate it, so the probes test the frontend, the router and the graph"
)
PAGE_COLORS = {Verdict.PASS: GOOD, Verdict.FAIL: BAD, Verdict.CANNOT_TELL: GRAY}
ICONS = {Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.CANNOT_TELL: "–"}
COLUMNS = ("probe", "verdict", "duration (s)", "required", "detail", "not covered", "hint")
MARGIN = 40  # columns before a detail
COLOR = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.CANNOT_TELL: "yellow"}


def print_results(results: Iterable[ProbeRun], *, is_mocked: bool = False) -> list[ProbeRun]:
    """Print each result when its probe ends, then the counts; return all results."""
    console = Console(highlight=False, soft_wrap=True)
    if is_mocked:
        console.print("\n".join(fitted(ON_MOCKERS)), markup=False)
    probes = []
    for probe in results:
        probes.append(probe)
        verdict = probe.result.verdict
        required = "" if probe.ok or verdict is Verdict.FAIL else " (listed in verify.must_pass)"
        facts = f"{verdict:<11} {probe.name:<17} {probe.seconds:6.1f} s"
        lines = fitted(f"{facts}  {probe.result.detail}{required}", MARGIN)
        mark, first = lines[0][: len(verdict)], lines[0][len(verdict) :]
        console.print(f"[{COLOR[verdict]}]{mark}[/]{escape(first)}")
        if probe.result.hint and verdict is not Verdict.PASS:
            lines += fitted(f"{'':<{MARGIN}}hint: {probe.result.hint}", MARGIN)
        for line in lines[1:]:
            console.print(line, markup=False)
    count = {v: sum(probe.result.verdict is v for probe in probes) for v in Verdict}
    console.print(", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    if count[Verdict.PASS]:
        text = f"What a pass does not cover: --json, --report and {page('verify')} state it."
        console.print("\n".join(fitted(text)), markup=False)
    return probes


def report_of(
    target: str,
    probes: Sequence[ProbeRun],
    *,
    is_mocked: bool = False,
) -> Report:
    """``target``: what was verified."""
    subtitle = "probes of a running deployment, compared with its graph"
    table: list[Part] = [Table(COLUMNS, list(map(_row, probes)))] if probes else []
    return Report(
        kind="Verification",
        title=target,
        subtitle=f"{subtitle}; {ON_MOCKERS}" if is_mocked else subtitle,
        verdicts=[_verdict(probes)],
        sections=[
            Section("", [Figures(list(_figures(probes)))]),
            Section("Probes", table),
            Section("Durations", [durations(probes)] if probes else []),
        ],
    )


def _verdict(probes: Sequence[ProbeRun]) -> model.Verdict:
    failed = [probe.name for probe in probes if not probe.ok]
    if failed:
        return model.Verdict(State.MISSED, f"not verified: {', '.join(failed)}")
    if not any(probe.result.verdict is Verdict.PASS for probe in probes):
        return model.Verdict(State.NONE, "not verified: no probe passed, and none failed")
    return model.Verdict(State.MET, "verified: no probe failed")


def _figures(probes: Sequence[ProbeRun]) -> Iterator[Figure]:
    for verdict in Verdict:
        count = sum(probe.result.verdict is verdict for probe in probes)
        yield Figure(str(verdict), str(count), "probes")
    yield Figure("duration", f"{sum(probe.seconds for probe in probes):.1f} s")


def _row(probe: ProbeRun) -> tuple[str, ...]:
    result = probe.result
    return (
        probe.name,
        f"{ICONS[result.verdict]} {result.verdict}",
        f"{probe.seconds:.1f}",
        "yes" if probe.required else "no",
        result.detail,
        NOT_COVERED[probe.name],
        result.hint or "-",
    )


def durations(probes: Sequence[ProbeRun]) -> Chart:
    """A bar for each probe, with the color of its verdict."""
    series = []
    for verdict, color in PAGE_COLORS.items():
        bars = {row: probe for row, probe in enumerate(probes) if probe.result.verdict is verdict}
        if bars:
            bar = Series(
                name=str(verdict),
                x=[probe.seconds for probe in bars.values()],
                y=list(bars),
                mark=Mark.ROWS,
                color=color,
                texts=[probe.name for probe in bars.values()],
            )
            series.append(bar)
    return Chart(
        title="Duration of each probe",
        x=Axis("duration", "s"),
        y=Axis("", names=[probe.name for probe in probes]),
        series=series,
        height=height_of(len(probes)),
    )
