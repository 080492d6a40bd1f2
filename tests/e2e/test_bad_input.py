"""Invalid input: the error fits one screen, has a place and a fix, and leaves nothing running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_graphs import QUICKSTART, assert_nothing_left, without_envoy

INPUT, GRAPH, LAUNCH, TOOL, START, CHECK = 3, 4, 7, 8, 12, 14
SCREEN = 40  # lines


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert_nothing_left(tmp_path)


def up(folder: Path, graph: Path, *arguments: str, **env: str) -> tuple[int, str]:
    """Run a `penstock up` that must fail; return its exit code and its error output."""
    before = graph.read_bytes() if graph.is_file() and os.access(graph, os.R_OK) else b""
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "up", str(graph), "--port", "0", *arguments],
        env={
            **os.environ,
            "PENSTOCK_STATE_HOME": str(folder / "state"),
            **without_envoy(folder),
            **env,
        },
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) <= SCREEN
    if before:
        assert graph.read_bytes() == before
    return done.returncode, done.stderr


def write(folder: Path, text: str) -> Path:
    path = folder / "graph.yaml"
    path.write_text(text)
    return path


def edited(folder: Path, old: str, new: str) -> Path:
    text = QUICKSTART.read_text()
    assert old in text
    return write(folder, text.replace(old, new, 1))


def test_an_unknown_key(folder: Path) -> None:
    code, output = up(folder, edited(folder, "replicas: 2", "replicsa: 2"))
    assert code == GRAPH
    assert "graph.yaml:" in output
    assert "prefill.replicsa" in output
    assert "replicas" in output.split("Fix:")[1]


def test_a_duplicate_key(folder: Path) -> None:
    code, output = up(folder, write(folder, QUICKSTART.read_text() + "\ndecode:\n  replicas: 3\n"))
    assert code == GRAPH
    assert "decode" in output
    assert "Fix:" in output


def test_a_wrong_type(folder: Path) -> None:
    code, output = up(folder, edited(folder, "replicas: 2", 'replicas: "2"'))
    assert code == GRAPH
    assert "prefill.replicas" in output
    assert "Fix:" in output


def test_negative_replicas(folder: Path) -> None:
    code, output = up(folder, edited(folder, "replicas: 2", "replicas: -1"))
    assert code == GRAPH
    assert "prefill.replicas" in output
    assert "-1" in output


def test_prefill_without_decode(folder: Path) -> None:
    text = QUICKSTART.read_text()
    code, output = up(folder, write(folder, text[: text.index("decode:\n")]))
    assert code == GRAPH
    assert "the graph has `prefill` but not `decode`" in output
    assert "Fix:" in output


def test_a_yaml_syntax_error(folder: Path) -> None:
    code, output = up(folder, edited(folder, "kind: mocker", "kind: [mocker"))
    assert code == GRAPH
    assert "graph.yaml:" in output


def test_an_empty_file(folder: Path) -> None:
    code, output = up(folder, write(folder, ""))
    assert code == GRAPH
    assert "empty" in output


def test_a_directory(folder: Path) -> None:
    code, output = up(folder, folder)
    assert code == INPUT
    assert "is a directory" in output


def test_no_such_file(folder: Path) -> None:
    code, output = up(folder, folder / "none.yaml")
    assert code == INPUT
    assert "no such file" in output


def test_an_unreadable_file(folder: Path) -> None:
    path = write(folder, QUICKSTART.read_text())
    path.chmod(0)
    if os.access(path, os.R_OK):
        # root reads everything: a path through a file is unreadable for root too
        path = path / "inside.yaml"
    code, output = up(folder, path)
    assert code == INPUT
    assert "cannot be read" in output


def test_a_file_that_is_not_text(folder: Path) -> None:
    path = folder / "graph.yaml"
    path.write_bytes(b"model: \xff\xfe")
    code, output = up(folder, path)
    assert code == INPUT
    assert "UTF-8" in output


def test_a_missing_model_path(folder: Path) -> None:
    graph = edited(folder, "  context_length", "  path: /no/such/model\n  context_length")
    code, output = up(folder, graph)
    assert code == INPUT
    assert "model.path" in output
    assert "/no/such/model" in output
    assert "Fix:" in output


def test_a_missing_server_program(folder: Path) -> None:
    graph = write(folder, QUICKSTART.read_text() + "\ninfrastructure:\n  discovery: etcd\n")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "setpriv").symlink_to(shutil.which("setpriv") or "/bin/true")
    if any(Path(p, "etcd").exists() for p in ("/usr/sbin", "/usr/local/sbin")):
        pytest.skip("etcd lies in sbin, which is searched whatever PATH says")
    code, output = up(folder, graph, PATH=str(tools))
    assert code == TOOL
    assert "etcd" in output
    assert "apt install etcd-server" in output


def test_an_engine_that_cannot_start_is_named_with_its_last_lines(folder: Path) -> None:
    option = "  config:\n    dynamo: {response_replay_trace_path: /no/trace}\n"
    graph = edited(folder, "  config:\n", option)
    code, output = up(folder, graph)
    assert code == START
    assert "exit code" in output
    assert "/no/trace" in output
    assert "Log:" in output


@pytest.mark.parametrize("graph", ["quickstart", "gpt-oss-120b-b200-disagg"])
def test_a_flag_that_the_engine_rejects_is_reported_at_its_line(folder: Path, graph: str) -> None:
    text = (QUICKSTART.parent / f"{graph}.yaml").read_text()
    line = next(n for n, words in enumerate(text.splitlines(), 2) if words.startswith("  kind:"))
    kind = text.splitlines()[line - 2]
    path = write(folder, text.replace(kind, f"{kind}\n  args: [--no-such-flag]"))
    code, output = up(folder, path)
    assert code == CHECK
    assert f"graph.yaml:{line} engine.args[0]: PS141" in output
    assert "--no-such-flag" in output
    assert len(output.splitlines()) == 1  # once, not once a pool
    code, output = up(folder, path, "--skip-check")  # the parser itself says it too
    assert code == LAUNCH
    assert f"graph.yaml:{line} engine.args[0]: " in output


def test_an_option_that_the_mocker_rejects_is_reported_at_its_line(folder: Path) -> None:
    code, output = up(folder, edited(folder, "speedup_ratio: 2.0", "speedup_ratio: fast"))
    assert code == LAUNCH
    assert "engine.config.engine.speedup_ratio" in output
    assert "graph.yaml:" in output


def test_an_unknown_argument_of_the_command_line(folder: Path) -> None:
    code, output = up(folder, write(folder, QUICKSTART.read_text()), "--prot", "1")
    assert code == 2
    assert "--prot" in output


def test_a_signal_while_starting_leaves_nothing(folder: Path) -> None:
    graph = write(folder, QUICKSTART.read_text())
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "up", str(graph), "--port", "0"],
        env={
            **os.environ,
            "PENSTOCK_STATE_HOME": str(folder / "state"),
            **without_envoy(folder),
        },
        stderr=subprocess.PIPE,
    )
    while not list((folder / "state").glob("*/logs/decode.0.log")):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_pool_without_replicas_is_an_error(folder: Path) -> None:
    code, output = up(folder, edited(folder, "  replicas: 1\n", "  replicas: 0\n"))
    assert code == GRAPH
    assert "decode.replicas" in output
    assert "graph.yaml:" in output


def test_an_address_of_another_machine(folder: Path) -> None:
    graph = write(folder, QUICKSTART.read_text())
    code, output = up(folder, graph, "--host", "192.0.2.1")
    assert code == 9
    assert "--host" in output
    assert "address of this machine" in output


def test_a_server_that_does_not_respond(folder: Path) -> None:
    servers = "\ninfrastructure:\n  discovery: etcd\n  etcd_endpoints: [http://127.0.0.1:9]\n"
    code, output = up(folder, write(folder, QUICKSTART.read_text() + servers))
    assert code == START
    assert "infrastructure.etcd_endpoints: http://127.0.0.1:9 does not respond" in output


def test_an_abbreviated_flag_is_an_error(folder: Path) -> None:
    code, output = up(folder, write(folder, QUICKSTART.read_text()), "--det")
    assert code == 2
    assert "--det" in output
