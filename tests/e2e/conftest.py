"""Real Dynamo processes for the end-to-end tests: one quickstart graph shared, others on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.graph.edit import set_replicas
from tests.support.local_graphs import QUICKSTART, Up, assert_nothing_left, without_envoy


def pytest_itemcollected(item: pytest.Item) -> None:
    """Called before the hook of tests/conftest.py, which groups tests by their markers."""
    item.add_marker(pytest.mark.e2e)


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
