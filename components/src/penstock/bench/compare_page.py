"""The HTML report of `penstock bench` with two targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.bench.compare import NAMES, Comparison
from penstock.bench.compare_report import HEADINGS, cautions, cells, name_of, verdict_lines
from penstock.bench.difference import INTERVAL, Difference, highest_shown, interval
from penstock.bench.limits import LimitCheck, Outcome
from penstock.bench.page import distributions, kind_of, mocker_verdict
from penstock.bench.report import failures_line
from penstock.graph.slo import Slo
from penstock.reports.charts import (
    BAD,
    FRAME,
    GOOD,
    GRAY,
    LIMIT,
    Chart,
    Trace,
    axis,
    height_of,
    names_axis,
    plain,
    rounded,
)
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
from penstock.simulate.report import arrival_of

COLORS = {1: BAD, -1: GOOD, 0: GRAY}
KINDS = {1: "B is slower", -1: "B is faster", 0: "no claim"}
STATES = {
    Outcome.EXCEEDED: State.MISSED,
    Outcome.UNDECIDED: State.INCOMPLETE,
    Outcome.PASSED: State.MET,
}
LABELS = {
    State.MISSED: "limit exceeded",
    State.INCOMPLETE: "limit undecided",
    State.MET: "limit kept",
}


def write_page(
    path: Path,
    found: Comparison,
    checked: Sequence[LimitCheck],
    provenance: Sequence[tuple[str, str]],
) -> None:
    """InputError if the file cannot be written."""
    write_report(path, report_of(found, checked, provenance))


def report_of(
    found: Comparison, checked: Sequence[LimitCheck], provenance: Sequence[tuple[str, str]]
) -> Report:
    request = found.request
    targets = [
        f"{name}: {endpoint}" for name, endpoint in zip(NAMES, request.endpoints, strict=True)
    ]
    samples = {
        f"{name}: {endpoint.model}": [both[number] for pair in found.served for both in pair]
        for number, (name, endpoint) in enumerate(zip(NAMES, request.endpoints, strict=True))
    }
    return Report(
        title="Comparison of two targets",
        subtitle=f"{request.workload.name} ({arrival_of(request.workload)}) · "
        f"{kind_of(is_substitute=bool(found.mocked))}",
        verdicts=list(_verdicts(found, checked)),
        tiles=list(_tiles(found)),
        sections=[
            Section(title="Targets", parts=[Notes(lines=targets)]),
            Section(title="Change from A to B", parts=changes_of(found.differences, checked)),
            Section(
                title="Latency of the counted requests", parts=[*distributions(samples, Slo())]
            ),
            Section(title="Notes", parts=[Notes(lines=lines)] if (lines := _notes(found)) else []),
        ],
        provenance=provenance,
    )


def _verdicts(found: Comparison, checked: Sequence[LimitCheck]) -> Iterator[Verdict]:
    for model in found.mocked:
        yield mocker_verdict(model)
    if found.interrupted:
        yield Verdict(state=State.INCOMPLETE, text=f"The run is incomplete: {found.interrupted}")
    state = State.NONE if found.has_verdict else State.INCOMPLETE
    text = "; ".join(verdict_lines(found))
    yield Verdict(state=state, text=text[0].upper() + text[1:])
    for one in checked:
        own = STATES[one.outcome]
        yield Verdict(state=own, text=f"--fail-if {one}")


def _tiles(found: Comparison) -> Iterator[Tile]:
    yield from change_tiles(found.differences)
    note = f"in {found.pairs} pairs of slices"
    yield Tile(name="Counted requests", value=f"{found.requests:,}", note=note)
    for name, failures in zip(NAMES, found.failures, strict=True):
        yield Tile(name=f"Failed requests to {name}", value=f"{failures.total} of {failures.sent}")


def _notes(found: Comparison) -> list[str]:
    notes = []
    for name, failures, unsent in zip(NAMES, found.failures, found.unsent, strict=True):
        if unsent:
            notes.append(f"{name}: {unsent} requests were not sent, or have no record")
        if line := failures_line(failures):
            notes.append(f"{name}: {line}")
    return [*notes, *cautions(found)]


def change_tiles(differences: Sequence[Difference]) -> Iterator[Tile]:
    """Of the mean latencies."""
    for one in differences:
        if one.metric.endswith("_mean"):
            note = f"{one.first_ms:,.1f} → {one.second_ms:,.1f} ms"
            yield Tile(name=name_of(one.metric), value=f"{one.change:+.1%}", note=note)


def changes_of(differences: Sequence[Difference], checked: Sequence[LimitCheck]) -> list[Part]:
    """A chart and a table of all latencies; nothing without a difference."""
    if not differences:
        return []
    rows = [list(cells(one)) for one in differences]
    headings = ["latency (ms)", *HEADINGS[1:]]
    return [forest(differences, checked), Table(headings=headings, rows=rows)]


def forest(differences: Sequence[Difference], checked: Sequence[LimitCheck]) -> Chart:
    """Each change with its interval, and the limits of `--fail-if`."""
    rows = {one.metric: number for number, one in enumerate(differences)}
    traces: list[Trace] = []
    for claim, kind in KINDS.items():
        some = [one for one in differences if one.claim == claim]
        if some:
            traces.append(_changes(kind, some, rows, COLORS[claim]))
    for check in checked:
        if check.limit.metric in rows:
            traces.append(_limit(check, rows[check.limit.metric]))
    layout = {
        **FRAME,
        "xaxis": axis("change from A to B (%)") | {"zeroline": True},
        "yaxis": names_axis([plain(name_of(one.metric)) for one in differences]),
    }
    title = f"Change of each latency, with its {INTERVAL}"
    return Chart(title=title, data=traces, layout=layout, height=height_of(len(rows) + 1))


def _changes(kind: str, some: Sequence[Difference], rows: dict[str, int], color: str) -> Trace:
    change = [one.change * 100 for one in some]
    low = [one.change if one.low is None else one.low for one in some]
    high = [one.change if one.high is None else min(one.high, highest_shown(one)) for one in some]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": kind,
        "x": rounded(change),
        "y": [rows[one.metric] for one in some],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": rounded(h * 100 - c for h, c in zip(high, change, strict=True)),
            "arrayminus": rounded(c - one * 100 for one, c in zip(low, change, strict=True)),
            "color": color,
        },
        "customdata": [f"{name_of(one.metric)}<br>{_range(one)}" for one in some],
        "marker": {"size": 10, "color": color},
        "hovertemplate": "%{customdata}<br>%{x:+.3~g}%<extra></extra>",
    }


def _range(one: Difference) -> str:
    if one.low is None or one.high is None:
        return "no interval: too few requests"
    return f"{INTERVAL}: {interval(one)}"


def _limit(check: LimitCheck, row: int) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{LABELS[STATES[check.outcome]]}: {plain(str(check.limit))}",
        "x": [check.limit.most * 100] * 2,
        "y": [row - 0.4, row + 0.4],
        "line": {"color": LIMIT, "width": 3},
        "hovertemplate": f"{plain(str(check))}<extra></extra>",
    }
