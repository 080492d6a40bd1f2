"""The benchmark of the quick calibration, with a scripted server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "quick_calibration.py"


@pytest.mark.program
@pytest.mark.slow
def test_the_short_form_finds_the_planned_step_times() -> None:
    command = [sys.executable, str(SCRIPT), "--short"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    planned, measured = figures["planned"], figures["measured"]
    assert measured["prompt_tokens"] == 8192
    for name in ("step_ms", "batch_step_ms"):  # a busy machine delays the server
        assert 0.8 * planned[name] < measured[name] < 5 * planned[name]
    assert 0 < measured["peak_prefill_throughput"] < 1.5 * planned["peak_prefill_throughput"]
