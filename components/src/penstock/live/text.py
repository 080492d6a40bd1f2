"""The figures, lines and columns of a live view as text, and one printed snapshot, for `top`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from penstock.live.model import Edge, LiveSnapshot, SnapshotSource, WorkerView
from penstock.live.snapshot import CLIENTS, ROUTER
from penstock.local.events import Event
from penstock.text.terminal import add_plain_row, columns, console

UNKNOWN = "–"
WIDE = 120  # columns of a terminal from which all columns are shown


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the table of processes."""

    title: str
    text: Callable[[WorkerView], str]
    value: Callable[[WorkerView], float | str | None]
    """To sort by; None is sorted last."""
    is_wide: bool = False
    """Only shown on terminals of at least `WIDE` columns."""
    is_number: bool = True


def number(value: float | None, digits: int = 1) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0%}"


def milliseconds(seconds: float | None) -> str:
    """`8.2 ms`, `173 ms`, `4.2 s`."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 10:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.{1 if seconds < 0.1 else 0}f} ms"


def byte_rate(value: float | None) -> str:
    """`3.1 MB/s`."""
    if value is None:
        return UNKNOWN
    for unit in ("B/s", "kB/s", "MB/s"):
        if value < 1000:
            return f"{value:.{0 if unit == 'B/s' else 1}f} {unit}"
        value /= 1000
    return f"{value:.1f} GB/s"


def state(worker: WorkerView) -> str:
    return "no metrics" if worker.responds is False else str(worker.state)


COLUMNS = (
    Column(title="process", text=lambda w: w.name, value=lambda w: w.name, is_number=False),
    Column(title="state", text=state, value=lambda w: w.state, is_number=False),
    Column(title="running", text=lambda w: count(w.running), value=lambda w: w.running),
    Column(title="queued", text=lambda w: count(w.queued), value=lambda w: w.queued),
    Column(title="KV", text=lambda w: percent(w.kv_usage), value=lambda w: w.kv_usage),
    Column(
        title="hits", text=lambda w: percent(w.prefix_hit_rate), value=lambda w: w.prefix_hit_rate
    ),
    Column(title="req/s", text=lambda w: number(w.request_rate), value=lambda w: w.request_rate),
    Column(title="TTFT", text=lambda w: milliseconds(w.ttft_s), value=lambda w: w.ttft_s),
    Column(title="ITL", text=lambda w: milliseconds(w.itl_s), value=lambda w: w.itl_s),
    Column(
        title="tokens/s",
        text=lambda w: number(w.output_token_rate, 0),
        value=lambda w: w.output_token_rate,
        is_wide=True,
    ),
    Column(
        title="restarts", text=lambda w: str(w.restarts), value=lambda w: w.restarts, is_wide=True
    ),
    Column(title="pid", text=lambda w: str(w.pid or ""), value=lambda w: w.pid, is_wide=True),
    Column(
        title="worker ID",
        text=lambda w: w.worker_id or "",
        value=lambda w: w.worker_id,
        is_wide=True,
        is_number=False,
    ),
)


def columns_for(width: int) -> tuple[Column, ...]:
    """Those that fit a terminal of ``width`` columns."""
    return tuple(column for column in COLUMNS if width >= WIDE or not column.is_wide)


def in_order(
    workers: Iterable[WorkerView], column: Column | None, *, is_reversed: bool = False
) -> list[WorkerView]:
    """Sorted by a column, unknown values last; without one, in the order of the graph."""
    ordered = list(workers)
    if column is None:
        return ordered[::-1] if is_reversed else ordered
    known = [w for w in ordered if column.value(w) is not None]
    unknown = [w for w in ordered if column.value(w) is None]
    return [*sorted(known, key=column.value, reverse=is_reversed), *unknown]  # type: ignore[arg-type]


def title_line(latest: LiveSnapshot) -> str:
    name = latest.graph.rpartition("/")[2]
    if latest.endpoint is None:
        return f"{name}: {latest.phase}"
    return ", ".join([f"{name}: {latest.phase}", latest.endpoint, *latest.models])


def topology_lines(latest: LiveSnapshot, width: int) -> list[str]:
    """The edges with their rates, in as many lines as this width needs."""
    counts = {c.name: f"{c.name} {c.ready}/{c.desired}" for c in latest.components}
    lines: list[str] = []
    for chain in _chains(latest.edges):
        line = counts.get(chain[0].source, chain[0].source)
        for edge in chain:
            part = f" ─ {rate_text(edge)} → {counts.get(edge.target, edge.target)}"
            if len(line) + len(part) > width:
                lines.append(line)
                line = "  "
            line += part
        lines.append(line)
    return lines


def _chains(edges: Sequence[Edge]) -> list[list[Edge]]:
    """One line if every component has one successor; otherwise one line for each edge of the
    router and each KV transfer."""
    transfers = [edge for edge in edges if edge.is_kv_transfer]
    head = [edge for edge in edges if edge.source != ROUTER and not edge.is_kv_transfer]
    routed = [edge for edge in edges if edge.source == ROUTER]
    if len(transfers) == 1 and len(routed) == 2 and len(head) == 2:
        (transfer,) = transfers
        prefill = [edge for edge in routed if edge.target == transfer.source]
        return [[*head, *prefill, transfer]]
    if len(head) == 2 and len(routed) == 1:
        return [[*head, *routed]]
    starts = [[edge] for edge in head if edge.source == CLIENTS]
    firsts = {chain[0].target: chain for chain in starts}
    for edge in head:
        if edge.source in firsts:
            firsts[edge.source].append(edge)
    return [*starts, *([edge] for edge in routed), *([edge] for edge in transfers)]


def rate_text(edge: Edge) -> str:
    if edge.is_kv_transfer:
        return f"KV {byte_rate(edge.byte_rate)}"
    return f"{number(edge.request_rate)} req/s"


def totals_lines(latest: LiveSnapshot) -> list[str]:
    """Latency and throughput of all frontends."""
    totals = latest.totals
    window = "" if latest.window_s is None else f" (last {latest.window_s:.0f} s)"
    return [
        f"TTFT p50 {milliseconds(totals.ttft_s)}, ITL p50 {milliseconds(totals.itl_s)}, "
        f"prefix-cache hit rate {percent(totals.prefix_hit_rate)}{window}",
        f"{number(totals.request_rate)} req/s, tokens/s: {number(totals.input_token_rate, 0)} in, "
        f"{number(totals.output_token_rate, 0)} out; {count(totals.running)} running, "
        f"{count(totals.router_queue)} queued in the router",
    ]


def event_line(event: Event) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(event.time_s))
    return f"{clock}  {event.kind:<10}  {event.subject}: {event.text}"


EVENTS = 10


def print_once(graph: SnapshotSource, *, as_json: bool) -> None:
    """Measures for a second, because a rate needs two scrapes."""
    latest = asyncio.run(_measured(graph))
    if as_json:
        print(json.dumps(latest.as_dict(), indent=1))
    else:
        _print(latest)


async def _measured(graph: SnapshotSource) -> LiveSnapshot:
    try:
        return await graph.measured()
    finally:
        await graph.close()


def _print(latest: LiveSnapshot) -> None:
    out = console()
    visible = columns_for(out.width)
    table = columns(
        *(column.title for column in visible),
        numbers=tuple(column.title for column in COLUMNS if column.is_number),
    )
    for worker in latest.workers:
        add_plain_row(table, (column.text(worker) for column in visible))
    out.print(Text(title_line(latest), style="bold"))
    for line in [*topology_lines(latest, out.width), *totals_lines(latest)]:
        out.print(Text(line))
    out.print(table)
    for alert in latest.alerts:
        out.print(Text(f"alert: {alert}", style="red"))
    for event in latest.events[-EVENTS:]:
        out.print(Text(event_line(event)))
