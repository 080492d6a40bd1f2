"""Fixtures of the chart's tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.manifests.render import chart_path
from tests.support.charts import GRAPHS, Chart


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `graph_file` runs for every graph of the repository."""
    if "graph_file" in metafunc.fixturenames:
        metafunc.parametrize("graph_file", GRAPHS, ids=[path.stem for path in GRAPHS])


@pytest.fixture(scope="session")
def chart() -> Chart:
    return Chart()


@pytest.fixture
def bare_chart(tmp_path: Path) -> Path:
    """The chart without its schema: what `--skip-schema-validation` leaves."""
    bare = tmp_path / "penstock"
    shutil.copytree(chart_path(), bare)
    (bare / "values.schema.json").unlink()
    return bare
