"""The comparison of plans with brute force, on a small case."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plan_cases import CASES, HELD_OUT, KNOWN, is_held_out

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "plan_against_all.py"


@pytest.mark.e2e
def test_the_short_profile_compares_a_plan_with_other_graphs() -> None:
    command = [sys.executable, str(SCRIPT), "--short"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["replayed"] >= 10
    assert 0.8 < result["ratio"] <= 1
    assert result["answer"]["gpus"] == result["best"]["gpus"] == 2


def test_half_of_the_cases_are_held_out_and_no_known_failure() -> None:
    assert sum(map(is_held_out, CASES)) == HELD_OUT == len(CASES) / 2
    assert not any(map(is_held_out, KNOWN))
