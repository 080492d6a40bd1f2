"""`penstock drill` with real Dynamo processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_graphs import QUICKSTART
from tests.support.outputs import read_output

REPLICAS = ("prefill.replicas=2", "decode.replicas=2", "frontend.replicas=2")

SERVERS = {"frontend", "endpoint"}  # Envoy is the endpoint; the streams of one that dies are lost


def drill(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "penstock.cli.main", "drill", str(QUICKSTART), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def failed(result: Mapping[str, Any]) -> set[str]:
    """The targets of faults that failed a request."""
    return {row["target"] for row in result["rows"] if row["failed"]}


@pytest.mark.destroys_graph
@pytest.mark.nightly  # test_edit.py and test_recovery.py have these faults under load
@pytest.mark.needs("envoy")
def test_a_drill_of_workers_loses_nothing_and_writes_its_report(tmp_path: Path) -> None:
    sets = [part for replicas in REPLICAS for part in ("--set", replicas)]
    before = QUICKSTART.read_text()
    report = tmp_path / "report.html"
    # With this seed: kill of each pool, the broker, a frontend and an Envoy, and two edits.
    faults = ["--faults", "kill,scale,invalid-edit", "--count", "7", "--seed", "3"]
    arguments = [*faults, "--concurrency", "8"]
    done = drill(*arguments, "--json", "--report", str(report), *sets)
    output = done.stdout + done.stderr
    assert done.stdout, output
    result = read_output("drill", done.stdout)
    assert done.returncode == 0, output
    assert result["passed"], output
    assert len(result["faults"]) == 7
    assert result["requests"] > 100
    assert (result["not_recovered"], result["leftovers"]) == ([], [])
    assert {row["kind"] for row in result["rows"]} == {"kill", "scale", "invalid-edit"}
    assert failed(result) <= SERVERS
    text = report.read_text("utf-8")
    assert "Passed: 7 faults" in text
    assert "<figcaption>Completed requests per second</figcaption>" in text
    assert QUICKSTART.read_text() == before
