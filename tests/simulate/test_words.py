"""What a study says of itself."""

import json
from pathlib import Path

from penstock.simulate import words

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_the_known_error_is_the_measured_one() -> None:
    measured = json.loads((RESULTS / "accuracy.json").read_text())["together"]
    assert measured["points"] == words.POINTS
    assert round(measured["tpot_mean_absolute"], 2) == words.ITL_ERROR
    assert measured["tpot_within_10_percent"] == words.ITL_WITHIN
    assert abs(measured["ttft_short_ms"] - words.TTFT_SHORT_MS) <= 5
