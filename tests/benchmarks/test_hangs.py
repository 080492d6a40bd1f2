"""The figures of planted hangs, as the page states them."""

from __future__ import annotations

import json

import hangs
from tests.support.charts import ROOT


def test_the_table_is_that_of_the_page() -> None:
    cases = json.loads((ROOT / "benchmarks/results/hangs.json").read_text())["cases"]
    assert hangs.table(cases) in (ROOT / "docs/live.md").read_text()
