"""Who is replayed and who wins, among candidates whose behaviour is known."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from penstock.plan.choose import RUNG, Ranked, best_of, rank, winner_of
from penstock.plan.request import Objective
from penstock.plan.space import Candidate, Layout
from penstock.plan.trials import Trial, TrialSpec
from penstock.workload.duration import exceeds_plan_limit
from penstock.workload.model import Arrival, Ramp
from tests.plan.simulated_study import (
    LOADED,
    ONE,
    Acted,
    Behaviour,
    request,
    split,
    together,
    trials,
)


def ranked(*candidates: Candidate, capacity: float = 1.0) -> Ranked:
    return Ranked(candidates=candidates, estimates={}, capacity=dict.fromkeys(candidates, capacity))


def chosen(objective: str, behaviours: dict[Candidate, Behaviour], **more: float) -> list[Trial]:
    asked = ranked(*behaviours, **more)
    return best_of(trials(behaviours, left=60), request(objective), asked)


def test_the_fewest_gpus_that_hold_the_load_win() -> None:
    found = chosen(
        "cost",
        {
            together(8): Behaviour(holds=3, user_rate=300),
            together(4): Behaviour(holds=1.5, user_rate=200),
            together(3): Behaviour(holds=1.1, user_rate=150),
            together(2): Behaviour(holds=0.9, user_rate=120),
        },
    )
    assert [str(trial.candidate) for trial in found] == [str(together(3))]


def test_a_load_that_only_one_seed_holds_is_not_held() -> None:
    found = chosen(
        "cost",
        {together(2): Behaviour(holds=1.05, loses=0.9), together(3): Behaviour(holds=1.5)},
    )
    assert [trial.candidate for trial in found] == [together(3)]


def test_the_fastest_for_a_user_wins_among_those_that_hold() -> None:
    found = chosen(
        "interactivity",
        {
            together(8): Behaviour(holds=2, user_rate=90),
            together(4): Behaviour(holds=0.5, user_rate=400),
            together(2): Behaviour(holds=1.2, user_rate=110),
        },
    )
    assert winner_of(found, Objective.INTERACTIVITY).candidate == together(2)


@pytest.mark.parametrize("estimated", [0.5, 1.0, 4.0, 8.0])
def test_the_most_load_is_found_whatever_was_estimated(estimated: float) -> None:
    found = chosen(
        "throughput",
        {
            together(8): Behaviour(holds=2),
            together(4): Behaviour(holds=3.7),
            together(2): Behaviour(holds=3),
        },
        capacity=estimated,
    )
    best = winner_of(found, Objective.THROUGHPUT)
    assert best.candidate == together(4)
    assert best.row.factor <= 3.7 < best.row.factor * RUNG


def test_nothing_that_holds_is_nothing_found() -> None:
    for objective in Objective:
        behaviours = {together(2): Behaviour(holds=0.001), together(4): Behaviour(holds=0.002)}
        assert chosen(objective, behaviours) == []


def test_luck_with_one_seed_leaves_replays_for_those_that_hold() -> None:
    lucky = {together(n): Behaviour(holds=1.05, loses=0.9, user_rate=101) for n in range(2, 8)}
    behaviours = {**lucky, together(8): Behaviour(holds=2, user_rate=100)}
    found = chosen("interactivity", behaviours)
    assert [trial.candidate for trial in found] == [together(8)]


def test_a_tie_goes_to_the_simpler_graph() -> None:
    behaviours = {
        split(4, 4): Behaviour(holds=2, user_rate=102),
        together(8): Behaviour(holds=2, user_rate=100),
    }
    found = chosen("interactivity", behaviours)
    assert [trial.candidate for trial in found] == [split(4, 4), together(8)]
    assert winner_of(found, Objective.INTERACTIVITY).candidate == together(8)
    behaviours[split(4, 4)] = Behaviour(holds=2, user_rate=110)
    found = chosen("interactivity", behaviours)
    assert winner_of(found, Objective.INTERACTIVITY).candidate == split(4, 4)


@pytest.mark.parametrize("objective", ["cost", "interactivity"])
def test_chance_chooses_nothing(objective: str) -> None:
    """Rates that are within what the KV router's chance makes of them."""
    steps = (2048, 8192, 16384)
    ranks = [replace(together(8).worker, step=step) for step in steps]
    rates = dict(zip(ranks, (90.0, 100.0, 100.0), strict=True))
    winners, orders = set(), set()
    for seed in range(40):
        chance = random.Random(seed)
        behaviours = {
            replace(together(8), worker=pool): Behaviour(
                holds=2, user_rate=rate * (1 + chance.uniform(-0.004, 0.004))
            )
            for pool, rate in rates.items()
        }
        found = chosen(objective, behaviours)
        winners.add(winner_of(found, Objective(objective)).candidate.worker.step)
        orders.add(tuple(trial.candidate.worker.step for trial in found))
    assert winners == {8192}
    assert orders == {(8192, 16384)}


