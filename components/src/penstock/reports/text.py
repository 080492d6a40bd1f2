"""Prints a report as text: its title, verdicts, figures, tables and notes, without charts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from penstock.reports.model import Figures, Notes, Part, Report, Table
from penstock.text.terminal import fitted

NARROW = 80  # columns of the narrowest terminal, which tables fit
UNIT = re.compile(r"(.*) \((\w+)\)")  # a heading with a unit


def print_report(report: Report, *, width: int | None = None, to: TextIO | None = None) -> None:
    """``width``: columns of a table from which on it has only its main columns; None: no limit."""
    for line in lines(report, width=width, to=to):
        print(line, file=to)


def lines(report: Report, *, width: int | None = None, to: TextIO | None = None) -> Iterator[str]:
    """Texts are wrapped for the terminal ``to`` (default: standard output); tables are not."""
    yield from _wrapped([f"{report.title}; {report.subtitle}"], to)
    yield from _wrapped((verdict.text for verdict in report.verdicts), to)
    for section in report.sections:
        if not section.is_detail:
            for part in section.parts:
                yield from _part(part, width, to)


def _part(part: Part, width: int | None, to: TextIO | None) -> Iterator[str]:
    if isinstance(part, str):
        yield from _wrapped([part], to)
    elif isinstance(part, Notes):
        yield from _wrapped(part.lines, to)
    elif isinstance(part, Figures):
        for figure in part.figures:
            note = f" ({figure.note})" if figure.note else ""
            yield from _wrapped([f"{figure.name}: {figure.value}{note}"], to)
    elif isinstance(part, Table):
        yield from table_lines(part, width)


def _wrapped(texts: Iterable[str], to: TextIO | None) -> Iterator[str]:
    """Later lines of a text are indented by two columns more than its first line."""
    for text in texts:
        yield from fitted(text, 2 + len(text) - len(text.lstrip()), to)


def table_lines(table: Table, width: int | None = None) -> Iterator[str]:
    """All columns, or the main ones if the lines would be longer than ``width``."""
    rows = list(aligned([table.headings, *table.rows]))
    if width is None or not table.main or all(len(row) <= width for row in rows):
        yield from rows
    else:
        yield from _main_columns(table, width)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The cells of each row in columns. A row with fewer cells than the first has a last cell that
    takes the rest."""
    count = len(rows[0])
    # A cell that takes the rest of its row must not widen the column in which it begins.
    complete = [row for row in rows if len(row) == count]
    widths = [max(map(len, column)) for column in zip(*complete, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield "  ".join(cells).rstrip()


def _main_columns(table: Table, width: int) -> Iterator[str]:
    """Units are in the cells, and a name that would make its line longer than ``width`` has a line
    of its own."""
    columns = [table.headings.index(heading) for heading in table.main]
    matches = [UNIT.fullmatch(heading) for heading in table.main]
    names = [table.headings[0], *(row[0] for row in table.rows)]
    rows = [[match[1] if match else name for match, name in zip(matches, table.main, strict=True)]]
    for row in table.rows:
        cells = (row[column] for column in columns)
        rows.append([f"{c} {m[2]}" if m else c for c, m in zip(cells, matches, strict=True)])
    rows = [[cell.replace(" / ", "/") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    longest = max(width - sum(size + 2 for size in widths), len(names[0]))
    margin = max(len(name) for name in names if len(name) <= longest)
    for name, row in zip(names, rows, strict=True):
        if len(name) > margin:
            yield name
        first = name if len(name) <= margin else ""
        yield next(aligned([[first.ljust(margin), *map(str.ljust, row, widths)]]))
