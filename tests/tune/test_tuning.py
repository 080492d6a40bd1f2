"""What `tune` recommends, for replays whose metrics are known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli import tune as command
from penstock.tune import report, tuning
from penstock.tune.compare import best_of, ratio_of
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings, grid
from penstock.tune.tuning import Search, tune
from tests.reports.read import text_of
from tests.tune.scripted import (
    SEEDS,
    TUNED,
    ScriptedStudy,
    deployment,
    faster,
    scripted_parts,
    tuned,
)


@pytest.mark.parametrize("best", [TUNED, RouterSettings(8, 1), RouterSettings(1, 2)])
def test_the_best_settings_are_found_and_confirmed(best: RouterSettings) -> None:
    found = tuned(faster(best))
    assert found.recommended == best
    assert found.is_changed
    assert found.confirmation is not None
    assert found.confirmation.ratio.mean == pytest.approx(1 / 0.7)
    line = report.recommendation(found)
    assert line.startswith(f"{best}: TTFT p90 100 → 70 ms, ratio 1.43 (95% lower bound 1.43)")


def test_a_queue_is_tried_for_the_best_settings_without_one() -> None:
    def behavior(settings: RouterSettings, seed: int) -> dict[str, Any]:
        gain = settings.prefill_load_scale + (settings.queue_threshold == 0)
        return {"ttft_p90_ms": 100 - 3 * gain + seed % 2}

    found = tuned(behavior)
    assert found.recommended == RouterSettings(8, 1, 0.0)
    assert len(found.trials) == 9 + 3 * 3


def test_the_confirmation_replays_no_seed_of_the_choice() -> None:
    parts = scripted_parts(faster(TUNED))
    tune(deployment(), parts, SEEDS, lambda *_: None)
    assert isinstance(parts.choice, ScriptedStudy)
    assert isinstance(parts.confirmation, ScriptedStudy)
    assert {seed for _, seed in parts.confirmation.asked} == set(range(3, 9))
    assert set(parts.confirmation.asked) == {
        (s, seed) for s in (TUNED, DYNAMO_DEFAULT) for seed in range(3, 9)
    }


def test_settings_that_were_only_lucky_are_not_recommended() -> None:
    def lucky(settings: RouterSettings, seed: int) -> dict[str, Any]:
        return {"ttft_p90_ms": 70 if settings == TUNED and seed < SEEDS else 100}

    found = tuned(lucky)
    assert found.chosen.settings == TUNED
    assert not found.is_changed
    assert found.recommended == DYNAMO_DEFAULT
    line = report.recommendation(found)
    assert line.startswith("keep Dynamo's default: prefill_load_scale 4")
    assert "lower bound of the ratio 1.00, needed 1.03" in line


def test_settings_that_break_a_margin_on_the_other_part_are_not_recommended() -> None:
    def slow_tail(settings: RouterSettings, seed: int) -> dict[str, Any]:
        is_late = settings == TUNED and seed >= SEEDS
        return {**faster(TUNED)(settings, seed), "ttft_p99_ms": 300 if is_late else 100}

    found = tuned(slow_tail)
    assert not found.is_changed
    assert "on the confirmation part, TTFT p99 is 200% higher" in report.recommendation(found)


def test_without_a_difference_nothing_is_confirmed() -> None:
    found = tuned(lambda settings, seed: {"ttft_p90_ms": 100.0})
    assert (found.confirmation, found.recommended) == (None, DYNAMO_DEFAULT)
    line = report.recommendation(found)
    assert line == "keep Dynamo's default: no other settings were better on the choice part"


def test_without_queues_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "QUEUED", 0.2)  # `steady` queues for 10 % of the TTFT
    found = tuned(lambda settings, seed: {"ttft_p90_ms": 100.0})
    assert "requests hardly queue (p90 of the prefill queue time is 10%" in report.recommendation(
        found
    )


def test_dynamos_default_is_a_candidate_for_a_graph_with_other_settings() -> None:
    own = {"prefill_load_scale": 2, "overlap_score_credit": 3, "router_queue_threshold": 2.0}
    found = tuned(faster(DYNAMO_DEFAULT), **own)
    assert found.base.settings == RouterSettings(2, 3, 2.0)
    assert found.recommended == DYNAMO_DEFAULT
    assert found.is_changed
    kept = tuned(faster(RouterSettings(2, 3, 2.0)), **own)
    assert kept.recommended == RouterSettings(2, 3, 2.0)
    assert report.recommendation(kept).startswith("keep the graph's prefill_load_scale 2")
    assert DYNAMO_DEFAULT in {trial.settings for trial in kept.trials}


@pytest.mark.slow
@pytest.mark.parametrize("shape", range(4))
def test_the_search_is_within_three_percent_of_the_complete_grid(shape: int) -> None:
    def behavior(settings: RouterSettings, seed: int) -> dict[str, Any]:
        scale, credit = settings.prefill_load_scale, settings.overlap_score_credit
        queue = settings.queue_threshold == 0
        curves = (
            abs(scale - 4) + abs(credit - 4) - queue,
            abs(scale - 8) + 3 * credit + 2 * queue,
            scale + credit - 3 * queue,
            abs(scale - 4) * credit - queue * credit,
        )
        return {"ttft_p90_ms": 100 + 4 * curves[shape] + (seed * 7 + scale) % 3}

    found = tuned(behavior)
    search = Search(deployment(), lambda *_: None, 99)
    base, *others = search.replay(scripted_parts(behavior).choice, grid(), "choice")
    best = best_of(base, others)
    assert ratio_of(best, found.chosen).mean > 0.97


def test_progress_never_exceeds_the_total() -> None:
    reported: list[tuple[str, int, int]] = []
    parts = scripted_parts(faster(TUNED))
    found = tune(deployment(), parts, SEEDS, lambda *one: reported.append(one))
    assert [done for _, done, _ in reported] == sorted(done for _, done, _ in reported)
    assert all(done <= total for _, done, total in reported)
    assert reported[0][0].startswith("choice: 9 settings")
    assert found.replays == reported[-1][1]


def test_the_output_has_both_parts_and_the_margins() -> None:
    found = tuned(faster(TUNED))
    text = text_of(report.report_of(found))
    lines = text.splitlines()
    assert lines[0] == "ours, chat: Poisson, 4 requests/s; simulated, not measured"
    assert "TTFT p99 or ITL p90 more than 5% higher" in text
    assert "choice (seeds 0 to 2), the best of 18 combinations:" in text
    assert "confirmation (seeds 3 to 8):" in text
    assert "1 / 1 / unset / unset (Dynamo's default)" in text
    assert sum(line.startswith("recommended: ") for line in lines) == 1
    assert "not simulated in any graph" in text


def test_json_has_a_schema_version_and_the_recommendation() -> None:
    output = json.loads(report.as_json(tuned(faster(TUNED)), "model: …"))
    assert output["schema_version"] == 1
    assert output["recommended"]["prefill_load_scale"] == 4
    assert output["recommended"]["queue_threshold"] is None
    assert output["recommended"]["is_changed"] is True
    assert output["margins"]["needed_ratio"] == 1.03
    own, best = output["confirmation"]["settings"]
    assert own["router"] == DYNAMO_DEFAULT.keys
    assert best["ratio"]["low"] == pytest.approx(1 / 0.7)
    assert best["figures"]["ttft_p90_ms"]["median"] < own["figures"]["ttft_p90_ms"]["median"]
    assert output["graph"] == "model: …"


def test_the_help_names_the_number_of_seeds_that_is_used() -> None:
    names = ("MIN_SEEDS", "SEEDS", "MAX_SEEDS")
    assert [getattr(command, n) for n in names] == [getattr(tuning, n) for n in names]
