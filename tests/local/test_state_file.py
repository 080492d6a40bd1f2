"""The state file: a round trip, and the errors for files that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from penstock.cli.main import main
from penstock.errors import InputError
from penstock.local.control import GraphStatus, down, status
from penstock.local.discovery import Instance
from penstock.local.state import StateDir
from penstock.local.state_file import EtcdDiscoveryState
from tests.local.builders import running


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph with a state folder of its own."""
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "graph.yaml"
    path.write_text("name: graph\n")
    return path


def written(graph: Path, text: str) -> StateDir:
    folder = StateDir(graph)
    folder.path.mkdir(parents=True)
    folder.state_file.write_text(text)
    return folder


def test_a_written_state_is_read_back(graph: Path) -> None:
    folder = StateDir(graph)
    assert folder.read() is None
    for state in (
        running(sets=("decode.replicas=2",)),
        with_fields(running(), discovery=EtcdDiscoveryState(endpoint="http://e", namespace="n")),
    ):
        folder.write(state)
        assert folder.read() == state


def test_the_state_of_an_older_penstock_is_an_error_with_a_fix(graph: Path) -> None:
    old = {"pid": 1, "phase": "ready", "replicas": []}
    with pytest.raises(InputError, match=r"an older version of penstock.*Run `penstock down"):
        written(graph, json.dumps(old)).read()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ('{"version": 7}', "version 7; expected 1"),
        ('{"version": 1}', "missing required field `pid`"),
    ],
)
def test_a_broken_state_file_is_reported(graph: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        written(graph, text).read()


@pytest.mark.parametrize("verb", ["status", "scale"])
def test_a_running_graph_with_a_broken_state_file_is_an_input_error(
    graph: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(graph, "{")
    folder.acquire()
    more = ["decode=2"] if verb == "scale" else []
    try:
        assert main([verb, str(graph), *more]) == InputError.exit_code
    finally:
        folder.release()
    assert "the state of the running graph cannot be read" in capsys.readouterr().err


def test_down_clears_a_broken_state_file(graph: Path) -> None:
    folder = written(graph, "{")
    assert "removed what a killed penstock left behind" in down(graph)
    assert not folder.state_file.exists()


def test_status_as_json_marks_the_registered_replicas() -> None:
    worker = Instance(
        worker_id=0xAB, namespace="n", component="backend", endpoint="generate", address=""
    )
    document = GraphStatus(state=running(), workers=(worker,)).as_dict()
    assert document["replicas"][0]["registered"] is True
    assert document["workers"][0]["worker_id"] == "ab"
    document = GraphStatus(state=running(), workers=()).as_dict()
    assert document["replicas"][0]["registered"] is False


def test_status_reads_the_registered_workers(graph: Path) -> None:
    folder = StateDir(graph)
    folder.acquire()
    try:
        folder.write(running())
        assert status(graph).workers == ()
    finally:
        folder.release()
