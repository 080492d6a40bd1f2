"""Which candidates are replayed and which one wins, for candidates of known behavior."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from penstock.plan.choose import COSTLY_GROUP, best_of
from penstock.plan.estimate import Ranked, rank
from penstock.plan.planning import Limit, limit_of
from penstock.plan.request import Objective
from penstock.plan.space import Candidate
from penstock.plan.trials import SCALE_STEP, Trial, TrialSpec, winner_of
from penstock.workload.duration import exceeds_plan_limit
from penstock.workload.model import Arrival, Ramp
from tests.plan.simulated_study import (
    LOADED,
    Behavior,
    SimulatedStudy,
    aggregated,
    disaggregated,
    request,
    trials,
)


def ranked(*candidates: Candidate, capacity: float = 1.0) -> Ranked:
    return Ranked(candidates=candidates, capacity=dict.fromkeys(candidates, capacity))


def chosen(objective: str, behaviors: dict[Candidate, Behavior], **more: float) -> list[Trial]:
    asked = ranked(*behaviors, **more)
    return best_of(trials(behaviors, left=60), request(objective), asked)


def test_the_fewest_gpus_that_meet_the_slo_win() -> None:
    finalists = chosen(
        "cost",
        {
            aggregated(8): Behavior(max_scale=3, user_rate=300),
            aggregated(4): Behavior(max_scale=1.5, user_rate=200),
            aggregated(3): Behavior(max_scale=1.1, user_rate=150),
            aggregated(2): Behavior(max_scale=0.9, user_rate=120),
        },
    )
    assert [str(trial.candidate) for trial in finalists] == [str(aggregated(3))]


def test_an_slo_that_only_one_seed_meets_is_not_met() -> None:
    finalists = chosen(
        "cost",
        {
            aggregated(2): Behavior(max_scale=1.05, seeds_lose=0.9),
            aggregated(3): Behavior(max_scale=1.5),
        },
    )
    assert [trial.candidate for trial in finalists] == [aggregated(3)]


def test_the_fastest_for_a_user_wins_among_those_that_meet_the_slo() -> None:
    finalists = chosen(
        "interactivity",
        {
            aggregated(8): Behavior(max_scale=2, user_rate=90),
            aggregated(4): Behavior(max_scale=0.5, user_rate=400),
            aggregated(2): Behavior(max_scale=1.2, user_rate=110),
        },
    )
    assert winner_of(finalists, Objective.INTERACTIVITY).candidate == aggregated(2)


@pytest.mark.parametrize("estimated", [0.5, 1.0, 4.0, 8.0])
def test_the_highest_scale_is_found_whatever_was_estimated(estimated: float) -> None:
    finalists = chosen(
        "throughput",
        {
            aggregated(8): Behavior(max_scale=2),
            aggregated(4): Behavior(max_scale=3.7),
            aggregated(2): Behavior(max_scale=3),
        },
        capacity=estimated,
    )
    best = winner_of(finalists, Objective.THROUGHPUT)
    assert best.candidate == aggregated(4)
    assert best.row.scale <= 3.7 < best.row.scale * SCALE_STEP


def test_without_a_candidate_that_meets_the_slo_nothing_is_found() -> None:
    for objective in Objective:
        behaviors = {
            aggregated(2): Behavior(max_scale=0.001),
            aggregated(4): Behavior(max_scale=0.002),
        }
        assert chosen(objective, behaviors) == []


def test_a_tie_goes_to_the_simpler_graph() -> None:
    behaviors = {
        disaggregated(4, 4): Behavior(max_scale=2, user_rate=102),
        aggregated(8): Behavior(max_scale=2, user_rate=100),
    }
    finalists = chosen("interactivity", behaviors)
    assert [trial.candidate for trial in finalists] == [disaggregated(4, 4), aggregated(8)]
    assert winner_of(finalists, Objective.INTERACTIVITY).candidate == aggregated(8)
    behaviors[disaggregated(4, 4)] = Behavior(max_scale=2, user_rate=110)
    finalists = chosen("interactivity", behaviors)
    assert winner_of(finalists, Objective.INTERACTIVITY).candidate == disaggregated(4, 4)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cost", "interactivity"])
def test_random_differences_choose_nothing(objective: str) -> None:
    """Rates that differ as little as the KV router's random ties make them differ."""
    steps = (2048, 8192, 16384)
    ranks = [replace(aggregated(8).worker, step=step) for step in steps]
    rates = dict(zip(ranks, (90.0, 100.0, 100.0), strict=True))
    winners, orders = set(), set()
    for seed in range(40):
        chance = random.Random(seed)
        behaviors = {
            replace(aggregated(8), worker=pool): Behavior(
                max_scale=2, user_rate=rate * (1 + chance.uniform(-0.004, 0.004))
            )
            for pool, rate in rates.items()
        }
        finalists = chosen(objective, behaviors)
        winners.add(winner_of(finalists, Objective(objective)).candidate.worker.step)
        orders.add(tuple(trial.candidate.worker.step for trial in finalists))
    assert winners == {8192}
    assert orders == {(8192, 16384)}


