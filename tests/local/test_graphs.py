"""`penstock ls`: what is up, and what killed runs left behind."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from penstock.errors import NotUpError, PortInUseError, UsageError
from penstock.local.control import down, status
from penstock.local.graphs import GraphState, PoolCount, list_graphs
from penstock.local.logs import choose
from penstock.local.ports import require_free
from penstock.local.state import StateDir
from tests.local.builders import running
from tests.support.command_line import penstock


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the graphs; their state folders are separate from the user's."""
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def state_of(source: Path, *, pid: int) -> StateDir:
    state_dir = StateDir(source)
    state_dir.write(with_fields(running(pid=pid), source=str(source)))
    return state_dir


@pytest.fixture
def up(folder: Path) -> Iterator[StateDir]:
    """A graph that this process runs."""
    state_dir = state_of(folder / "up.yaml", pid=os.getpid())
    state_dir.acquire()
    yield state_dir
    state_dir.release()


@pytest.mark.usefixtures("folder")
def test_without_graphs_the_list_is_empty() -> None:
    done = penstock("ls")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no graph is up" in done.stderr
    quiet = penstock("ls", "-q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert json.loads(penstock("ls", "--json").stdout) == []


@pytest.mark.parametrize("verb", ["down", "status"])
def test_a_graph_that_is_not_up_and_a_file_that_does_not_exist(verb: str, folder: Path) -> None:
    file = folder / "g.yaml"
    with pytest.raises(
        NotUpError, match=r"g.yaml: no such file, .*. Fix: Run `penstock ls`, which"
    ):
        {"down": down, "status": status}[verb](file)
    file.touch()
    with pytest.raises(NotUpError) as error:
        {"down": down, "status": status}[verb](file)
    lists = "Run `penstock ls`, which lists the graphs that are up."
    fix = {"status": f"Run `penstock up {file}`.", "down": lists}[verb]
    assert str(error.value) == f"{file}: the graph is not up. Fix: {fix}"


COMPOSE = "services:\n  vllm:\n    image: vllm/vllm-openai:v0.11.0\n"
OTHER_CHART = "# of nginx\nreplicaCount: 1\nimage: {repository: nginx}\nservice: {port: 80}\n"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (COMPOSE, ":1 services", "the file is a Compose file, not a graph"),
        (OTHER_CHART, ":2 replicaCount", "the file is the values file of another Helm chart"),
        (DEPLOYMENT, ":1", "the file contains no DynamoGraphDeployment, only: Deployment"),
    ],
)
@pytest.mark.parametrize("verb", ["status", "logs", "down"])
def test_a_file_that_up_cannot_run_is_named_by_its_kind(
    verb: str, text: str, place: str, what: str, folder: Path
) -> None:
    file = folder / "compose.yaml"
    file.write_text(text)
    done = penstock(verb, str(file))
    assert done.returncode == 11
    assert done.stderr.startswith(f"penstock {verb}: {file}{place}: {what}")
    assert "Fix: Run `penstock ls`, which lists the graphs that are up." in done.stderr
    assert "penstock up" not in done.stderr


@pytest.mark.parametrize("verb", ["status", "logs"])
def test_up_is_the_fix_for_a_manifest_and_for_an_invalid_graph(verb: str, folder: Path) -> None:
    for text in (DEPLOYMENT.replace("Deployment", "DynamoGraphDeployment"), "model: {}\nx: 1\n"):
        file = folder / "g.yaml"
        file.write_text(text)
        done = penstock(verb, str(file))
        assert done.returncode == 11
        assert f"Fix: Run `penstock up {file}`." in done.stderr


def test_commands_in_messages_are_quoted_for_a_shell(folder: Path) -> None:
    file = folder / "my graphs" / "g.yaml"
    file.parent.mkdir()
    file.touch()
    with pytest.raises(NotUpError, match=r"Fix: Run `penstock up '/.*/my graphs/g.yaml'`\."):
        status(file)
    with pytest.raises(NotUpError, match=r"Fix: Run `penstock up '/.*/my graphs/g.yaml'`\."):
        choose(StateDir(file), None)


