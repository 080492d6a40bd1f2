"""Which candidates are replayed and which one wins, for candidates of known behavior."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from penstock.plan.estimate import Estimate, Ranked, rank
from penstock.plan.request import Objective
from penstock.plan.search import CLOSEST, GROUP, SCALE_STEP, Family, add_closest, search
from penstock.plan.sensitivity import closest
from penstock.plan.space import Candidate, Layout
from penstock.plan.trials import Deadline, Limit, Trial, Trials, TrialSpec, in_order
from penstock.simulate.study import SEEDS
from penstock.simulate.window import Steadiness
from penstock.workload.duration import exceeds_plan_limit
from penstock.workload.load import LoadedWorkload, parse_workload
from penstock.workload.model import Arrival, Ramp
from tests.plan.simulated_study import (
    LOADED,
    ONE,
    Behavior,
    Named,
    SimulatedStudy,
    aggregated,
    disaggregated,
    request,
    trials,
)

pytestmark = pytest.mark.slow  # renders a graph
TOO_SHORT = Steadiness(window_s=10, request_s=5, offered_rate=4, served_rate=4)
STEADY = Steadiness(window_s=100, request_s=5, offered_rate=4, served_rate=4)
OVERLOADED = Steadiness(window_s=100, request_s=5, offered_rate=4, served_rate=2)
CONVERSATIONS = parse_workload(
    "requests: 400\ninput: 100\noutput: 10\narrival: {poisson: 4}\n"
    "conversation: {turns: 8, think: 3}\n",
    "agents.yaml",
)
MISSES, MEETS = Behavior(0.5), Behavior(2.0)


def stepped(gpus: int, step: int) -> Candidate:
    return replace(aggregated(gpus), worker=replace(aggregated(gpus).worker, step=step))


def searched(
    behaviors: Mapping[Candidate, Behavior],
    objective: str = "cost",
    *,
    capacity: float | Mapping[Candidate, float] = 1.0,
    left: int = 100,
    estimated: Sequence[Candidate] | None = None,
    min_replicas: int = 1,
) -> tuple[Trials, list[Family]]:
    """``estimated``: the candidates whose estimate does not exclude them; None: all."""
    trials_of_search = trials(dict(behaviors), left=left)
    trials_of_search.deployments = Named(request(objective, min_replicas=min_replicas))
    candidates = list(behaviors) if estimated is None else estimated
    return trials_of_search, found(trials_of_search, candidates, capacity)


def found(
    search_trials: Trials,
    candidates: Sequence[Candidate],
    capacity: float | Mapping[Candidate, float] = 1.0,
) -> list[Family]:
    by_kind = [[c for c in candidates if c.is_disaggregated is kind] for kind in (False, True)]
    return search(
        search_trials,
        [
            Ranked(
                candidates=tuple(family),
                capacity={
                    c: capacity if isinstance(capacity, float) else capacity[c] for c in family
                },
            )
            for family in by_kind
        ],
    )


def winner(families: Sequence[Family], objective: str = "cost") -> Trial | None:
    best = in_order([f.best for f in families if f.best], Objective(objective))
    return best[0] if best else None


def best_candidate(behaviors: dict[Candidate, Behavior], objective: str = "cost") -> object:
    best = winner(searched(behaviors, objective)[1], objective)
    return best and best.candidate


def longer(scale: float, steadiness: Steadiness = STEADY, user_rate: float = 90) -> Behavior:
    """Meets the SLO in a short replay, and up to the scale in a long one."""
    long = Behavior(scale, user_rate=user_rate, steadiness=steadiness)
    return Behavior(2.0, steadiness=TOO_SHORT, longer=long)


def nearly(goodput: float, scale: float, requests: int = 500) -> Behavior:
    """Misses the SLO in a short replay, and meets it up to the scale in a long one."""
    long = Behavior(scale, steadiness=STEADY)
    return Behavior(0.5, goodput=goodput, requests=requests, steadiness=TOO_SHORT, longer=long)


@pytest.mark.parametrize(
    ("behaviors", "expected"),
    [
        ({8: Behavior(3), 4: Behavior(1.5), 3: Behavior(1.1), 2: Behavior(0.9)}, 3),
        # A queue grows: it is missed, or not as many requests complete as arrive.
        ({2: longer(0.5), 4: longer(2.0)}, 4),
        ({2: longer(2.0, OVERLOADED), 4: longer(2.0, OVERLOADED)}, None),
        # A short replay that nearly meets the SLO may be wrong, but not by more.
        ({2: nearly(0.92, 2.0), 4: longer(2.0)}, 2),
        ({2: nearly(0.92, 0.5), 4: longer(2.0)}, 4),
        ({2: nearly(0.85, 2.0), 4: longer(2.0)}, 4),
        ({2: nearly(0.92, 2.0, requests=5000), 4: longer(2.0)}, 4),
        ({2: Behavior(0.001), 4: Behavior(0.002)}, None),
        # Numbers below one that misses the SLO are tried too.
        ({2: MEETS, 3: MISSES, 4: MEETS}, 2),
    ],
)
def test_the_fewest_gpus_that_meet_the_slo_in_longer_replays_win(
    behaviors: dict[int, Behavior], expected: int | None
) -> None:
    by_candidate = {aggregated(gpus): behavior for gpus, behavior in behaviors.items()}
    assert best_candidate(by_candidate) == (expected and aggregated(expected))


def test_the_winner_has_the_figures_of_the_longer_replays() -> None:
    _, (family, _) = searched({aggregated(2): longer(2.0)})
    assert family.best
    assert family.best.is_confirmed
    assert (family.best.user_rate, family.best.row.is_steady) == (90, True)


def test_each_width_comes_before_attention_dp_and_router_modes() -> None:
    narrow, dp, wide = (
        aggregated(4 // layout.gpus, layout=layout)
        for layout in (ONE, Layout(gpus=4, ep=4, attention_dp=True), Layout(gpus=4, ep=4))
    )
    mode = replace(narrow, router="round-robin")
    candidates = (narrow, mode, dp, wide)
    ranked = Ranked(
        candidates=candidates, capacity={c: 2.0 - at for at, c in enumerate(candidates)}
    )
    assert ranked.shapes == [narrow, dp, wide, mode]
    assert ranked.by_gpus == [[narrow, wide, dp, mode]]


def test_conversations_that_nearly_met_the_slo_are_not_replayed_longer() -> None:
    """In a short replay their number still grows, so a longer one is not better."""
    search_trials = trials({aggregated(2): nearly(0.92, 2.0)})
    search_trials.study = replace(search_trials.study, workload=CONVERSATIONS)
    assert winner(found(search_trials, [aggregated(2)])) is None


@pytest.mark.parametrize(
    ("complete", "scale", "samples"),
    [(CONVERSATIONS, 2.0, SEEDS), (CONVERSATIONS, 0.5, 1), (LOADED, 2.0, 1)],
)
def test_conversations_are_confirmed_with_several_samples(
    complete: LoadedWorkload, scale: float, samples: int
) -> None:
    """If the first one meets the SLO."""
    search_trials = trials({aggregated(2): longer(scale)})
    search_trials.complete = complete
    (short,) = search_trials.of([TrialSpec(aggregated(2))])
    assert isinstance(search_trials.study, SimulatedStudy)
    search_trials.study.asked.clear()
    assert search_trials.confirmed(short).meets_slo is (scale > 1)
    assert [seeds for *_, seeds in search_trials.study.asked] == [1] * samples
    assert search_trials.replays == 1 + samples


def test_without_time_for_a_longer_replay_the_short_one_counts() -> None:
    search_trials = trials({aggregated(2): longer(0.5)})
    search_trials.of([TrialSpec(aggregated(2))])
    search_trials.deadline = Deadline(10, clock=lambda: 9.0)
    best = winner(found(search_trials, [aggregated(2)]))
    assert best
    assert (best.candidate, best.is_confirmed) == (aggregated(2), False)


@pytest.mark.parametrize("minimum", [1, 2])
def test_a_worker_fewer_is_tried_even_if_the_estimate_excludes_it(minimum: int) -> None:
    """A report that recommends seven GPUs cannot say that six meet the SLO too."""
    behaviors = {aggregated(gpus): MEETS for gpus in (1, 2, 3)} | {aggregated(4): MEETS}
    _, families = searched(behaviors, estimated=[aggregated(4)], min_replicas=minimum)
    assert families[0].best
    assert families[0].best.candidate == aggregated(minimum)


def test_both_families_are_searched_to_the_end_at_the_number_of_gpus_of_the_best() -> None:
    """Of as many GPUs, the last shape of the estimate's order is the only one that is enough."""
    layouts = [Layout(gpus=1, ep=ep) for ep in range(1, GROUP + 3)]
    shapes = [aggregated(4, layout=layout) for layout in layouts]
    behaviors = dict.fromkeys(shapes[:-1], MISSES) | {shapes[-1]: MEETS}
    behaviors |= {aggregated(6): MEETS, disaggregated(2, 2): MEETS}
    order = {c: 2.0 - at / 10 for at, c in enumerate(behaviors)}
    _, (family, other) = searched(behaviors, capacity=order)
    assert family.best
    assert family.best.candidate == shapes[-1]
    assert other.best


