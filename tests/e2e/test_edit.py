"""Editing the file while the graph is up, and ending it in every way.

First the tests that need a graph of their own, then those that put one back as it was, and those
that end it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import rollouts
from penstock.drill.graph_process import GraphProcess
from penstock.graph.edit import set_replicas
from penstock.local.ports import Ports
from penstock.local.reconcile import AT_ONCE, backoff_s
from tests.support.local_graphs import (
    QUICKSTART,
    Up,
    assert_nothing_left,
    left,
    replaced,
    running_graph,
    scaled,
    traffic_during,
    without_envoy,
)

pytestmark = pytest.mark.destroys_graph


def test_after_a_sigkill_of_penstock_the_next_up_or_down_cleans_up(
    up: Up, quickstart: Path, tmp_path: Path
) -> None:
    """And `up` applies an edit that is saved while it starts."""
    graph = up(quickstart)
    orphans = {r["pid"] for r in graph.state()["replicas"]}
    os.kill(graph.pid, signal.SIGKILL)
    graph.stop(signal.SIGCONT)
    again = up(quickstart, wait=False)
    again.wait_for(lambda s: s["replicas"])
    assert again.penstock("scale", str(quickstart), "decode=3").returncode == 0
    again.wait_counts(frontend=1, prefill=2, decode=3)
    mine = {r["pid"] for r in again.state()["replicas"]}
    assert not orphans & mine
    assert {p.pid for p in left(tmp_path)} == mine

    os.kill(again.pid, signal.SIGKILL)
    again.stop(signal.SIGCONT)
    assert again.penstock("down", str(quickstart)).returncode == 0
    assert_nothing_left(tmp_path)


def test_a_detached_graph_has_a_status_and_can_be_stopped(quickstart: Path, tmp_path: Path) -> None:
    graph = GraphProcess(quickstart, tmp_path, env=without_envoy(tmp_path))
    detached = ("up", str(quickstart), "--port", "0", "--detach", "--set", "decode.replicas=1")
    started = graph.penstock(*detached)
    try:
        assert started.returncode == 0, started.stderr
        assert "ready: http://127.0.0.1:" in started.stdout
        assert graph.penstock("status", str(quickstart)).returncode == 0
        assert graph.penstock(*detached).returncode == 10
        # Its --set would override an edit of the file.
        text = quickstart.read_text()
        refused = graph.penstock("scale", str(quickstart), "decode=3")
        assert refused.returncode == 4
        assert "--set decode.replicas=1" in refused.stderr
        assert quickstart.read_text() == text
    finally:
        stopped = graph.penstock("down", str(quickstart))
    assert stopped.returncode == 0, stopped.stderr
    assert graph.penstock("status", str(quickstart)).returncode == 11
    assert_nothing_left(tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphProcess]:
    """One graph with a port in its file, shared by the tests that restore it."""
    folder = tmp_path_factory.mktemp("edit")
    path = folder / "graph.yaml"
    text = set_replicas(QUICKSTART.read_text(), {"decode": 2})
    path.write_text(f"{text}\nfrontend:\n  port: {Ports().free()}\n")
    with running_graph(path, folder) as graph:
        yield graph


@pytest.fixture
def shared(running: GraphProcess) -> Iterator[GraphProcess]:
    """The running graph; restores its file afterwards."""
    text = running.graph.read_text()
    yield running
    running.graph.write_text(text)
    running.wait_for(lambda s: not s["rejected_edit"])
    running.wait_counts(prefill=2, decode=2, frontend=1)


def test_scaling_starts_and_drains_exactly_those_workers(shared: GraphProcess) -> None:
    before = set(shared.pids("decode"))
    text = shared.graph.read_text()
    done = shared.penstock("scale", str(shared.graph), "decode=3")
    assert done.returncode == 0, done.stderr
    rows = [r for r in shared.state()["replicas"] if r["program"] == "decode"]
    assert len(rows) == 3, "scale returned before `up` saw the edit"
    grown = shared.wait_counts(decode=3, prefill=2)
    assert before < {r["pid"] for r in grown["replicas"]}
    shared.penstock("scale", str(shared.graph), "decode=2")
    shared.wait_counts(decode=2)
    assert set(shared.pids("decode")) == before
    assert shared.graph.read_text() == text


def test_an_invalid_edit_is_rejected_and_the_graph_is_unchanged(shared: GraphProcess) -> None:
    before = {r["pid"] for r in shared.state()["replicas"]}
    good = shared.graph.read_text()
    shared.graph.write_text(good.replace("replicas: 2", "replcas: 3", 1))
    state = shared.wait_for(lambda s: s["rejected_edit"])
    assert "prefill.replcas" in state["rejected_edit"][0]
    assert "replicas" in state["rejected_edit"][0]
    assert {r["pid"] for r in shared.state()["replicas"]} == before
    shared.graph.write_text(good)
    shared.wait_for(lambda s: not s["rejected_edit"])
    assert {r["pid"] for r in shared.state()["replicas"]} == before


def test_an_edit_of_the_infrastructure_is_rejected(shared: GraphProcess) -> None:
    shared.graph.write_text(shared.graph.read_text() + "\ninfrastructure:\n  events: nats\n")
    state = shared.wait_for(lambda s: s["rejected_edit"])
    assert "infrastructure cannot change" in state["rejected_edit"][0]
    assert len(shared.pids("decode")) == 2


@pytest.mark.nightly
def test_scale_fails_after_ten_seconds_when_the_file_is_still_rejected(
    shared: GraphProcess,
) -> None:
    shared.graph.write_text(shared.graph.read_text() + "\ninfrastructure:\n  events: nats\n")
    shared.wait_for(lambda s: s["rejected_edit"])
    refused = shared.penstock("scale", str(shared.graph), "decode=3")
    assert refused.returncode == 4
    assert "rejected the edit: infrastructure cannot change" in refused.stderr


def test_an_edit_of_the_port_is_rejected_with_a_fix(shared: GraphProcess) -> None:
    shared.graph.write_text(re.sub(r"port: \d+", "port: 8941", shared.graph.read_text()))
    state = shared.wait_for(lambda s: s["rejected_edit"])
    assert "frontend.port cannot change" in state["rejected_edit"][0]
    assert "penstock down" in state["rejected_edit"][0]


def test_a_pool_scales_to_zero_and_back(shared: GraphProcess) -> None:
    for count in (0, 2):
        scaled(shared, decode=count)
    assert shared.state()["rejected_edit"] == []


def test_a_second_frontend_does_not_restart_the_first(shared: GraphProcess) -> None:
    first = shared.pids("frontend")
    for count in (2, 1):
        scaled(shared, frontend=count)
        assert first[0] in shared.pids("frontend")


def test_a_worker_that_crashes_is_restarted_and_repeatedly_backs_off(shared: GraphProcess) -> None:
    before = _row(shared.state(), "decode.0")["restarts"]
    for crashes in range(1, AT_ONCE + 2):
        victim = _row(shared.state(), "decode.0")["pid"]
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        state = shared.wait_for(partial(_restarted, name="decode.0", times=before + crashes))
        assert time.monotonic() - killed >= backoff_s(crashes, has_served=True)
        assert victim not in {r["pid"] for r in state["replicas"]}
    assert backoff_s(AT_ONCE + 1, has_served=True) > 0
    assert "decode.0 exited with code -9" in shared.log.read_text()


def _row(state: dict[str, Any], name: str) -> dict[str, Any]:
    return next(r for r in state["replicas"] if r["name"] == name)


def _restarted(state: dict[str, Any], name: str, times: int) -> bool:
    row = _row(state, name)
    return bool(row["restarts"] == times and row["state"] == "ready")


def test_no_request_is_lost_while_pools_scale_and_workers_end_or_are_replaced(
    running: GraphProcess,
) -> None:
    frontend = running.pids("frontend")
    change = partial(scaled, running)
    end = partial(replaced, running)

    def edit_the_engine() -> None:
        old = {*running.pids("prefill"), *running.pids("decode")}
        text = running.graph.read_text()
        assert "speedup_ratio: 2.0" in text
        running.graph.write_text(text.replace("speedup_ratio: 2.0", "speedup_ratio: 3"))
        running.wait_for(lambda s: not old & {r["pid"] for r in s["replicas"]})
        running.wait_counts(prefill=2, decode=2)

    traffic = traffic_during(
        running,
        partial(change, decode=3, prefill=3),
        partial(change, decode=1, prefill=1),
        partial(change, decode=2, prefill=2),
        partial(end, "decode"),
        partial(end, "prefill"),
        partial(end, "decode", signal.SIGTERM),
        edit_the_engine,
    )
    assert traffic.failures == []
    assert len(traffic.retried) <= 2, traffic.retried
    assert running.pids("frontend") == frontend


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["mockers, disaggregated", "mockers, disaggregated, kills"])
def test_nothing_that_can_migrate_is_lost_in_the_benchmark_of_rollouts(case: str) -> None:
    result = rollouts.measure(rollouts.cases()[case], changes=5, seed=1)
    assert result["changes"] == 5
    assert (result["lost"], result["not_recovered"]) == (0, 0), result["failures"]
    if "kills" not in case:
        assert (result["problems"], result["not_migratable"]) == ({}, 0)
        assert min(result["samples"].values()) > 100


def test_ctrl_c_lets_a_running_stream_finish_and_leaves_nothing(running: GraphProcess) -> None:
    body = {
        "model": running.state()["models"][0],
        "prompt": "The water",
        "max_tokens": 300,
        "ignore_eos": True,
        "stream": True,
    }
    chunks = 0
    url = f"{running.state()['endpoint']}/completions"
    with httpx.stream("POST", url, json=body, timeout=120) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: {") or "finish_reason" in line:
                continue
            chunks += 1
            if chunks == 5:
                os.kill(running.pid, signal.SIGINT)
        assert chunks == 300
    assert running.stop(signal.SIGCONT) == 130
    assert_nothing_left(running.log.parent)