def test_logs_of_a_process_that_does_not_exist(folder: Path) -> None:
    state_dir = StateDir(folder / "g.yaml")
    with pytest.raises(NotUpError, match=r"no such file, .* was ever up. Fix: Run `penstock ls`,"):
        choose(state_dir, "decode.7")
    (folder / "g.yaml").touch()
    with pytest.raises(NotUpError, match=r"the graph was never up. Fix: Run `penstock up /.*/g.ya"):
        choose(state_dir, "decode.7")
    state_dir.logs.mkdir(parents=True)
    (state_dir.logs / "decode.0.log").touch()
    with pytest.raises(UsageError, match=r"no process is called 'decode.7'. Fix: Use one of deco"):
        choose(state_dir, "decode.7")


@pytest.mark.usefixtures("up")
def test_a_port_that_a_graph_uses_is_reported_with_the_graph(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match="Fix: Stop the process that uses it, or"):
            require_free("127.0.0.1", port)
        write_endpoint(folder, f"http://127.0.0.1:{port}/v1")
        with pytest.raises(PortInUseError, match=f"Fix: Run `penstock down {folder}/up.yaml`, or"):
            require_free("127.0.0.1", port)


def write_endpoint(folder: Path, url: str) -> None:
    """The graph at up.yaml is served at ``url``."""
    state_dir = StateDir(folder / "up.yaml")
    state = state_dir.read()
    assert state is not None
    state_dir.write(with_fields(state, endpoint=url))


def test_a_graph_that_is_up_has_its_state_url_and_replicas(up: StateDir, folder: Path) -> None:
    (graph,) = list_graphs()
    assert (graph.name, graph.state, graph.pid) == ("up", GraphState.READY, os.getpid())
    assert graph.source == str(folder / "up.yaml")
    assert graph.url == "http://127.0.0.1:8000/v1"
    assert graph.replicas == {"decode": PoolCount(ready=1, desired=1)}
    assert graph.started_at is not None
    assert graph.started_at < time.time()
    (entry,) = json.loads(penstock("ls", "--json").stdout)
    assert entry["replicas"] == {"decode": {"ready": 1, "desired": 1}}
    columns = penstock("ls", "--wide").stdout.splitlines()[1].split()
    assert columns[:3] == ["up", "ready", "1/1"]
    assert str(folder / "up.yaml") in columns


def test_a_killed_run_is_not_shown_as_running(folder: Path) -> None:
    # Its pid belongs to a live process again, as after a reboot.
    state_dir = state_of(folder / "dead.yaml", pid=os.getpid())
    (state_dir.path / "lock").write_text(str(os.getpid()))
    (graph,) = list_graphs()
    assert (graph.state, graph.pid, graph.url) == (GraphState.KILLED, None, None)
    assert graph.leftover_processes == 0
    output = penstock("ls").stdout
    assert "ready" not in output.splitlines()[1]
    assert f"dead was killed. Clean up with `penstock down {folder / 'dead.yaml'}`." in output


def test_a_run_after_a_killed_one_is_starting_until_it_writes_its_state(
    up: StateDir, folder: Path
) -> None:
    up.write(with_fields(running(pid=1), source=str(folder / "up.yaml")))
    (graph,) = list_graphs()
    assert (graph.state, graph.url) == (GraphState.STARTING, None)
    up.state_file.unlink()
    (graph,) = list_graphs()
    assert (graph.name, graph.state, graph.source) == ("up", GraphState.STARTING, None)


def test_a_state_of_another_version_is_named(up: StateDir) -> None:
    up.state_file.write_text('{"version": 7, "source": "/graphs/other.yaml"}')
    (graph,) = list_graphs()
    assert (graph.name, graph.state) == ("other", GraphState.UNREADABLE)
    assert graph.pid == os.getpid()


def test_a_graph_that_ended_normally_is_left_out(up: StateDir) -> None:
    up.clear()
    up.release()
    assert list_graphs() == []


def test_the_file_is_a_column_if_it_fits_80(
    folder: Path, up: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    for name, fits in (("up.yaml", True), (f"{'long/' * 12}up.yaml", False)):
        up.write(with_fields(running(pid=os.getpid()), source=f"/{name}"))
        output = penstock("ls", folder=Path("/")).stdout
        assert (name in output) is fits
        assert ("Add --wide for the files" in output) is not fits
        assert max(map(len, output.splitlines())) <= 80


def test_the_table_fits_80_columns_on_a_terminal(
    folder: Path, up: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    for line in penstock("ls", "--wide").stdout.splitlines():
        assert len(line) <= 80 + line.count("\x1b") * 4
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in penstock("ls").stdout
