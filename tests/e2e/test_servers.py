"""The same graph on real etcd and NATS servers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from penstock.drill.graph_process import GraphProcess
from tests.support.local_graphs import (
    Up,
    assert_nothing_left,
    listening,
    replaced,
    scaled,
    traffic_during,
    without_envoy,
)

SERVERS = "\ninfrastructure:\n  discovery: etcd\n  events: nats\n"


@pytest.mark.destroys_graph
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
    traffic = traffic_during(
        graph, partial(scaled, graph, decode=1, prefill=3), partial(replaced, graph, "prefill")
    )
    assert traffic.failures == []
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
