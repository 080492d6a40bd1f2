"""`penstock drill` with real Dynamo processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_graphs import QUICKSTART, require_envoy
from tests.support.outputs import read_output

REPLICAS = ("prefill.replicas=2", "decode.replicas=2", "frontend.replicas=2")


def drill(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "penstock.cli.main", "drill", str(QUICKSTART), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.envoy
def test_a_drill_of_workers_loses_nothing_and_writes_its_report(tmp_path: Path) -> None:
    require_envoy()
    sets = [part for replicas in REPLICAS for part in ("--set", replicas)]
    report = tmp_path / "drill.html"
    before = QUICKSTART.read_text()
    # With this seed: kill of each pool, the broker, a frontend and an Envoy, and two edits.
    arguments = ["--faults", "kill,scale,invalid-edit", "--count", "7", "--seed", "3"]
    done = drill(*arguments, "--streams", "8", "--json", "--report", str(report), *sets)
    assert done.returncode == 0, done.stdout + done.stderr
    result = read_output("drill", done.stdout)
    assert result["passed"]
    assert len(result["faults"]) == 7
    assert result["requests"] > 100
    assert (result["not_recovered"], result["leftovers"]) == ([], [])
    # Only the streams of the frontend and of the Envoy that died.
    assert {row["kind"] for row in result["rows"]} == {"kill", "scale", "invalid-edit"}
    failed = {row["target"] for row in result["rows"] if row["failed"]}
    assert failed <= {"frontend", "endpoint"}
    text = report.read_text("utf-8")
    assert "Passed: 7 faults" in text
    assert "<figcaption>Completed requests per second</figcaption>" in text
    assert QUICKSTART.read_text() == before
