"""Prints one snapshot of a running graph: `penstock top --once` and `--json`."""

from __future__ import annotations

import asyncio
import json

from rich.text import Text

from penstock.live.model import LiveSnapshot
from penstock.live.protocols import SnapshotSource
from penstock.live.text import (
    COLUMNS,
    columns_for,
    event_line,
    title_line,
    topology_lines,
    totals_lines,
)
from penstock.text.terminal import add_plain_row, columns, console

EVENTS = 10


def print_once(graph: SnapshotSource, *, as_json: bool) -> None:
    """Measures for a second, because a rate needs two scrapes."""
    found = asyncio.run(_measured(graph))
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        _print(found)


async def _measured(graph: SnapshotSource) -> LiveSnapshot:
    try:
        return await graph.measured()
    finally:
        await graph.close()


def _print(found: LiveSnapshot) -> None:
    out = console()
    shown = columns_for(out.width)
    table = columns(
        *(column.title for column in shown),
        numbers=tuple(column.title for column in COLUMNS if column.is_number),
    )
    for worker in found.workers:
        add_plain_row(table, (column.text(worker) for column in shown))
    out.print(Text(title_line(found), style="bold"))
    for line in [*topology_lines(found, out.width), *totals_lines(found)]:
        out.print(Text(line))
    out.print(table)
    for alert in found.alerts:
        out.print(Text(f"alert: {alert}", style="red"))
    for event in found.events[-EVENTS:]:
        out.print(Text(event_line(event)))
