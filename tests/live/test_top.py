"""The screen of `penstock top`, in terminals of 80 and of 160 columns."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from penstock.live.model import Edge, LiveSnapshot
from penstock.live.snapshot import stopped
from penstock.live.text import byte_rate, milliseconds, topology_lines
from penstock.live.top import Next, Top
from penstock.local.events import Event, EventKind
from penstock.local.reconcile import ReplicaState
from tests.live.constructed import busy
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.slow

EVENTS = (
    Event(time_s=0.0, kind=EventKind.SCALE, subject="decode", text="1 → 2 replicas"),
    Event(time_s=9.0, kind=EventKind.CRASH, subject="prefill.0", text="exited with code -9"),
)
Steps = Callable[[Top, "Pilot[None]"], Awaitable[None]]


def screen(app: Top) -> list[str]:
    """The lines of the terminal."""
    width, height = app.size
    orders = []
    for y in range(height):
        strips = app.screen._compositor.render_strips()  # the text that export_screenshot draws
        orders.append("".join(segment.text for segment in strips[y])[:width].rstrip())
    return orders


def run(read: Next, width: int, steps: Steps, interval_s: float = 1e6) -> Top:
    app = Top(read, interval_s)

    async def main() -> None:
        async with app.run_test(size=(width, 30)) as pilot:
            await pilot.pause()
            await steps(app, pilot)

    asyncio.run(main())
    return app


def reads(*snapshots: LiveSnapshot) -> Next:
    left = list(snapshots)

    async def read() -> LiveSnapshot:
        return left.pop(0)

    return read


def shown(snapshots: list[LiveSnapshot], width: int, *keys: str) -> list[str]:
    """The screen of the last snapshot after the keys."""
    screens: list[str] = []

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        for _ in snapshots[1:]:
            await app._refresh()
        await pilot.press(*keys)
        await pilot.pause()
        screens.extend(screen(app))

    run(reads(*snapshots), width, steps)
    return screens


def after_each(*keys: str) -> list[list[str]]:
    """The screens of one view after each key; an empty one is not pressed."""
    rows: list[list[str]] = []

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        for key in keys:
            await pilot.press(*([key] if key else []))
            await pilot.pause()
            rows.append(screen(app))

    run(reads(busy()), 80, steps)
    return rows


def names(lines: list[str]) -> Iterator[str]:
    """The processes in the order of the table, which ends above the events."""
    for line in lines[: lines.index(" Events")]:
        word = (line.split() or [""])[0]
        if word in ("frontend.0", "prefill.0", "decode.0"):
            yield word


@pytest.mark.parametrize("width", [80, 160])
def test_the_screen_shows_topology_latency_processes_and_events(width: int) -> None:
    lines = shown([busy(EVENTS)], width)
    text = "\n".join(lines)
    assert "ready, http://127.0.0.1:8000/v1, acme/model" in lines[0]
    for part in ("frontend 1/1", "─ 4.0 req/s → prefill 1/1", "─ KV 3.1 MB/s → decode 1/1"):
        assert part in text
    assert "TTFT p50 50.0 ms" in text
    row = next(line for line in lines if line.strip().startswith("decode.0")).split()
    assert row[:9] == ["decode.0", "ready", "2", "2", "25%", "40%", "4.0", "–", "8.0"]
    assert "tokens/s  restarts  pid" in text if width == 160 else "restarts" not in text
    events = [line for line in lines if "scale" in line or "exited" in line]
    assert [event.partition("  ")[2].split(maxsplit=1)[1] for event in events] == [
        "prefill.0: exited with code -9",  # the newest first
        "decode: 1 → 2 replicas",
    ]
    assert "q Quit" in lines[-1]


@pytest.mark.parametrize("width", [80, 160])
def test_nothing_of_the_table_is_cut_off(width: int) -> None:
    lines = shown([busy()], width)
    heading = next(line for line in lines if "process" in line)
    assert heading.rstrip().endswith("ITL" if width == 80 else "worker ID")


def test_s_sorts_by_the_next_column_and_r_reverses() -> None:
    first, by_name, reversed_, by_name_again, back, *_, by_cache = after_each("", *"srrSsssss")
    assert list(names(first)) == list(names(back)) == ["frontend.0", "prefill.0", "decode.0"]
    assert list(names(by_name)) == ["decode.0", "frontend.0", "prefill.0"]
    assert list(names(reversed_)) == ["prefill.0", "frontend.0", "decode.0"]
    assert list(names(by_name_again)) == list(names(by_name))
    assert any("KV ▲" in line for line in by_cache)
    assert next(names(by_cache)) == "decode.0"  # the others have no KV cache, or do not export it


def test_the_help_opens_and_closes() -> None:
    opened, closed = after_each("question_mark", "escape")
    assert any("prefix-cache hit rate" in line for line in opened[6:])
    assert not any("close this help" in line for line in closed)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_a_key_ends_the_view(key: str) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press(key)

    assert run(reads(busy()), 80, steps).return_code == 0


def test_the_view_refreshes_itself() -> None:
    snapshot, refreshes = busy(), itertools.count(1)
    is_refreshed = asyncio.Event()

    async def read() -> LiveSnapshot:
        if next(refreshes) == 3:
            is_refreshed.set()
        return snapshot

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await asyncio.wait_for(is_refreshed.wait(), LIMIT_S)

    run(read, 80, steps, interval_s=0.05)


def test_a_crash_is_an_alert_and_a_graph_that_stops_is_named_as_stopped() -> None:
    latest = busy()
    (frontend, prefill, decode) = latest.workers
    crashed = replace(decode, state=ReplicaState.CRASHED, responds=None, running=None)
    later = replace(latest, workers=(frontend, prefill, crashed), alerts=("decode.0 has crashed",))
    text = "\n".join(shown([latest, later], 80))
    assert "alert: decode.0 has crashed" in text
    assert "crashed" in next(line for line in text.splitlines() if "decode.0 " in line)
    lines = shown([latest, stopped(latest.graph, EVENTS, 0.0)], 80)
    assert lines[0] == " graph.yaml: stopped"
    assert "not up any more" in lines[1]
    assert list(names(lines)) == []
    assert any("exited with code -9" in line for line in lines)


def test_replicas_that_come_and_go_are_rows_of_the_table() -> None:
    latest = busy()
    fewer = replace(latest, workers=latest.workers[:2])
    assert list(names(shown([latest, fewer], 80))) == ["frontend.0", "prefill.0"]
    assert len(list(names(shown([fewer, latest], 80)))) == 3


def test_a_graph_with_one_pool_and_one_with_several() -> None:
    latest = busy()
    edges = (*latest.edges[:2], Edge(source="router", target="decode", request_rate=None))
    (line,) = topology_lines(replace(latest, edges=edges), 160)
    assert line.endswith("router ─ – req/s → decode 1/1")
    more = (*latest.edges, Edge(source="router", target="small", request_rate=1.0))
    lines = topology_lines(replace(latest, edges=more), 160)
    assert lines == [
        "clients ─ 4.0 req/s → frontend 1/1 ─ 4.0 req/s → router",
        "router ─ 4.0 req/s → prefill 1/1",
        "router ─ 4.0 req/s → decode 1/1",
        "router ─ 1.0 req/s → small",
        "prefill 1/1 ─ KV 3.1 MB/s → decode 1/1",
    ]


def test_units_of_figures() -> None:
    assert [milliseconds(s) for s in (None, 0.0082, 0.173, 4.21, 61.0)] == [
        *("–", "8.2 ms", "173 ms", "4.2 s", "61 s")
    ]
    assert [byte_rate(b) for b in (None, 12.0, 3.1e6, 5.2e10)] == [
        *("–", "12 B/s", "3.1 MB/s", "52.0 GB/s")
    ]
