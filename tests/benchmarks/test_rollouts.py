"""The page has the figures of the result file."""

from __future__ import annotations

import json

import rollouts
from tests.support.repository import ROOT


def test_the_page_has_the_results_of_all_cases() -> None:
    figures = json.loads((ROOT / "benchmarks/results/rollouts.json").read_text())["cases"]
    assert set(figures) <= set(rollouts.cases())
    assert rollouts.table(figures) in (ROOT / "docs/accuracy.md").read_text()
    planned = [f["total"] for name, f in figures.items() if "kills" not in name]
    assert sum(total["changes"] for total in planned) >= 200
    assert sum(total["lost"] for total in planned) == 0
