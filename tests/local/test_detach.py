"""`up --detach` prints why a graph did not start."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from penstock.errors import ManifestError, StartError
from penstock.local.detach import LATER_S, detach
from penstock.local.state import StateDir
from tests.support.waiting import wait_for

GRAPH = """\
apiVersion: nvidia.com/v0
kind: DynamoGraphDeployment
metadata: {name: unknown}
"""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "unknown.yaml"
    path.write_text(GRAPH)
    return path


@pytest.mark.slow
def test_a_graph_that_is_refused_prints_the_error_and_has_its_exit_code(
    graph: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = detach(graph, ["up", str(graph)], timeout_s=60)
    assert code == ManifestError.exit_code
    assert "unknown apiVersion nvidia.com/v0. Fix: Set nvidia.com/v1beta1" in capfd.readouterr().err


def test_a_child_that_does_not_become_ready_is_stopped(
    graph: Path,
) -> None:
    with pytest.raises(StartError, match="did not become ready within 0 s"):
        detach(graph, ["up", str(graph)], timeout_s=-LATER_S)


@pytest.mark.program
def test_ctrl_c_stops_a_child_that_is_not_ready(
    graph: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/bash\ntrap 'kill $!; echo stopped > {tmp_path}/end; exit' TERM\n"
        f"sleep 20 & touch {tmp_path}/begun; wait\n"
    )
    python.chmod(0o755)

    def interrupt(_: float) -> None:
        wait_for((tmp_path / "begun").exists, "the child")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("penstock.local.detach.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        detach(graph, ["up", str(graph)], timeout_s=60)
    assert (tmp_path / "end").read_text() == "stopped\n"


@pytest.mark.program
def test_two_at_the_same_time_keep_each_other_s_output(
    graph: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = StateDir(graph).path / "up.log"
    python = tmp_path / "python"
    # What another `up` writes meanwhile, longer than the child's own error.
    python.write_text(f"#!/bin/sh\necho {'other ' * 9} >> {log}\necho the graph is up; exit 10\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert detach(graph, ["up", str(graph)], timeout_s=60) == 10
    assert capfd.readouterr().err.splitlines() == [" ".join(["other"] * 9), "the graph is up"]


@pytest.mark.program
def test_a_child_that_is_killed_is_reported_with_the_signal(
    graph: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\necho starting\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    with pytest.raises(StartError, match="was ended by SIGKILL before the graph was ready"):
        detach(graph, ["up", str(graph)], timeout_s=60)
