"""`penstock bench GRAPH --start`: the graph runs only for the measurement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.bench.bench_runs import write_workload
from tests.support.command_line import penstock

pytestmark = pytest.mark.needs("aiperf")

SET = ("--set", "decode.replicas=2")
GRAPH = "dynamo_graphs/quickstart-simulated.yaml"
USAGE, NOT_UP = 2, 11


@pytest.mark.nightly
def test_a_graph_is_started_measured_and_stopped(tmp_path: Path) -> None:
    workload = write_workload(tmp_path, 20, output_tokens=5, every_ms=200.0)
    done = penstock(
        "bench", GRAPH, *SET, "--start", *workload, "--out", str(tmp_path / "out"), "--json"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["failures"] == {"sent": 20, "reasons": {}}
    assert document["ttft_ms"]["p50"] > 0
    assert document["engine_is_substitute"] is True  # the graph's own engine is the mocker
    log = (tmp_path / "out" / "graph-1" / "up.log").read_text()
    assert "ready: http://127.0.0.1:" in log
    assert list((tmp_path / "out" / "graph-1").rglob("decode.1.log"))  # of --set
    states = (tmp_path / "out" / "graph-1" / "state").glob("*/state.json")
    assert not list(states), "the graph still has a state"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["http://127.0.0.1:1", "--start"],
            USAGE,
            "--start needs a graph, and the target is a URL",
        ),
        (["http://h:1", "--set", "decode.replicas=2"], USAGE, "--set needs a graph"),
        ([GRAPH, "--engine", "mocker"], USAGE, "--engine needs --start. Fix: Add --start."),
        ([GRAPH, "--timing", "model"], USAGE, "--timing needs --start"),
        ([GRAPH], NOT_UP, "is not up"),
    ],
)
def test_a_target_that_does_not_fit_is_an_error(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path))
    assert main(["bench", *arguments, "--workload", "short-chat"]) == code
    assert words in capsys.readouterr().err