def test_limits_are_varied_for_the_best_shape_only() -> None:
    behaviors = {stepped(gpus, step): MISSES for gpus in (3, 4) for step in (1024, 2048, 8192)}
    behaviors |= {stepped(4, step): MEETS for step in (1024, 2048)}
    behaviors[stepped(4, 1024)] = Behavior(2.0, user_rate=200)
    search_trials, (family, _) = searched(behaviors, capacity=dict.fromkeys(behaviors, 1.0))
    assert family.best
    assert family.best.candidate == stepped(4, 1024)
    replayed = {trial.candidate for trial in search_trials.known}
    assert len([c for c in replayed if c.gpus == 3]) == 1


def test_many_numbers_of_gpus_are_bisected() -> None:
    behaviors = {aggregated(n): MEETS if n >= 23 else MISSES for n in range(1, 34)}
    search_trials, (family, _) = searched(behaviors, left=20, capacity=0.5)
    assert family.best
    assert (family.best.candidate, search_trials.ended_by) == (aggregated(23), None)


def test_the_fastest_for_a_user_wins_among_those_that_meet_the_slo() -> None:
    behaviors = {
        aggregated(8): Behavior(2, user_rate=90),
        aggregated(4): Behavior(0.5, user_rate=400),
        aggregated(2): Behavior(1.2, user_rate=110),
    }
    assert best_candidate(behaviors, "interactivity") == aggregated(2)
    # It seems faster in a short replay than it is in a long one.
    behaviors = {aggregated(2): longer(2.0, user_rate=50), aggregated(4): longer(2.0)}
    assert best_candidate(behaviors, "interactivity") == aggregated(4)