def test_no_more_is_replayed_than_the_budget() -> None:
    behaviours = {together(n): Behaviour(holds=2, user_rate=n) for n in range(1, 60)}
    asked = trials(behaviours, left=25)
    best_of(asked, request("interactivity"), ranked(*behaviours))
    assert isinstance(asked.study, Acted)
    seeds: dict[tuple[str, float], int] = {}
    for name, factor, some in asked.study.asked:  # those of fewer seeds are known by then
        seeds[name, factor] = max(seeds.get((name, factor), 0), some or 1)
    assert sum(seeds.values()) == asked.replays <= 25
    assert asked.left == 25 - asked.replays


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("budget", [5, 8, 13])
def test_a_small_budget_still_finds_what_holds(objective: str, budget: int) -> None:
    behaviours = {together(4): Behaviour(holds=1.02), together(8): Behaviour(holds=1.02)}
    asked = trials(behaviours, left=budget)
    found = best_of(asked, request(objective), ranked(*behaviours))
    assert found or asked.undecided


def test_a_load_that_would_not_last_is_not_replayed() -> None:
    asked = trials({together(1): Behaviour(holds=1000)})
    assert asked.one(TrialSpec(together(1), factor=200)) is None
    assert asked.replays == 0
    assert asked.one(TrialSpec(together(1), factor=100))


def test_users_who_need_too_many_requests_are_too_much() -> None:
    few = LOADED.workload.model_copy(update={"arrival": Arrival(concurrency=2000)})
    users = replace(LOADED, workload=few)
    assert not exceeds_plan_limit(users.workload, 1.0)
    assert exceeds_plan_limit(users.workload, 2.0)


def test_a_ramp_counts_its_requests() -> None:
    ramp = Arrival(ramp=Ramp(start=100, end=400, seconds=100))
    long = LOADED.workload.model_copy(update={"arrival": ramp, "requests": None})
    assert exceeds_plan_limit(long, 1.0)
    assert not exceeds_plan_limit(long, 0.5)


@pytest.mark.parametrize("budget", [16, 24, 32])
def test_a_second_look_keeps_what_the_first_found(budget: int) -> None:
    """Where looks at fewer GPUs, which the estimate was not sure of, took most of the replays."""
    layouts = [ONE, Layout(gpus=2), Layout(gpus=2, ep=2), Layout(gpus=4), Layout(gpus=4, ep=4)]
    behaviours: dict[Candidate, Behaviour] = {}
    capacity: dict[Candidate, float] = {}
    for gpus, (place, layout), step in product(range(8, 13), enumerate(layouts), (2048, 8192)):
        if gpus % layout.gpus == 0:
            pool = together(gpus // layout.gpus, layout=layout).worker
            candidate = replace(together(1), worker=replace(pool, step=step))
            rate = 200.0 + 30 * place
            behaviours[candidate] = Behaviour(holds=2 if gpus == 12 else 0.5, user_rate=rate)
            capacity[candidate] = gpus / 11.9 * (1 - 0.001 * place)
    order = Ranked(candidates=tuple(behaviours), estimates={}, capacity=capacity)
    found = best_of(trials(behaviours, left=budget), request("cost"), order)
    assert max(trial.user_rate for trial in found) >= 260


def test_what_was_asked_is_not_asked_again() -> None:
    asked = trials({together(1): Behaviour(holds=1)})
    first, second = asked.one(TrialSpec(together(1))), asked.one(TrialSpec(together(1)))
    assert first is second
    assert asked.replays == 1


class Estimates:
    """Every candidate holds what its GPUs say; at the load few requests run at once."""

    def capacity(self, candidate: Candidate, _: object) -> float:
        return candidate.gpus / 4

    def at(self, candidate: Candidate, _: float) -> object:
        from penstock.plan.estimate import Estimate

        return Estimate(ttft_ms=1, itl_ms=1, user_rate=100 / candidate.gpus, running=40)


def test_the_hopeless_and_limits_that_nothing_reaches_are_not_replayed() -> None:
    some = [together(1), together(4), together(4, batch=128), together(8)]
    found = rank(some, Estimates(), request("interactivity"))  # type: ignore[arg-type]
    assert found.candidates == (together(4), together(8))
