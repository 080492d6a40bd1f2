"""A live view follows the state of `up`, and the graph may stop meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from functools import partialmethod
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace as with_fields

from penstock.cli.main import main
from penstock.live.model import STOPPED, LiveSnapshot
from penstock.live.source import LiveGraph
from penstock.local.events import EventLog
from penstock.local.reconcile import ReplicaState
from penstock.local.state import StateDir
from penstock.local.state_file import LocalState
from penstock.manifests.deployment import Role
from tests.live.constructed import (
    DECODE_PORT,
    Processes,
    frontend_text,
    graph,
    replica,
    worker_text,
)
from tests.support.scripted_http import respond, serving
from tests.support.waiting import first_good


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "graph.yaml"
    path.write_text("model: {}\n")
    return path


@pytest.fixture
def up(source: Path) -> Iterator[StateDir]:
    """The state folder of a graph that this process runs."""
    state = StateDir(source)
    state.acquire()
    state.write(state_of(source))
    yield state
    state.release()


def state_of(source: Path, state: LocalState | None = None) -> LocalState:
    return with_fields(state or graph(), source=str(source))


def test_a_new_event_and_a_new_state_are_in_the_next_snapshot(source: Path, up: StateDir) -> None:
    log = EventLog(up.path)
    log.observe(state_of(source))
    live = LiveGraph(source, scraper=Processes().scraper())
    draining = replica("decode.0", Role.DECODE, 3, DECODE_PORT, state=ReplicaState.DRAINING)

    async def run() -> tuple[LiveSnapshot, LiveSnapshot]:
        before = await live.snapshot()
        after = state_of(source, graph(draining))
        up.write(after)
        log.observe(after)
        now = await live.snapshot()
        await live.close()
        return before, now

    before, now = asyncio.run(run())
    assert [w.state for w in before.workers] == ["ready"] * 3
    assert [(w.name, w.state) for w in now.workers] == [("decode.0", "draining")]
    new = now.events[len(before.events) :]
    assert ("drain", "decode.0") in [(event.kind, event.subject) for event in new]


def test_a_graph_that_stops_is_shown_as_stopped_with_its_events(source: Path, up: StateDir) -> None:
    EventLog(up.path).observe(state_of(source))
    live = LiveGraph(source, scraper=Processes().scraper())

    async def run() -> LiveSnapshot:
        await live.snapshot()
        up.clear()
        up.release()
        latest = await live.snapshot()
        await live.close()
        return latest

    latest = asyncio.run(run())
    assert (latest.phase, latest.endpoint, latest.workers) == (STOPPED, None, ())
    assert latest.events


def test_a_hanging_process_does_not_delay_the_state(source: Path, up: StateDir) -> None:
    processes = Processes()
    processes.texts[DECODE_PORT] = None
    live = LiveGraph(source, scraper=processes.scraper())

    async def run() -> LiveSnapshot:
        latest = await live.measured(0.01)
        await live.close()
        return latest

    latest = asyncio.run(run())
    assert {w.name: w.responds for w in latest.workers} == {
        "frontend.0": True,
        "prefill.0": True,
        "decode.0": False,
    }


def test_top_prints_one_snapshot_without_a_terminal(
    source: Path,
    up: StateDir,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Metrics come from real HTTP servers, one of which hangs and then closes its connections."""
    monkeypatch.setattr(LiveGraph, "measured", partialmethod(LiveGraph.measured, 0.01))
    ended = threading.Event()
    requests = itertools.count(4, 4)

    def hang(request: BaseHTTPRequestHandler) -> None:
        ended.wait()
        request.close_connection = True

    with (
        serving(lambda r: respond(r, frontend_text(next(requests)).encode())) as frontend,
        serving(lambda r: respond(r, worker_text(7).encode())) as prefill,
        serving(hang) as decode,
    ):
        ports = [httpx.URL(url).port or 0 for url in (frontend, prefill, decode)]
        roles = zip(
            ("frontend.0", "prefill.0", "decode.0"),
            ("frontend", "prefill", "decode"),
            ports,
            strict=True,
        )
        replicas = [replica(name, Role(role), 10 + port, port) for name, role, port in roles]
        up.write(state_of(source, graph(*replicas)))

        def top(*options: str) -> str:
            assert main(["top", str(source), *options]) == 0
            return capsys.readouterr().out

        # A server of a busy machine may respond later than `top` waits.
        screen = first_good(lambda _: top(), lambda text: text.count("no metrics") == 1)
        ended.set()
        document = first_good(
            lambda _: json.loads(top("--once", "--json")),
            lambda document: (
                [worker["responds"] for worker in document["workers"]] == [True, True, False]
            ),
        )
    lines = {line.split()[0]: line for line in screen.splitlines()}
    assert "frontend 1/1" in lines["clients"]
    assert lines["decode.0"].split()[1:4] == ["no", "metrics", "–"]
    assert lines["prefill.0"].split()[1:4] == ["ready", "2", "1"]
    assert "alert: decode.0 does not return its metrics" in screen
    assert document["totals"]["request_rate"] > 0
    assert document["workers"][2]["running"] is None


def test_top_of_a_graph_that_is_not_up_says_how_to_start_it(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", str(source)]) == 11
    message = capsys.readouterr().err
    assert "the graph is not up" in message
    assert "penstock up" in message
    assert main(["top", str(tmp_path / "elsewhere" / "graph.yaml")]) == 11
    message = capsys.readouterr().err
    assert "no such file" in message
    assert "penstock ls" in message


def test_top_of_a_graph_that_is_starting_says_so(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDir(source)
    state.acquire()  # as `up` does before it checks and starts the graph
    try:
        assert main(["top", str(source), "--once"]) != 0
    finally:
        state.release()
    message = capsys.readouterr().err
    assert "the graph is starting and has no status yet. Fix: Run the command again" in message
    assert "not up" not in message


def test_top_with_other_values_of_set_is_refused(
    source: Path, up: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", str(source), "--set", "decode.replicas=3"]) == 4
    assert "the graph is up with no --set" in capsys.readouterr().err
