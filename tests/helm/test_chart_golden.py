"""The manifests of every graph in dynamo_graphs/, whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from penstock.graph.model import Graph
from penstock.manifests.render import render

GOLDEN = Path(__file__).parents[1] / "golden"


def test_every_graph_of_the_repository_is_a_graph(graph_file: Path) -> None:
    Graph.model_validate(yaml.safe_load(graph_file.read_text("utf-8")))


def test_manifests_are_the_golden_ones(graph_file: Path, request: pytest.FixtureRequest) -> None:
    values = yaml.safe_load(graph_file.read_text("utf-8"))
    text = render(values, name=graph_file.stem).text
    golden = GOLDEN / graph_file.name
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8"), "see the change, then pytest --update-golden"


def test_no_golden_file_is_left_from_a_graph_that_is_gone(graph_files: set[str]) -> None:
    assert {path.name for path in GOLDEN.glob("*.yaml")} <= graph_files


@pytest.fixture
def graph_files() -> set[str]:
    return {path.name for path in (Path(__file__).parents[2] / "dynamo_graphs").glob("*.yaml")}
