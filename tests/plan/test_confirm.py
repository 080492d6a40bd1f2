"""Graphs of a plan in longer replays than those of the search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.plan.confirm import (
    confirmed,
    confirmed_families,
    confirmed_family,
    confirmed_trial,
    longer_trial,
    reconsidered,
)
from penstock.plan.estimate import Ranked
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.plan.trials import Deadline, Trial, Trials, TrialSpec
from penstock.simulate.window import Steadiness
from penstock.workload.load import LoadedWorkload, parse_workload
from tests.plan.simulated_study import (
    LOADED,
    Behavior,
    Named,
    SimulatedStudy,
    aggregated,
    request,
    trials,
)

pytestmark = pytest.mark.slow  # renders a graph
SMALL, LARGE = aggregated(2), aggregated(4)
TOO_SHORT = Steadiness(window_s=10, request_s=5, offered_rate=4, served_rate=4)
STEADY = Steadiness(window_s=100, request_s=5, offered_rate=4, served_rate=4)
OVERLOADED = Steadiness(window_s=100, request_s=5, offered_rate=4, served_rate=2)


def behavior(longer: float, steadiness: Steadiness = STEADY, user_rate: float = 90) -> Behavior:
    """Meets the SLO in a short replay, and up to the scale ``longer`` in a long one."""
    long = Behavior(longer, user_rate=user_rate, steadiness=steadiness)
    return Behavior(2.0, steadiness=TOO_SHORT, longer=long)


def searched(small: Behavior, large: Behavior, objective: str = "cost") -> Trials:
    search = trials({SMALL: small, LARGE: large})
    search.deployments = Named(request(objective))
    search.of([TrialSpec(SMALL, seeds=SEEDS), TrialSpec(LARGE, seeds=SEEDS)])
    return search


def test_the_recommended_graph_has_the_figures_of_the_longer_replay() -> None:
    search = searched(behavior(2.0), behavior(2.0))
    replays = search.replays
    first, second = confirmed(search, search.known)
    assert (first.candidate, first.user_rate, first.row.is_steady) == (SMALL, 90, True)
    assert (second.candidate, second.row.is_steady) == (LARGE, False)
    assert search.replays == replays + 1
    assert first in search.known  # the short trial is no longer the surest


STEADY_AT_ONCE = Behavior(2.0, steadiness=STEADY, longer=Behavior(0.1))
FEW_REQUESTS = Behavior(
    2.0, requests=400, steadiness=STEADY, longer=Behavior(0.5, steadiness=STEADY)
)


@pytest.mark.parametrize(
    ("small", "large", "left"),
    [
        (behavior(0.5), behavior(2.0), [LARGE]),  # it misses the SLO in the longer replay
        (behavior(2.0, OVERLOADED), behavior(2.0, OVERLOADED), []),
        (STEADY_AT_ONCE, STEADY_AT_ONCE, [SMALL, LARGE]),  # not repeated
        (FEW_REQUESTS, FEW_REQUESTS, []),  # repeated with more
    ],
)
def test_only_graphs_that_meet_the_slo_in_a_longer_steady_replay_are_left(
    small: Behavior, large: Behavior, left: list[Candidate]
) -> None:
    search = searched(small, large)
    assert [trial.candidate for trial in confirmed(search, search.known)] == left


def test_of_a_trace_all_requests_are_replayed() -> None:
    search = searched(STEADY_AT_ONCE, STEADY_AT_ONCE)
    search.complete = LOADED  # stands for a trace
    assert confirmed(search, search.known) == []


def test_the_highest_rate_is_lowered_until_the_longer_replay_meets_the_slo() -> None:
    search = searched(behavior(0.9), behavior(0.9), "throughput")
    (small, _) = search.known
    confirmed_one = confirmed_trial(search, small)
    assert confirmed_one is not None
    assert 0.75 < confirmed_one.row.scale <= 0.9


def test_without_time_for_a_longer_replay_the_short_one_counts() -> None:
    search = searched(behavior(0.5), behavior(0.5))
    search.deadline = Deadline(10, clock=lambda: 9.0)
    first = confirmed(search, search.known)[0]
    assert (first.candidate, first.row.is_steady) == (SMALL, False)


def test_the_recommended_graph_is_one_of_the_confirmed() -> None:
    """The first one is slower for users in the longer replay than the second one seems to be."""
    search = searched(behavior(2.0, user_rate=50), behavior(2.0), "interactivity")
    first, second = confirmed(search, search.known)
    assert (first.candidate, first.row.is_steady) == (LARGE, True)
    assert (second.candidate, second.row.is_steady) == (SMALL, True)


@pytest.mark.parametrize(("large", "left"), [(2.0, [(LARGE, True)]), (0.5, [])])
def test_the_search_goes_on_with_more_gpus_if_none_is_left(
    large: float, left: list[tuple[Candidate, bool]]
) -> None:
    search = searched(behavior(0.5), behavior(large))
    ranked = Ranked(candidates=(SMALL, LARGE), capacity={SMALL: 1.0, LARGE: 1.0})
    family = confirmed_family(search, [trial_of(search, SMALL)], ranked)
    assert [(trial.candidate, trial.row.is_steady) for trial in family] == left


def test_without_more_gpus_the_search_goes_on_with_others_that_have_as_many() -> None:
    narrower = [aggregated(4, batch=batch) for batch in (64, 32)]
    search = trials({LARGE: behavior(0.5), narrower[0]: behavior(0.5), narrower[1]: behavior(2.0)})
    search.of([TrialSpec(LARGE, seeds=SEEDS)])
    candidates = (LARGE, *narrower)
    ranked = Ranked(candidates=candidates, capacity=dict.fromkeys(candidates, 1.0))
    (only,) = confirmed_family(search, search.known, ranked)
    assert (only.candidate, only.row.is_steady) == (narrower[1], True)


def test_a_graph_must_meet_the_slo_with_each_sample_of_the_traffic() -> None:
    search = searched(behavior(2.0), behavior(2.0))
    short = trial_of(search, SMALL)
    good = short.row.metrics[0]
    assert search.confirm(short, replace(short.row, metrics=(good,) * 3), {}).meets_slo
    one_bad = replace(short.row, metrics=(good, replace(good, goodput=0.9), good))
    assert search.study.meets(one_bad)  # the median does
    assert not search.confirm(short, one_bad, {}).meets_slo


def seeds_of_longer_replays(complete: LoadedWorkload, longer: float) -> list[int | None]:
    search = searched(behavior(longer), behavior(2.0))
    search.complete = complete
    assert isinstance(search.study, SimulatedStudy)
    search.study.asked.clear()
    longer_trial(search, trial_of(search, SMALL))
    return [seeds for _, _, seeds in search.study.asked]


def test_conversations_are_confirmed_with_several_samples() -> None:
    conversations = parse_workload(
        "requests: 400\ninput: 100\noutput: 10\narrival: {poisson: 4}\n"
        "conversation: {turns: 8, think: 3}\n",
        "agents.yaml",
    )
    assert seeds_of_longer_replays(conversations, longer=2.0) == [1, SEEDS]
    assert seeds_of_longer_replays(conversations, longer=0.5) == [1]  # the first one decides
    assert seeds_of_longer_replays(LOADED, longer=2.0) == [1]


def nearly(goodput: float, longer: float, requests: int = 500) -> Behavior:
    """Misses the SLO in a short replay."""
    long = Behavior(longer, steadiness=STEADY)
    return Behavior(0.5, goodput=goodput, requests=requests, steadiness=TOO_SHORT, longer=long)


@pytest.mark.parametrize(
    ("small", "expected"),
    [
        (nearly(0.92, longer=2.0), [SMALL, LARGE]),
        (nearly(0.92, longer=0.5), [LARGE]),
        (nearly(0.85, longer=2.0), [LARGE]),  # too far below the 95 %
        (nearly(0.92, longer=2.0, requests=5000), [LARGE]),  # its replay was long enough
    ],
)
def test_a_smaller_graph_that_nearly_met_the_slo_is_replayed_longer(
    small: Behavior, expected: list[Candidate]
) -> None:
    search = searched(small, behavior(2.0))
    families = [[trial_of(search, LARGE)], []]
    first_family, none = reconsidered(search, families)
    assert [trial.candidate for trial in first_family] == expected
    assert none == []


def test_conversations_that_nearly_met_the_slo_are_not_reconsidered() -> None:
    """In a short replay their number still grows, so a longer one is not better."""
    search = searched(nearly(0.92, longer=2.0), behavior(2.0))
    text = "input: 100\noutput: 10\narrival: {poisson: 4}\nconversation: {turns: 8}\n"
    search.study = replace(search.study, workload=parse_workload(text, "agents.yaml"))
    assert reconsidered(search, [[], []]) == [[], []]


def costly(small: Behavior, large: Behavior) -> Trials:
    search = trials({SMALL: small, LARGE: large})
    search.is_costly = True
    search.of([TrialSpec(SMALL), TrialSpec(LARGE)])
    return search


def trial_of(search: Trials, candidate: Candidate) -> Trial:
    (trial_of_candidate,) = (trial for trial in search.known if trial.candidate == candidate)
    return trial_of_candidate


def test_a_costly_family_that_needs_more_gpus_than_a_confirmed_graph_stays_unconfirmed() -> None:
    search = costly(behavior(2.0), behavior(2.0))
    families = [[trial_of(search, LARGE)], [trial_of(search, SMALL)]]
    none = Ranked(candidates=(), capacity={})
    (first,), (second,) = confirmed_families(search, families, [none, none])
    assert (first.candidate, first.row.is_steady) == (LARGE, False)
    assert (second.candidate, second.row.is_steady) == (SMALL, True)


def test_a_costly_family_is_confirmed_if_the_other_turns_out_to_need_as_many_gpus() -> None:
    search = costly(behavior(0.5), behavior(2.0))
    families = [[trial_of(search, LARGE)], [trial_of(search, SMALL)]]
    both = Ranked(candidates=(SMALL,), capacity={SMALL: 1.0})
    (first,), second = confirmed_families(search, families, [both, both])
    assert (first.candidate, first.row.is_steady) == (LARGE, True)
    assert second == []
