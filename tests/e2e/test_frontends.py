"""Two frontends: with Envoy one endpoint in front of both, without it the first frontend."""

from __future__ import annotations

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.local.envoy import FRONTEND_HEADER
from tests.e2e.chats import events_of, post
from tests.support.local_graphs import Up, left, listening, replaced, scaled, traffic_during
from tests.support.waiting import wait_for

IN_FLIGHT = re.compile(r"^dynamo_component_inflight_requests\{.*\} (\d+)$", re.MULTILINE)


def test_without_envoy_the_first_frontend_is_the_endpoint_and_a_note_says_so(
    up: Up, quickstart: Path
) -> None:
    graph = up(quickstart, "--set", "frontend.replicas=2")
    assert "env install envoy" in graph.log.read_text()
    rows = [r for r in graph.state()["replicas"] if r["program"] == "frontend"]
    assert len({r["port"] for r in rows}) == 2
    for row in rows:
        models = httpx.get(f"http://127.0.0.1:{row['port']}/v1/models").json()["data"]
        assert [m["id"] for m in models] == graph.state()["models"]


@pytest.mark.destroys_graph
@pytest.mark.needs("envoy")
def test_a_frontend_that_stops_behind_envoy_breaks_no_stream(
    up: Up, quickstart: Path, tmp_path: Path
) -> None:
    """Envoy may listen on another address, and nothing else does."""
    quickstart.write_text(quickstart.read_text() + "\nfrontend:\n  replicas: 2\n")
    graph = up(quickstart, "--host", "127.0.0.2", envoy=True)
    assert graph.state()["envoy"]
    assert str(graph.state()["endpoint"]).startswith("http://127.0.0.2:")
    assert listening(tmp_path) == {"127.0.0.1", "127.0.0.2"}
    steps = (partial(scaled, graph, frontend=1), partial(scaled, graph, frontend=2))
    traffic = traffic_during(graph, *steps, concurrency=4)
    assert (traffic.failures, traffic.retried) == ([], [])
    wait_until_both_serve(graph.state())
    stop = partial(replaced, graph, "frontend", signal.SIGTERM)
    traffic = traffic_during(graph, stop, concurrency=4)
    assert (traffic.failures, traffic.retried) == ([], [])


@pytest.mark.destroys_graph
@pytest.mark.needs("envoy")
def test_sigterm_from_outside_breaks_no_stream(up: Up, quickstart: Path, tmp_path: Path) -> None:
    """First of both Envoys at once, then of all processes, as systemd stops a service."""
    graph = up(quickstart, envoy=True)
    traffic = traffic_during(graph, partial(terminate_envoys, graph), concurrency=4)
    assert (traffic.failures, traffic.retried) == ([], [])
    with ThreadPoolExecutor(4) as pool:
        body = {"prompt": "Hi", "max_tokens": 800, "ignore_eos": True, "stream": True}
        streams = [pool.submit(post, graph, "completions", **body) for _ in range(4)]
        wait_for(lambda: outputs(graph) == 4, "4 outputs have begun")
        for process in [*left(tmp_path), psutil.Process(graph.pid)]:
            process.terminate()
        for stream in streams:
            assert len(events_of(stream.result())) >= 800
    graph.wait_ended()


def outputs(graph: GraphProcess) -> int:
    """The requests in the decode workers."""
    rows = [row for row in graph.state()["replicas"] if row["program"] == "decode"]
    metrics = [httpx.get(f"http://127.0.0.1:{row['system_port']}/metrics").text for row in rows]
    return sum(int(count) for text in metrics for count in IN_FLIGHT.findall(text))


def terminate_envoys(graph: GraphProcess) -> None:
    before = graph.pids("endpoint")
    assert len(before) == 2
    for pid in before:
        os.kill(pid, signal.SIGTERM)
    graph.wait_for(lambda s: not {*before} & {row["pid"] for row in s["replicas"]})
    graph.wait_counts(endpoint=2)


def wait_until_both_serve(state: dict[str, Any]) -> None:
    """Envoy uses a new frontend only after its first health check, up to a second after it is
    ready."""
    seen: set[str] = set()
    body = {"model": state["models"][0], "prompt": "Hi", "max_tokens": 1}

    def both() -> bool:
        response = httpx.post(f"{state['endpoint']}/completions", json=body, trust_env=False)
        seen.add(response.headers[FRONTEND_HEADER])
        return len(seen) == 2

    wait_for(both, "requests that reach both frontends")


@pytest.mark.nightly
@pytest.mark.needs("envoy")
def test_envoy_listens_only_on_loopback(up: Up, quickstart: Path, tmp_path: Path) -> None:
    graph = up(quickstart, envoy=True)
    assert graph.state()["envoy"]
    assert listening(tmp_path) == {"127.0.0.1"}
