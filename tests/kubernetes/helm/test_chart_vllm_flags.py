"""Keys derived from the graph are flags of vLLM 0.31."""

from __future__ import annotations

import pytest

from penstock.engines.substitutes import flag_table
from tests.support.charts import Chart, graph_values


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_derived_keys_are_flags_of_vllm(chart: Chart, pool: str) -> None:
    known = {flag for option in flag_table()["options"] for flag in option["flags"]}
    values = graph_values(
        "vllm",
        model={"id": "a/b", "context_length": 4096, "revision": "main"},
        speculation={"method": "ngram"},
    )
    assert {f"--{key}" for key in chart.config(values, pool)} <= known
