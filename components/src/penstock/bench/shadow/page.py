"""The HTML report of `penstock bench shadow`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.bench.compare_page import forest
from penstock.bench.compare_report import HEADINGS, cells, name_of
from penstock.bench.shadow.report import (
    LABELS,
    ShadowResult,
    classes_table,
    compared_line,
    details,
    endpoint_lines,
    not_compared,
    notes,
    sentence,
    texts,
)
from penstock.bench.shadow.verdict import ClassVerdict, Status, Verdict
from penstock.reports import page
from penstock.reports.charts import (
    BAD,
    FRAME,
    GRAY,
    Chart,
    axis,
    height_of,
    names_axis,
    plain,
    points,
)
from penstock.reports.page import Notes, Part, Report, Section, State, Table, Tile, write_report

STATES = {
    Verdict.FINDINGS: State.MISSED,
    Verdict.NO_FINDINGS: State.MET,
    Verdict.UNDECIDED: State.INCOMPLETE,
}


def write_page(
    path: Path, found: ShadowResult, provenance: Sequence[tuple[str, str]], *, show_text: bool
) -> None:
    """InputError if the file cannot be written."""
    write_report(path, report_of(found, provenance, show_text=show_text))


def report_of(
    found: ShadowResult, provenance: Sequence[tuple[str, str]], *, show_text: bool
) -> Report:
    """``show_text``: with parts of the responses that differ."""
    verdict = found.verdict
    headings, *rows = classes_table(verdict.classes)
    differences: list[Part] = []
    if rows:
        differences = [rates(verdict.classes), Table(headings=headings, rows=rows)]
    latencies: list[Part] = []
    if verdict.latencies:
        table = Table(headings=HEADINGS, rows=[cells(one) for one in verdict.latencies])
        latencies = [forest(verdict.latencies, []), table]
    findings = [line for one in verdict.classes for line in details(one)]
    excerpts = list(texts(found)) if show_text else []
    more = [*(not_compared(found.counts) if found.counts else ()), *notes(found)]
    return Report(
        title="Comparison of responses",
        subtitle=compared_line(found),
        verdicts=list(_verdicts(found)),
        tiles=list(_tiles(found)),
        sections=[
            Section(title="Endpoints", parts=[Notes(lines=list(endpoint_lines(found)))]),
            Section(title="Differences", parts=differences),
            Section(title="Findings", parts=_notes(findings)),
            Section(title="Responses that differ", parts=_notes(excerpts)),
            Section(title="Latency, which is not part of the verdict", parts=latencies),
            Section(title="Notes", parts=_notes(more)),
        ],
        provenance=provenance,
    )


def _notes(lines: Sequence[str]) -> list[Part]:
    return [Notes(lines=lines)] if lines else []


def _verdicts(found: ShadowResult) -> Iterator[page.Verdict]:
    if found.interrupted:
        yield page.Verdict(
            state=State.INCOMPLETE, text=f"The run is incomplete: {found.interrupted}"
        )
    text = sentence(found.verdict)
    yield page.Verdict(state=STATES[found.verdict.verdict], text=text[0].upper() + text[1:])


def _tiles(found: ShadowResult) -> Iterator[Tile]:
    verdict = found.verdict
    note = f"{verdict.repeated:,} of them sent to A twice"
    yield Tile(name="Compared requests", value=f"{verdict.pairs:,}", note=note)
    findings = sum(one.status is Status.FINDING for one in verdict.classes)
    note = f"{len(verdict.classes)} kinds of difference were compared"
    yield Tile(name="Findings", value=str(findings), note=note)
    for one in verdict.latencies:
        if one.metric.endswith("_mean"):
            note = f"{one.first_ms:,.1f} → {one.second_ms:,.1f} ms"
            yield Tile(name=name_of(one.metric), value=f"{one.change:+.1%}", note=note)


def rates(classes: Sequence[ClassVerdict]) -> Chart:
    """How often B differs from A, and A from itself."""
    names = [LABELS[one.name] for one in classes]
    numbers = range(len(classes))
    pairs = [(one.differing, one.compared, n) for n, one in zip(numbers, classes, strict=True)]
    repeats = [
        (one.differing_repeated, one.repeated, n) for n, one in zip(numbers, classes, strict=True)
    ]
    traces = [
        points(
            name,
            [100 * hits / total for hits, total, _ in some if total],
            [row for _, total, row in some if total],
            [f"{name}: {names[row]}: {hits} of {total}" for hits, total, row in some if total],
            "%{x:.3~g} % of the requests",
            {"color": color, "symbol": symbol},
        )
        for name, some, color, symbol in (
            ("A and A", repeats, GRAY, "square"),
            ("A and B", pairs, BAD, "circle"),
        )
    ]
    layout = {
        **FRAME,
        "xaxis": axis("requests whose responses differ (%)", range=[-2, 102]),
        "yaxis": names_axis([plain(name) for name in names]),
    }
    title = "How often responses differ"
    return Chart(title=title, data=traces, layout=layout, height=height_of(len(names) + 1))
