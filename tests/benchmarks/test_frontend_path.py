"""The scripts that measure the frontend's path, and fit it to published TTFTs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import full_hits
from measured import FIT, HELD_OUT
from penstock.simulate.frontend import CPU, DEFAULT, TIMES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESULTS = BENCHMARKS / "results"
FIT_RESULT = json.loads((RESULTS / "full_hits.json").read_text())


@pytest.mark.e2e
def test_a_short_run_measures_each_kind_of_prompt() -> None:
    command = [sys.executable, BENCHMARKS / "frontend_path.py", "--short"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    cells = json.loads(done.stdout[done.stdout.index("{\n") :])
    assert {cell.split(", ")[1] for cell in cells} == set(full_hits.KINDS)
    assert all(0 < cell["minimum TTFT ms"] < 5000 for cell in cells.values())


def test_sources_are_in_one_half_each() -> None:
    halves = {row["source"]: full_hits.half(row["source"]) for row in full_hits.read()}
    assert set(halves.values()) == {FIT, HELD_OUT}
    assert len(full_hits.read()) >= 12


def test_the_package_has_the_fitted_times() -> None:
    fitted = FIT_RESULT["per 1,000 input tokens ms"]
    for tokenizer, time in TIMES.items():
        assert time.fixed_ms == pytest.approx(FIT_RESULT["fixed ms"], rel=0.1)
        assert time.per_1k_ms == pytest.approx(fitted[tokenizer], rel=0.1, abs=0.02)
    assert TIMES.keys() == CPU.keys() >= {DEFAULT}
