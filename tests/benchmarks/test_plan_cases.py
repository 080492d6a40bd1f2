"""The comparison of plans with brute force, on graphs of known behavior."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.plan.planning import NoPlan
from plan_against_all import BruteForce, shape
from plan_cases import CASES, HELD_OUT, KNOWN, is_held_out
from tests.plan.simulated_study import LOADED, Behavior, aggregated, request, trials

pytestmark = pytest.mark.slow  # renders a graph
THREE, HOPELESS, ONE, FAST = aggregated(3), aggregated(2), aggregated(1), aggregated(4, batch=128)
BEHAVIORS = {
    aggregated(4): Behavior(2.0),
    FAST: Behavior(2.0, user_rate=110),
    THREE: Behavior(2.0),
    replace(THREE, router="round-robin"): Behavior(0.5, goodput=0.8),
    HOPELESS: Behavior(0.5, goodput=0.4),
    ONE: Behavior(2.0),  # is not replayed, because more workers are hopeless
}


def brute_force() -> BruteForce:
    missed = NoPlan(
        request=request("cost"),
        workload=LOADED,
        miss=None,
        gpus=None,
        undecided=False,
        is_late=False,
        considered=0,
        replays=0,
    )
    return BruteForce(missed, list(BEHAVIORS), [trials(BEHAVIORS), trials(BEHAVIORS)])


def test_brute_force_finds_graphs_with_fewer_gpus() -> None:
    others = brute_force()
    assert [trial.candidate for trial in others.smaller(4)] == [THREE]
    assert (others.excluded, ONE in others.replayed) == ({HOPELESS, ONE}, False)


def test_brute_force_finds_a_faster_graph() -> None:
    answered, best = brute_force().fastest(aggregated(4))
    assert answered
    assert best
    assert (answered.candidate, best.candidate) == (aggregated(4), FAST)


def test_limits_do_not_change_the_shape() -> None:
    assert shape(FAST) == shape(aggregated(4)) != shape(THREE)


def test_half_of_the_cases_are_held_out_and_no_known_failure() -> None:
    assert sum(map(is_held_out, CASES)) == HELD_OUT == len(CASES) / 2
    assert not any(map(is_held_out, KNOWN))
