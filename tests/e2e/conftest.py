"""Real Dynamo processes: one graph of mockers for all tests that only read it, others on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.graph.edit import set_replicas
from tests.support.local_graphs import (
    QUICKSTART,
    Up,
    assert_nothing_left,
    running_graph,
    without_envoy,
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Called before the hook of tests/conftest.py, which groups tests by their markers."""
    item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def mockers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphProcess]:
    """The quickstart of mockers, as it is in the repository; a test must not change it."""
    folder = tmp_path_factory.mktemp("mockers")
    with running_graph(QUICKSTART, folder, "--port", "0") as process:
        yield process


@pytest.fixture(autouse=True)
def the_shared_graph_stays_as_it_is(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test that changes it, and not one after it."""
    if "mockers" not in request.fixturenames:
        yield
        return
    assert request.node.get_closest_marker("destroys_graph") is None, "use `up`: others read it"
    process = request.getfixturevalue("mockers")
    before = _processes(process.state())
    yield
    assert _processes(process.state()) == before


def _processes(state: dict[str, Any]) -> set[tuple[int, str]]:
    """Their pids and states."""
    return {(row["pid"], row["state"]) for row in state["replicas"]}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Start graphs that end, and leave nothing, with the test."""
    with ExitStack() as stack:

        def start(
            graph: Path, *arguments: str, envoy: bool = False, wait: bool = True
        ) -> GraphProcess:
            env = {} if envoy else without_envoy(tmp_path)
            argv = ["--port", "0", *arguments]
            process = stack.enter_context(GraphProcess(graph, tmp_path, argv, env))
            if wait:
                process.wait_ready(120)
            return process

        yield start
    assert_nothing_left(tmp_path)


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    """A copy of the quickstart graph, with two decode workers, that a test may edit."""
    path = tmp_path / "graph.yaml"
    path.write_text(set_replicas(QUICKSTART.read_text(), {"decode": 2}))
    return path
