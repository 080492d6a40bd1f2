"""The error if no graph meets the SLO."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.graph.slo import Slo
from penstock.plan.no_plan import no_plan_error
from penstock.plan.planning import NoPlan
from penstock.plan.sensitivity import Miss
from penstock.plan.trials import TrialSpec
from penstock.simulate.steadiness import Steadiness
from penstock.workload.load import LoadedWorkload
from tests.plan.simulated_study import LOADED, Behavior, aggregated, request, trials
from tests.simulate.test_study import prompts

GROWING = Steadiness(window_s=10, request_s=1, offered_rate=10, served_rate=5)


def undecided(workload: LoadedWorkload, steadiness: Steadiness) -> NoPlan:
    """The closest graph meets the SLO for all requests."""
    candidate = aggregated(1)
    (trial,) = trials({candidate: Behavior(2.0, steadiness=steadiness)}).of([TrialSpec(candidate)])
    return NoPlan(
        request=request(),
        workload=workload,
        miss=Miss(trial=trial, slo=Slo(ttft_ms=1), scale=None),
        gpus=None,
        undecided=True,
        is_late=False,
        considered=1,
        replays=83,
    )


@pytest.mark.slow  # renders a graph
def test_more_replays_of_a_trace_without_a_steady_state_are_no_fix() -> None:
    trace = prompts(*[10] * 18)
    (problem,) = no_plan_error(undecided(trace, GROWING), 0.95).problems
    assert "it is not steady: only 5 of 10 requests/s complete" in problem.message
    assert problem.fix == "Use a longer trace, or a lower --scale."
    for workload, steadiness in (
        (LOADED, GROWING),
        (trace, replace(GROWING, served_rate=10)),
    ):
        (problem,) = no_plan_error(undecided(workload, steadiness), 0.95).problems
        assert "83 replays are too few to decide" in problem.message
        assert problem.fix == "Raise --replays."
