"""A running graph of mockers, after some traffic and the loss of a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.graph.edit import set_replicas
from tests.support.local_graphs import QUICKSTART, running_graph
from tests.support.monitoring.live import LiveGraph
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGraph]:
    """A quickstart graph with two decode workers, after some traffic and migrations."""
    folder = tmp_path_factory.mktemp("graph")
    path = folder / "graph.yaml"
    path.write_text(set_replicas(QUICKSTART.read_text(), {"decode": 2}))
    with running_graph(path, folder, "--port", "0") as process:
        graph = LiveGraph(process, path)
        for number in range(12):
            assert graph.ask(8, stream=number % 2 == 0) == 200
        assert graph.ask(8, model="unknown") == 404
        lose_a_worker(process, graph)
        yield graph


def lose_a_worker(process: GraphProcess, graph: LiveGraph) -> None:
    """SIGKILL the decode worker with active streams, so that they migrate."""
    with ThreadPoolExecutor(8) as pool:
        responses = [pool.submit(graph.ask, 1500, stream=True) for _ in range(8)]
        victim = wait_for(lambda: graph.busiest("decode"), "a decode worker with a request")
        os.kill(victim, signal.SIGKILL)
        assert {response.result() for response in responses} <= {200, 500, 503}
    process.wait_for(lambda _: victim not in process.pids("decode"))
    process.wait_counts(decode=2, prefill=2)

    def is_served() -> bool:
        with suppress(httpx.HTTPError):
            return graph.ask(8) == 200
        return False

    wait_for(is_served, "the graph to serve again")
