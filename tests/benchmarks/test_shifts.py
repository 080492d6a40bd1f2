"""The page about the gateway has the results of benchmarks/shifts.py."""

from __future__ import annotations

import json
from pathlib import Path

import shifts

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_results_of_all_cases() -> None:
    cases = json.loads((ROOT / "benchmarks/results/shifts.json").read_text())["cases"]
    assert set(cases) <= set(shifts.CASES)
    assert shifts.table(cases) in (ROOT / "docs/gateway.md").read_text()
    for case in cases.values():
        assert case["total"]["correct"] == case["total"]["shifts"]
        assert case["total"]["failed"] == 0
        assert case["total"]["later_than_60_s_and_300_requests"] == 0
