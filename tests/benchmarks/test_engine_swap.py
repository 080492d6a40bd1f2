"""The page about the gateway has the results of benchmarks/engine_swap.py."""

from __future__ import annotations

import json

import engine_swap
from tests.support.charts import ROOT


def test_the_page_has_the_results_of_all_cases() -> None:
    cases = json.loads((ROOT / "benchmarks/results/engine_swap.json").read_text())["cases"]
    assert set(cases) <= set(engine_swap.CASES)
    assert engine_swap.table(cases) in (ROOT / "docs/gateway.md").read_text()
    for case in cases.values():
        assert case["clients"].keys() == {"200"}
