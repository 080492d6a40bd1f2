"""Writes a report as a page: one HTML file that contains its styles, its charts and Plotly."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.files import PRIVATE, USUAL, replacing
from penstock.reports.model import (
    Chart,
    Figure,
    Figures,
    Foldable,
    Notes,
    Part,
    Report,
    Section,
    State,
    Table,
)
from penstock.reports.plotly import figure

# At the beginning of every report, so that a report replaces only reports.
HTML_MARK = '<meta name="generator" content="penstock">'
PLOTLY = "package_data/plotly.min.js"  # in the wheel of plotly
ZOOM = "Select a range in a chart to zoom all charts to it. Double-click to reset."
LONG_VALUE = 16  # characters of a tile from which on its text is smaller
WRAPPED = 60  # characters of a cell from which on its text wraps


ICONS = {State.MET: "✓", State.MISSED: "✗", State.INCOMPLETE: "!", State.NONE: "–"}


Provenance = Sequence[tuple[str, str]]
"""Name and value, as `provenance.provenance` returns them."""


def write_report(
    path: Path, report: Report, provenance: Provenance, *, is_private: bool = False
) -> None:
    """InputError if the file cannot be written. ``is_private``: only its owner can read it."""
    try:
        with replacing(path, PRIVATE if is_private else USUAL) as file:
            file.write(report_html(report, provenance).encode())
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        fix = "Free space there, or name a file in another folder."
        raise InputError(message, file=str(path), fix=fix) from None


def report_html(report: Report, provenance: Provenance) -> str:
    body = _Body()
    content = "\n".join(body.lines(report, provenance))
    title = _escaped(f"{report.kind}: {report.title}")
    folder = files("penstock.reports")
    style = folder.joinpath("report.css").read_text("utf-8")
    script = folder.joinpath("report.js").read_text("utf-8")
    plotly = files("plotly").joinpath(PLOTLY).read_text("utf-8") if body.charts else ""
    drawing = f"<script>{plotly}</script>\n<script>{script}</script>" if plotly else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">{HTML_MARK}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style></head>
<body><main>
{content}
</main>
<script type="application/json" id="charts">{script_json(body.charts)}</script>
{drawing}
</body></html>
"""


def script_json(value: Any) -> str:
    """JSON that cannot end the element `script` that contains it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _escaped(text: str) -> str:
    return html.escape(text.strip())


def _sentence(text: str) -> str:
    """Escaped, with a capital letter: a terminal shows it without."""
    return _escaped(text[:1].upper() + text[1:])


@dataclass
class _Body:
    """Collects the charts while it writes the page."""

    charts: list[dict[str, Any]] = field(default_factory=list)

    def lines(self, report: Report, provenance: Provenance) -> Iterator[str]:
        yield f"<h1>{_escaped(f'{report.kind}: {report.title}')}</h1>"
        yield f'<p class="subtitle">{_sentence(report.subtitle)}</p>'
        for verdict in report.verdicts:
            icon = f'<span class="icon" aria-hidden="true">{ICONS[verdict.state]}</span>'
            text = f"<span>{_sentence(verdict.text)}</span>"
            yield f'<div class="verdict {verdict.state}" role="status">{icon}{text}</div>'
        for section in report.sections:
            yield from self._section(section)
        yield "<section><h2>Provenance</h2>"
        yield _facts(provenance)
        yield "</section>"

    def _section(self, section: Section) -> Iterator[str]:
        """Nothing without parts."""
        if section.parts:
            title = f"<h2>{_escaped(section.title)}</h2>" if section.title else ""
            yield f"<section>{title}"
            if sum(isinstance(part, Chart) and bool(part.group) for part in section.parts) > 1:
                yield f'<p class="hint">{ZOOM}</p>'
            yield from self._parts(section.parts)
            yield "</section>"

    def _parts(self, parts: Iterable[Part]) -> Iterator[str]:
        for is_chart, run in groupby(parts, key=lambda part: isinstance(part, Chart)):
            if is_chart:
                yield self._charts(part for part in run if isinstance(part, Chart))
            else:
                yield from map(self._part, run)

    def _part(self, part: Part) -> str:
        if isinstance(part, Table):
            return _table(part)
        if isinstance(part, Notes):
            return _notes(part.lines)
        if isinstance(part, Figures):
            return f'<dl class="tiles">{"".join(map(_tile, part.figures))}</dl>'
        if isinstance(part, Foldable):
            state = " open" if part.is_open else ""
            summary = f"<summary>{_escaped(part.title)}</summary>"
            return f"<details{state}>{summary}{self._charts(part.charts)}</details>"
        assert isinstance(part, str)
        return f"<p>{_sentence(part)}</p>"

    def _charts(self, charts: Iterable[Chart]) -> str:
        return f'<div class="charts">{"".join(map(self._chart, charts))}</div>'

    def _chart(self, chart: Chart) -> str:
        self.charts.append(figure(chart) | {"group": chart.group})
        title = _escaped(chart.title)
        plot = (
            f'<div class="plot" data-chart="{len(self.charts) - 1}" role="img" '
            f'aria-label="{title}" data-height="{chart.height}" '
            f'style="height:{chart.height}px"></div>'
        )
        return f'<figure class="chart"><figcaption>{title}</figcaption>{plot}</figure>'


def _tile(tile: Figure) -> str:
    note = f'<dd class="note">{_escaped(tile.note)}</dd>' if tile.note else ""
    name, value = _sentence(tile.name), _escaped(tile.value)
    size = ' class="long"' if len(tile.value) > LONG_VALUE else ""
    return f'<div class="tile"><dt>{name}</dt><dd{size}>{value}</dd>{note}</div>'


def _notes(lines: Iterable[str]) -> str:
    items = (
        f"<li{' class=more' if line.startswith(' ') else ''}>{_escaped(line)}</li>"
        for line in lines
    )
    return f'<ul class="notes">{"".join(items)}</ul>'


def _table(table: Table) -> str:
    """It can be reached with the keyboard, because it may scroll."""
    head = "".join(f'<th scope="col">{_escaped(cell)}</th>' for cell in table.headings)
    rows = "".join(_row(row, len(table.headings)) for row in table.rows)
    body = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="table" tabindex="0"><table>{body}</table></div>'


def _row(cells: Sequence[str], width: int) -> str:
    *first, last = cells
    span = width - len(first)
    return f"<tr>{''.join(_cell(cell, 1) for cell in first)}{_cell(last, span)}</tr>"


def _cell(text: str, span: int) -> str:
    kind = ' class="text"' if span > 1 or len(text) > WRAPPED else ""
    wide = f' colspan="{span}"' if span > 1 else ""
    return f"<td{kind}{wide}>{_escaped(text)}</td>"


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{_escaped(name)}</th><td><code>{_escaped(value)}</code></td></tr>'
        for name, value in facts
    )
    return f'<div class="table" tabindex="0"><table class="facts">{rows}</table></div>'
