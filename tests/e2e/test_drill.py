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
from tests.support.repeats import without_lost_stream

REPLICAS = ("prefill.replicas=2", "decode.replicas=2", "frontend.replicas=2")

SERVERS = {"frontend", "endpoint"}  # Envoy is the endpoint; the streams of one that dies are lost


def drill(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "penstock.cli.main", "drill", str(QUICKSTART), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def failed(result: Mapping[str, Any]) -> set[str]:
    """The targets of faults that failed a request."""
    return {row["target"] for row in result["rows"] if row["failed"]}


@pytest.mark.timeout(900)  # of up to three runs
@pytest.mark.needs("envoy")
def test_a_drill_of_workers_loses_nothing_and_writes_its_report(tmp_path: Path) -> None:
    sets = [part for replicas in REPLICAS for part in ("--set", replicas)]
    before = QUICKSTART.read_text()
    # With this seed: kill of each pool, the broker, a frontend and an Envoy, and two edits.
    arguments = ["--faults", "kill,scale,invalid-edit", "--count", "7", "--seed", "3"]

    def run(number: int) -> tuple[Mapping[str, Any], str]:
        """The result and the report of a drill that lost no stream, except of a decode worker."""
        report = tmp_path / f"{number}.html"
        done = drill(*arguments, "--streams", "8", "--json", "--report", str(report), *sets)
        output = done.stdout + done.stderr
        assert done.stdout, output
        result = read_output("drill", done.stdout)
        assert (done.returncode == 0) == result["passed"], output
        assert result["passed"] or failed(result) - SERVERS == {"decode"}, output
        assert len(result["faults"]) == 7
        assert result["requests"] > 100
        assert (result["not_recovered"], result["leftovers"]) == ([], [])
        assert {row["kind"] for row in result["rows"]} == {"kill", "scale", "invalid-edit"}
        return result, report.read_text("utf-8")

    result, text = without_lost_stream(run, lambda found: not found[0]["passed"])
    assert result["passed"]
    assert failed(result) <= SERVERS
    assert "Passed: 7 faults" in text
    assert "<figcaption>Completed requests per second</figcaption>" in text
    assert QUICKSTART.read_text() == before
