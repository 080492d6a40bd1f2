"""The SLO after the loss of one worker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.graph.slo import Slo
from penstock.plan.space import Candidate
from penstock.plan.trials import Trials, TrialSpec
from tests.plan.simulated_study import (
    Behavior,
    SimulatedStudy,
    aggregated,
    disaggregated,
    request,
    trials,
)
from tests.plan.test_estimate import estimator
from tests.plan.test_report import document_of, header_of, planned, printed_lines
from tests.simulate.test_metrics import answer

FULL = aggregated(3)


def surviving(behaviors: dict[Candidate, Behavior], left: int = 200) -> Trials:
    search = trials(behaviors, left=left)
    search.deployments.request = request(survives_loss=True)
    return search


def asked(search: Trials) -> list[str]:
    assert isinstance(search.study, SimulatedStudy)
    return [name for name, *_ in search.study.asked]


@pytest.mark.parametrize(
    ("candidate", "left"),
    [
        (aggregated(1), {}),
        (FULL, {"aggregated": aggregated(2)}),
        (disaggregated(1, 1), {}),
        (disaggregated(2, 1), {"prefill": disaggregated(1, 1)}),
        (disaggregated(2, 3), {"decode": disaggregated(2, 2), "prefill": disaggregated(1, 3)}),
    ],
)
def test_each_pool_with_several_workers_can_lose_one(
    candidate: Candidate, left: dict[str, Candidate]
) -> None:
    assert dict(candidate.losses) == left


@pytest.mark.parametrize(("remaining", "meets_slo"), [(1.0, True), (0.9, False)])
def test_the_slo_must_be_met_with_one_worker_fewer(remaining: float, meets_slo: bool) -> None:
    behaviors = {FULL: Behavior(max_scale=2.0), aggregated(2): Behavior(max_scale=remaining)}
    (without,) = trials(behaviors).of([TrialSpec(FULL)])
    assert without.meets_slo
    assert without.losses == {}
    search = surviving(behaviors)
    (trial,) = search.of([TrialSpec(FULL)])
    assert trial.meets_slo is meets_slo
    assert (trial.goodput == 1.0) is meets_slo
    assert asked(search) == [str(FULL), str(aggregated(2))]
    assert (search.replays, search.left) == (2, 198)


def test_every_pool_may_lose_the_worker() -> None:
    candidate = disaggregated(2, 2)
    behaviors = dict.fromkeys((candidate, disaggregated(2, 1)), Behavior(max_scale=2.0))
    behaviors[disaggregated(1, 2)] = Behavior(max_scale=0.5)
    (trial,) = surviving(behaviors).of([TrialSpec(candidate)])
    assert not trial.meets_slo
    assert list(trial.losses) == ["decode", "prefill"]


def test_a_graph_that_misses_the_slo_anyway_costs_one_replay() -> None:
    search = surviving({FULL: Behavior(max_scale=0.5), aggregated(2): Behavior(max_scale=0.3)})
    (trial,) = search.of([TrialSpec(FULL)])
    assert not trial.meets_slo
    assert asked(search) == [str(FULL)]
    assert (search.replays, search.left) == (1, 199)


def test_a_trial_is_left_out_if_its_losses_may_not_be_replayed() -> None:
    search = surviving(dict.fromkeys((FULL, aggregated(2)), Behavior(max_scale=2.0)), left=1)
    assert search.of([TrialSpec(FULL)]) == []


def test_the_estimate_is_of_what_is_left() -> None:
    slo = Slo(itl_ms=1000)
    question = replace(request(survives_loss=True), slo=slo)
    estimates = estimator()
    assert estimates.required_capacity(FULL, question) == estimates.capacity(aggregated(2), slo)


def test_the_report_states_what_one_worker_fewer_does() -> None:
    (lost,) = trials({aggregated(2): Behavior(max_scale=0.5)}).of([TrialSpec(aggregated(2))])
    asked_for = request(survives_loss=True)
    plan = planned(FULL, request=asked_for, losses={"aggregated": lost.row})
    expected = "with one worker fewer: only 0.0% of requests meet the SLO (95% needed)"
    printed = printed_lines(plan)
    assert any(line.startswith(f"availability: {expected}") for line in printed)
    slo = next(line for line in printed if line.startswith("SLO: "))
    assert "for 95% of requests, also with one worker fewer; objective" in slo
    assert f"Availability: {expected}" in header_of(plan)
    content = document_of(plan)
    assert content["schema_version"] == 1
    assert content["n_minus_one"] is True
    assert content["after_loss"]["aggregated"]["meets_slo"] is False


def test_headroom_and_margin_are_those_after_the_worst_loss() -> None:
    """The complete graph takes 50 ms. Sensitivity is of the complete graph, and says so."""
    slow = answer(*((100.0 * i, 100.0 * i + 60, 100.0 * i + 600, 11) for i in range(100)))
    plan = planned(FULL)
    lost = replace(plan.winner.row, results=(slow,))
    winner = replace(plan.winner, losses={"aggregated": lost})
    plan = replace(
        plan,
        request=request(survives_loss=True, slo=Slo(ttft_ms=100)),
        winner=winner,
        losses=winner.losses,
        sensitivity_rows={"scale × 1.5": winner.row},
    )
    printed = printed_lines(plan)
    assert "headroom: with one worker fewer: TTFT p95 60 ms of 100 ms (40% left)" in printed
    assert any(line.startswith("margin: with one worker fewer: ") for line in printed)
    text = "sensitivity, scale × 1.5, with all workers: 100.0% of requests meet the SLO"
    assert any(line.startswith(text) for line in printed)
    assert "Headroom: with one worker fewer: TTFT p95 60 ms" in header_of(plan)


def test_the_pool_of_the_lost_worker_is_named() -> None:
    plan = planned(disaggregated(2, 1), losses={"prefill": "the time limit was reached"})
    availability = [line for line in printed_lines(plan) if line.startswith("availability")]
    assert "no redundancy" in availability[0]
    assert availability[1] == (
        "availability: with one prefill worker fewer: not replayed: the time limit was reached"
    )
