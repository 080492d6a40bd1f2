"""The known error in a study's report."""

import json
from pathlib import Path

from penstock.simulate import report

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_the_known_error_is_the_measured_one() -> None:
    measured = json.loads((RESULTS / "accuracy.json").read_text())["overall"]
    assert measured["points"] == report.POINTS
    assert round(measured["tpot_mean_absolute"], 2) == report.ITL_ERROR
    assert measured["tpot_within_10_percent"] == report.ITL_WITHIN
    assert abs(measured["ttft_short_ms"] - report.TTFT_SHORT_MS) <= 5
