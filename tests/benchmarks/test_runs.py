"""The published runs: their files, the split, and the summary of the errors."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import runs
from penstock.simulate.interval import ELSEWHERE
from penstock.workload.model import Workload
from run_summary import figures, rankings, saturations, summary

BY_NAME = pytest.mark.parametrize("name", sorted(runs.runs()))
KEYS = {
    *("source", "kind", "fitted", "engine_version", "layout", "not_stated", "assumed", "graph"),
    *("arms", "counted_output", "workload", "prompts", "columns", "rows"),
}
KINDS = {
    *("ladder", "concurrency", "single", "disaggregated", "tiered", "speculative", "agentic"),
}
FIGURES = {*runs.STATISTICS, "hit", "arm", "accept_length", "draft_tokens", *runs.LOADS}


@BY_NAME
def test_a_run_states_its_source_its_gaps_and_its_rows(name: str) -> None:
    run = runs.runs()[name]
    assert set(run) <= KEYS
    assert run["kind"] in KINDS
    assert {"repository", "file", "commit", "license"} <= set(run["source"])
    assert run["not_stated"] is not None
    assert run["assumed"]
    assert ("prompts" in run) != ("workload" in run)
    rows = runs.rows_of(run)
    assert all(set(row) <= FIGURES for row in rows)
    assert all("rate" in row or "concurrency" in row for row in rows)
    assert {row["arm"] for row in rows if "arm" in row} <= set(run.get("arms", {}))


@BY_NAME
def test_the_traffic_of_every_row_can_be_sampled(name: str) -> None:
    run = runs.runs()[name]
    for row in runs.rows_of(run):
        if "workload" in run:
            loaded, start = runs.workload_of(run, row)
            assert start == 0
            assert isinstance(loaded.workload, Workload)


def test_the_stage_begins_after_the_requests_before_it() -> None:
    run = {"prompts": {"groups": 3, "each": 2, "prefix": 128, "question": 64, "output": 8}}
    loaded, start = runs.workload_of(run, {"rate": 5, "seconds": 4})
    requests = loaded.requests(0)
    stage = [request for request in requests if (request.at_ms or 0) >= start]
    assert (len(requests), len(stage)) == (6 + 20, 20)
    assert {request.output_tokens for request in stage} == {8}
    assert len({request.blocks for request in stage}) == 6
    assert len({request.blocks[:2] for request in stage}) == 3


def test_the_split_depends_on_the_name_only_and_what_was_fitted_is_not_held_out() -> None:
    halves = Counter(runs.half(name, run) for name, run in runs.runs().items())
    rows = Counter[str]()
    for name, run in runs.runs().items():
        rows[runs.half(name, run)] += len(run["rows"])
        assert not run.get("fitted") or runs.half(name, run) == "fit"
    assert sum(halves.values()) >= 25
    assert rows["held-out"] >= 120
    assert runs.half("llm-d-gpt-oss-120b-h100-shared-prefix", {}) == "held-out"


def row(arm: str, rate: float, measured: float, predicted: float, **more: Any) -> dict[str, Any]:
    common = {"run": "r", "half": "fit", "kind": "ladder", "error": ""}
    figure = {"request_rate": predicted, "ttft_p50_ms": 100.0}
    load = {"arm": arm, "rate": rate, "request_rate": measured, "ttft_p50_ms": 80.0}
    return {**common, "measured": {**load, **more}, "predicted": figure}


LADDER = [row("a", 1, 1, 1), row("a", 2, 2, 2), row("a", 3, 2.7, 3), row("a", 4, 2.8, 3.6)]


def test_saturation_is_the_highest_throughput_of_a_ladder_that_saturates() -> None:
    (knee,) = saturations(LADDER)
    assert (knee["measured"], knee["predicted"]) == (2.8, 3.6)
    assert figures(LADDER)["saturation"]["median_error"] == pytest.approx(0.286)
    assert not list(saturations(LADDER[:3]))


def test_ttft_counts_below_saturation_only() -> None:
    queued = row("a", 5, 2.8, 3.6, ttft_p50_ms=9000)
    counted = figures([*LADDER, queued])["ttft"]
    assert counted == figures(LADDER)["ttft"]
    assert (counted["figures"], counted["median_error"]) == (2, 0.25)


def test_arms_under_the_same_load_are_ranked() -> None:
    pairs = list(rankings([row("a", 4, 2.0, 3.0), row("b", 4, 4.0, 3.5)]))
    assert [(metric, is_right) for _, metric, is_right in pairs] == [("throughput", True)]


def test_the_result_is_the_summary_of_the_predicted_rows() -> None:
    result = json.loads((runs.RESULTS / "runs.json").read_text())
    expected = json.loads(json.dumps(summary(runs.compared(runs.predicted()))))
    assert {key: result[key] for key in expected} == expected


def test_intervals_have_the_errors_of_the_fitting_half() -> None:
    result = json.loads((runs.RESULTS / "runs.json").read_text())
    assert result["elsewhere"] == pytest.approx(ELSEWHERE, abs=0.05)


@pytest.mark.slow
@pytest.mark.needs("sim")
def test_the_short_profile_predicts_rows(capsys: pytest.CaptureFixture[str]) -> None:
    runs.short()
    part = json.loads(capsys.readouterr().out)["fit"]
    assert (part["rows"], part["not_predicted"]) == (3, 0)
    assert part["ttft"]["figures"] == 3
