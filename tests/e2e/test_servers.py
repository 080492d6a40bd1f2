"""The same graph on real etcd and NATS servers."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.drill.traffic import Traffic
from tests.support.local_graphs import (
    Up,
    assert_nothing_left,
    listening,
    without_envoy,
)


def pids_of(state: dict[str, Any]) -> set[int]:
    return {int(r["pid"]) for r in state["replicas"] if r["state"] == "ready"}


SERVERS = "\ninfrastructure:\n  discovery: etcd\n  events: nats\n"


@pytest.mark.needs("servers")
@pytest.mark.parametrize("requests_plane", [pytest.param("tcp", marks=pytest.mark.nightly), "nats"])
def test_a_graph_runs_scales_and_survives_a_kill_on_etcd_and_nats(
    up: Up, quickstart: Path, tmp_path: Path, requests_plane: str
) -> None:
    quickstart.write_text(quickstart.read_text() + SERVERS + f"  requests: {requests_plane}\n")
    graph = up(quickstart)
    state = graph.state()
    assert {"etcd", "nats"} <= {r["program"] for r in state["replicas"]}
    assert "event-broker" not in {r["program"] for r in state["replicas"]}
    # Until the frontend knows that a worker ended, it may reject a request; clients repeat it.
    traffic = Traffic(state["endpoint"], state["models"][0], 300, 16, 40, retries=2)

    async def edit_under_load() -> None:
        task = asyncio.create_task(traffic.run())
        while len(traffic.results) < 40:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(graph.penstock, "scale", str(quickstart), "decode=1", "prefill=3")
        await asyncio.to_thread(graph.wait_counts, decode=1, prefill=3)
        victim = graph.pids("prefill")[0]
        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(graph.wait_for, lambda s: victim not in pids_of(s))
        await task

    asyncio.run(edit_under_load())
    assert traffic.failures == []
    graph.wait_counts(decode=1, prefill=3)
    shown = graph.penstock("status", str(quickstart))
    assert "registered workers: 4" in shown.stdout, shown.stdout
    assert listening(tmp_path) == {"127.0.0.1"}


@pytest.mark.nightly
@pytest.mark.needs("servers")
def test_two_graphs_on_the_same_servers_do_not_mix(
    up: Up, quickstart: Path, tmp_path: Path
) -> None:
    text = quickstart.read_text()
    quickstart.write_text(text + SERVERS)
    first = up(quickstart)
    nats = next(r["port"] for r in first.state()["replicas"] if r["program"] == "nats")
    folder = tmp_path / "second"
    folder.mkdir()
    other = folder / "other.yaml"
    other.write_text(
        text.replace("replicas: 2", "replicas: 1")
        + SERVERS
        + f"  etcd_endpoints: [{first.state()['discovery']['endpoint']}]\n"
        + f"  nats_url: nats://127.0.0.1:{nats}\n"
    )
    with GraphProcess(other, folder, ["--port", "0"], without_envoy(folder)) as second:
        second.wait_ready()
        assert {r["program"] for r in second.state()["replicas"]} == {
            "prefill",
            "decode",
            "frontend",
        }
        assert "registered workers: 2" in second.penstock("status", str(other)).stdout
        assert "registered workers: 4" in first.penstock("status", str(quickstart)).stdout
    assert_nothing_left(folder)
    first.wait_counts(prefill=2, decode=2)
    assert "registered workers: 4" in first.penstock("status", str(quickstart)).stdout
