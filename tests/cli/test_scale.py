"""`penstock scale` of a graph that is not up: the edit, and its warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.graph.shipped_graphs import shipped_graph


def test_more_gpus_than_the_hardware_has_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    graph = tmp_path / "g.yaml"
    graph.write_text(shipped_graph("gpt-oss-120b-h200-disagg"))
    assert main(["scale", str(graph), "prefill=3"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["scale", str(graph), "decode=40"]) == 0
    output = capsys.readouterr()
    assert "decode.replicas: 40" in output.out
    assert "warning: PS209: the graph needs " in output.err
    assert len(output.err.splitlines()) == 1
    assert "replicas: 40" in graph.read_text()