def test_no_more_is_replayed_than_the_budget() -> None:
    behaviors = {aggregated(n): Behavior(max_scale=2, user_rate=n) for n in range(1, 60)}
    asked = trials(behaviors, left=25)
    best_of(asked, request("interactivity"), ranked(*behaviors))
    assert isinstance(asked.study, SimulatedStudy)
    seeds: dict[tuple[str, float], int] = {}
    for name, scale, replayed_seeds in asked.study.asked:  # trials with fewer seeds are known then
        seeds[name, scale] = max(seeds.get((name, scale), 0), replayed_seeds or 1)
    assert sum(seeds.values()) == asked.replays <= 25
    assert asked.left == 25 - asked.replays


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("budget", [5, 8, 13])
def test_a_small_budget_still_finds_a_candidate(objective: str, budget: int) -> None:
    behaviors = {aggregated(4): Behavior(max_scale=1.02), aggregated(8): Behavior(max_scale=1.02)}
    asked = trials(behaviors, left=budget)
    finalists = best_of(asked, request(objective), ranked(*behaviors))
    assert finalists or asked.undecided


def test_a_scale_beyond_the_plan_limit_is_not_replayed() -> None:
    asked = trials({aggregated(1): Behavior(max_scale=1000)})
    assert asked.trial_of(TrialSpec(aggregated(1), scale=200)) is None
    assert asked.replays == 0
    assert asked.trial_of(TrialSpec(aggregated(1), scale=100))


@pytest.mark.parametrize(
    ("arrival", "within", "beyond"),
    [
        (Arrival(concurrency=2000), 1.0, 2.0),
        (Arrival(ramp=Ramp(start=100, end=400, seconds=100)), 0.5, 1.0),
    ],
)
def test_the_plan_limit_counts_the_requests_of_clients_and_of_a_ramp(
    arrival: Arrival, within: float, beyond: float
) -> None:
    update = {"arrival": arrival, "requests": None if arrival.ramp else 160}
    workload = LOADED.workload.model_copy(update=update)
    assert not exceeds_plan_limit(workload, within)
    assert exceeds_plan_limit(workload, beyond)


class Estimates:
    """Capacity grows with the GPUs; few requests run concurrently."""

    def __init__(self, gpus: float = 4.0) -> None:
        self.gpus = gpus  # that are enough

    def required_capacity(self, candidate: Candidate, _: object) -> float:
        return candidate.gpus / self.gpus

    def bound(self) -> Estimates:
        """The optimistic estimate; three of four GPUs would be enough."""
        return Estimates(3.0)

    def at(self, candidate: Candidate, _: float) -> object:
        from penstock.plan.estimate import Estimate

        return Estimate(ttft_ms=1, itl_ms=1, user_rate=100 / candidate.gpus, running=40)


def test_hopeless_candidates_and_unreached_limits_are_not_replayed() -> None:
    considered = [aggregated(1), aggregated(4), aggregated(4, batch=128), aggregated(8)]
    order = rank(considered, Estimates(), request("interactivity"))  # type: ignore[arg-type]
    assert order.candidates == (aggregated(4), aggregated(8))


def test_candidates_that_even_the_optimistic_estimate_excludes_are_not_replayed() -> None:
    """Unless the SLO must only be met for a smaller share of requests than the mean stands for."""
    considered = [aggregated(1), aggregated(2), aggregated(3), aggregated(4)]
    estimates = Estimates(3.2)  # of one GPU, the capacity is too low anyway
    for attain, expected in ((0.95, considered[2:]), (0.5, considered[1:])):
        order = rank(considered, estimates, request("cost"), attain)  # type: ignore[arg-type]
        assert sorted(order.candidates) == expected


def test_costly_replays_have_one_seed_and_few_candidates_of_each_number_of_gpus() -> None:
    behaviors = {
        replace(aggregated(gpus), worker=replace(aggregated(gpus).worker, step=step)): Behavior(
            max_scale=2 if gpus >= 4 else 0.5
        )
        for gpus in (3, 4, 5)
        for step in (1024, 2048, 8192, 16384)
    }
    search = trials(behaviors, left=200)
    search.is_costly = True
    ranked = Ranked(candidates=tuple(behaviors), capacity=dict.fromkeys(behaviors, 1.0))
    finalists = best_of(search, request("cost"), ranked)
    assert {trial.candidate.gpus for trial in finalists} == {4}
    assert len(finalists) == COSTLY_GROUP
    assert search.replays == 2 * COSTLY_GROUP  # of three and of four GPUs
    assert not search.undecided


def test_costly_searches_reach_many_gpus_with_few_replays() -> None:
    """The steps grow, and the numbers that they leave out are bisected."""
    behaviors = {aggregated(n): Behavior(max_scale=2 if n >= 23 else 0.5) for n in range(1, 34)}
    search = trials(behaviors, left=20)
    search.is_costly = True
    finalists = best_of(search, request("cost"), ranked(*behaviors))
    assert [trial.candidate for trial in finalists] == [aggregated(23)]
    assert not search.lacks_replays


@pytest.mark.parametrize(("left", "limit"), [(4, Limit.REPLAYS), (40, None)])
def test_a_search_without_enough_replays_does_not_claim_that_no_graph_meets_the_slo(
    left: int, limit: Limit | None
) -> None:
    behaviors = {aggregated(n): Behavior(max_scale=0.5) for n in range(1, 9)}
    search = trials(behaviors, left=left)
    assert best_of(search, request("cost"), ranked(*behaviors)) == []
    assert limit_of(search, Objective.COST) is limit
