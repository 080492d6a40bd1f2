"""The HTML report of `penstock verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.reports.charts import (
    BAD,
    FRAME,
    GOOD,
    GRAY,
    Chart,
    Trace,
    axis,
    height_of,
    names_axis,
    plain,
    rounded,
)
from penstock.reports.page import Report, Section, State, Table, Tile, Verdict, write_report
from penstock.verify.probes import NOT_COVERED
from penstock.verify.report import ON_MOCKERS
from penstock.verify.result import Verdict as ProbeVerdict
from penstock.verify.run_probes import ProbeRun

COLORS = {ProbeVerdict.PASS: GOOD, ProbeVerdict.FAIL: BAD, ProbeVerdict.CANNOT_TELL: GRAY}
ICONS = {ProbeVerdict.PASS: "✓", ProbeVerdict.FAIL: "✗", ProbeVerdict.CANNOT_TELL: "–"}


def write_page(
    path: Path,
    target: str,
    probes: Sequence[ProbeRun],
    provenance: Sequence[tuple[str, str]],
    *,
    is_mocked: bool = False,
) -> None:
    """``target``: what was verified. InputError if the file cannot be written."""
    write_report(path, report_of(target, probes, provenance, is_mocked=is_mocked))


def report_of(
    target: str,
    probes: Sequence[ProbeRun],
    provenance: Sequence[tuple[str, str]],
    *,
    is_mocked: bool = False,
) -> Report:
    subtitle = "probes of a running deployment, compared with its graph"
    heads = ("probe", "verdict", "duration (s)", "required", "detail", "not covered", "hint")
    return Report(
        title=f"Verification of {target}",
        subtitle=f"{subtitle}; {ON_MOCKERS}" if is_mocked else subtitle,
        verdicts=[_verdict(probes)],
        tiles=list(_tiles(probes)),
        sections=[
            Section(
                title="Probes",
                parts=[Table(headings=heads, rows=list(map(_row, probes)))] if probes else [],
            ),
            Section(title="Durations", parts=[durations(probes)] if probes else []),
        ],
        provenance=provenance,
    )


def _verdict(probes: Sequence[ProbeRun]) -> Verdict:
    failed = [probe.name for probe in probes if not probe.ok]
    if failed:
        return Verdict(state=State.MISSED, text=f"Not verified: {', '.join(failed)}")
    if not any(probe.result.verdict is ProbeVerdict.PASS for probe in probes):
        return Verdict(state=State.NONE, text="Not verified: no probe passed, and none failed")
    return Verdict(state=State.MET, text="Verified: no probe failed")


def _tiles(probes: Sequence[ProbeRun]) -> Iterator[Tile]:
    for verdict in ProbeVerdict:
        count = sum(probe.result.verdict is verdict for probe in probes)
        yield Tile(name=str(verdict).capitalize(), value=str(count), note="probes")
    yield Tile(name="Duration", value=f"{sum(probe.seconds for probe in probes):.1f} s")


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
    traces: list[Trace] = []
    for verdict, color in COLORS.items():
        some = {n: one for n, one in enumerate(probes) if one.result.verdict is verdict}
        if some:
            traces.append(_bars(str(verdict), color, some))
    layout = {
        **FRAME,
        "xaxis": axis("duration (s)", rangemode="tozero"),
        "yaxis": names_axis([plain(probe.name) for probe in probes]),
        "barmode": "overlay",
    }
    title = "Duration of each probe"
    return Chart(title=title, data=traces, layout=layout, height=height_of(len(probes)))


def _bars(name: str, color: str, some: dict[int, ProbeRun]) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": rounded(probe.seconds for probe in some.values()),
        "y": list(some),
        "customdata": [plain(probe.name) for probe in some.values()],
        "marker": {"color": color},
        "hovertemplate": f"%{{customdata}}: %{{x:.3~g}} s<extra>{name}</extra>",
    }
