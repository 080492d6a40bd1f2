"""`penstock scale` of a graph that is not up: the edit, and its warning."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from penstock.cli.main import main
from penstock.errors import GraphError, InputError
from penstock.graph.edit import edit_replicas, write_text
from penstock.graph.text_file import shipped_graph
from penstock.local import control
from penstock.local.state import StateDir
from tests.local.builders import running


def test_more_gpus_than_the_hardware_has_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    graph = tmp_path / "g.yaml"
    graph.write_text(shipped_graph("gpt-oss-120b-h200-disagg"))
    assert main(["scale", str(graph), "prefill=3"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.splitlines()[-1] == (
        "no `penstock up` runs this graph; only the file has these replicas"
    )
    assert main(["scale", str(graph), "decode=40"]) == 0
    output = capsys.readouterr()
    assert "decode.replicas: 40" in output.out
    assert "warning: PS209: the graph needs " in output.err
    assert len(output.err.splitlines()) == 1
    assert "replicas: 40" in graph.read_text()


def test_a_pool_without_replicas_is_a_warning_before_the_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    graph = tmp_path / "g.yaml"
    graph.write_text(shipped_graph("gpt-oss-120b-h200-disagg"))
    monkeypatch.setattr("os.access", lambda file, mode: False)  # the edit fails
    assert main(["scale", str(graph), "decode=0"]) != 0
    warning, error = capsys.readouterr().err.splitlines()
    assert warning == "warning: PS809: decode has 0 replicas. Fix: Set replicas to at least 1."
    assert "read-only" in error


def test_a_read_only_graph_is_an_error_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text("model: {}\n")
    monkeypatch.setattr("os.access", lambda file, mode: False)  # root may write every file
    with pytest.raises(InputError, match=r"cannot be written: the file is read-only\. Fix: Use a"):
        write_text(path, "changed")
    assert path.read_text() == "model: {}\n"
    assert list(tmp_path.iterdir()) == [path]


def test_an_edit_that_another_one_replaced_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(control, "EDIT_S", 0.2)
    path = tmp_path / "graph.yaml"
    path.write_text(shipped_graph("gpt-oss-120b-h200-disagg"))
    up = StateDir(path)
    up.acquire()
    up.write(running())

    def edit() -> None:
        edit_replicas(path, {"decode": 7})
        edit_replicas(path, {"decode": 8})

    with pytest.raises(GraphError, match="another edit changed the number of replicas again"):
        control.edited(path, edit, {"decode": 7})
    control.edited(path, edit, {"decode": 8})  # `up` applies it later


def test_simultaneous_edits_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(shipped_graph("gpt-oss-120b-h200-disagg"))
    counts = range(20, 30)
    with ThreadPoolExecutor(8) as pool:
        for count in counts:
            changes = [{"prefill": count}, {"decode": count}]
            assert all(pool.map(edit_replicas, [path] * 2, changes))
            values = yaml.safe_load(path.read_text())
            assert [values[name]["replicas"] for name in ("prefill", "decode")] == [count] * 2
    assert list(tmp_path.iterdir()) == [path]
