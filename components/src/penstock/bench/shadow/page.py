"""The HTML report of `penstock bench shadow`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.bench.compare_page import change_tiles, changes_of
from penstock.bench.shadow.report import (
    LABELS,
    ShadowResult,
    classes_table,
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
    COLORS,
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
    """InputError if the file cannot be written. With texts, only its owner can read it."""
    report = report_of(found, provenance, show_text=show_text)
    write_report(path, report, is_private=show_text)


def report_of(
    found: ShadowResult, provenance: Sequence[tuple[str, str]], *, show_text: bool
) -> Report:
    """``show_text``: include excerpts of the responses that differ."""
    verdict = found.verdict
    headings, *rows = classes_table(verdict.classes)
    differences: list[Part] = []
    if rows:
        differences = [rates(verdict.classes), Table(headings=headings, rows=rows)]
    findings = [one for one in verdict.classes if one.status is Status.FINDING]
    others = [one for one in verdict.classes if one.status is not Status.FINDING]
    excerpts = list(texts(found)) if show_text else []
    more = [
        *(not_compared(found.counts) if found.counts else ()),
        *(line for one in others for line in details(one)),
        *notes(found),
    ]
    return Report(
        title="Comparison of responses",
        subtitle=f"{verdict.pairs} of {found.total} requests compared",
        verdicts=list(_verdicts(found)),
        tiles=list(_tiles(found)),
        sections=[
            Section(title="Endpoints", parts=[Notes(lines=list(endpoint_lines(found)))]),
            Section(title="Differences", parts=differences),
            Section(
                title="Findings", parts=_notes([line for one in findings for line in details(one)])
            ),
            Section(title="Responses that differ", parts=_notes(excerpts)),
            Section(
                title="Latency (not part of the verdict)", parts=changes_of(verdict.latencies, [])
            ),
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
    note = f"{len(verdict.classes)} kinds of difference compared"
    yield Tile(name="Findings", value=str(findings), note=note)
    yield from change_tiles(verdict.latencies)


def rates(classes: Sequence[ClassVerdict]) -> Chart:
    """How often B differs from A, and A from itself."""
    names = [LABELS[one.name] for one in classes]
    pairs = [(one.differing, one.compared) for one in classes]
    repeats = [(one.differing_repeated, one.repeated) for one in classes]
    marks = [("A and A", repeats, GRAY, "square"), ("A and B", pairs, COLORS[0], "circle")]
    traces = []
    for name, counts, color, symbol in marks:
        rows = [row for row, (_, total) in enumerate(counts) if total]
        if not rows:
            continue  # `--repeats 0`
        shares = [100 * counts[row][0] / counts[row][1] for row in rows]
        texts_of = ["{}: {}: {} of {}".format(name, names[row], *counts[row]) for row in rows]
        marker = {"color": color, "symbol": symbol}
        hover = "%{x:.3~g} % of the requests"
        traces.append(points(name, shares, [float(r) for r in rows], texts_of, hover, marker))
    layout = {
        **FRAME,
        "xaxis": axis("requests whose responses differ (%)", range=[-2, 102]),
        "yaxis": names_axis([plain(name) for name in names]),
    }
    title = "How often responses differ"
    return Chart(title=title, data=traces, layout=layout, height=height_of(len(names) + 1))