@pytest.mark.parametrize("estimated", [0.5, 1.0, 4.0, 8.0])
def test_the_highest_scale_is_found_whatever_was_estimated(estimated: float) -> None:
    behaviors = {gpus: Behavior(scale) for gpus, scale in ((8, 2), (4, 3.7), (2, 3))}
    by_candidate = {aggregated(gpus): behavior for gpus, behavior in behaviors.items()}
    _, families = searched(by_candidate, "throughput", capacity=estimated)
    best = winner(families, "throughput")
    assert best
    assert best.candidate == aggregated(4)
    assert best.row.scale <= 3.7 < best.row.scale * SCALE_STEP


def test_the_highest_scale_is_lowered_until_the_longer_replay_meets_the_slo() -> None:
    best = winner(searched({aggregated(2): longer(1.4)}, "throughput")[1], "throughput")
    assert best
    assert 1.3 < best.row.scale <= 1.4


@pytest.mark.parametrize("objective", list(Objective))
def test_without_a_candidate_that_meets_the_slo_nothing_is_found(objective: str) -> None:
    assert best_candidate({aggregated(2): Behavior(0.001)}, objective) is None


@pytest.mark.parametrize("meets", [False, True])
def test_the_closest_graph_may_be_one_that_the_estimate_does_not_favor(meets: bool) -> None:
    """Each worker fewer is closer, and the last one may meet the SLO."""
    goodput = {aggregated(n): 0.9 - n / 100 for n in range(11, CLOSEST + 13)}
    fewest = aggregated(10)
    behaviors = {c: Behavior(0.1, goodput=share) for c, share in goodput.items()}
    behaviors[fewest] = Behavior(2.0 if meets else 0.1, goodput=0.85)
    by_estimate = sorted(behaviors, key=lambda candidate: -candidate.gpus)
    tried, families = searched({}, estimated=[], left=0)
    assert isinstance(tried.study, SimulatedStudy)
    tried.study.behaviors.update({str(c): acts for c, acts in behaviors.items()})
    add_closest(tried, by_estimate, families)
    nearest = closest(tried)
    assert nearest
    assert nearest.candidate == fewest
    assert (families[0].best == nearest) is meets


def test_a_tie_goes_to_the_simpler_graph() -> None:
    behaviors = {disaggregated(4, 4): Behavior(2, 102), aggregated(8): Behavior(2, 100)}
    assert best_candidate(behaviors, "interactivity") == aggregated(8)
    behaviors[disaggregated(4, 4)] = Behavior(2, 110)
    assert best_candidate(behaviors, "interactivity") == disaggregated(4, 4)


@pytest.mark.parametrize("objective", ["cost", "interactivity"])
def test_random_differences_choose_nothing(objective: str) -> None:
    """Rates that differ as little as the KV router's random ties make them differ: the first of
    the estimate's order stays."""
    steps = (8192, 16384, 2048)
    rates = dict(zip(steps, (100.0, 100.0, 90.0), strict=True))
    winners = set()
    for seed in range(20):
        chance = random.Random(seed)
        behaviors = {
            stepped(8, step): Behavior(2, user_rate=rate * (1 + chance.uniform(-0.004, 0.004)))
            for step, rate in rates.items()
        }
        winners.add(best_candidate(behaviors, objective))
    assert winners == {stepped(8, 8192)}


@pytest.mark.parametrize(
    ("objective", "left"), [("cost", 1), ("interactivity", 5), ("throughput", 5)]
)
def test_no_more_is_replayed_than_the_budget_and_a_search_that_it_ended_says_so(
    objective: str, left: int
) -> None:
    """Without these replays, it does not claim that no graph meets the SLO."""
    behaviors = {aggregated(n): Behavior(0.2, user_rate=n) for n in range(1, 60)}
    search_trials, families = searched(behaviors, objective, left=left)
    assert search_trials.replays <= left
    assert [family.ended_by for family in families] == [Limit.REPLAYS, None]


@pytest.mark.parametrize("objective", list(Objective))
def test_a_search_that_the_time_ended_says_so(objective: str) -> None:
    late = trials({aggregated(2): MEETS})
    late.deployments = Named(request(objective))
    late.deadline = Deadline(10, clock=lambda: 11.0)
    (family, _) = found(late, [aggregated(2)])
    assert (family.best, family.ended_by) == (None, Limit.TIME)


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

    def at(self, candidate: Candidate, _: float) -> Estimate:
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
