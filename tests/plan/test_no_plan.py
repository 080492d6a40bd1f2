"""What the error reports if no graph meets the SLO."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from penstock.graph.slo import Slo
from penstock.plan import margin
from penstock.plan.no_plan import no_plan_error
from penstock.plan.planning import NoPlan
from penstock.plan.sensitivity import Miss, nearest_miss
from penstock.plan.trials import Deadline, Trials, TrialSpec
from penstock.simulate.interval import Interval
from penstock.simulate.model import Replayable
from penstock.simulate.study import Row
from penstock.simulate.window import Steadiness
from penstock.workload.load import LoadedWorkload
from tests.plan.simulated_study import (
    LOADED,
    TAKES_MS,
    Behavior,
    SimulatedStudy,
    aggregated,
    request,
    trials,
)
from tests.simulate.test_metrics import answer
from tests.simulate.test_study import prompts

pytestmark = pytest.mark.slow  # renders a graph
FULL, LEFT = aggregated(3), aggregated(2)
SLO = Slo(ttft_ms=TAKES_MS - 1)
GROWING = Steadiness(window_s=10, request_s=1, offered_rate=10, served_rate=5)
OVERLOADED = Steadiness(window_s=100, request_s=5, offered_rate=4, served_rate=2)


@dataclass(frozen=True, kw_only=True)
class SlowerStudy(SimulatedStudy):
    """Requests take four times as long after the loss of a worker."""

    def _acted(self, deployment: Replayable, acts: Behavior) -> Row:
        slow = answer(*((100.0 * i, 100.0 * i + 200, 100.0 * i + 600, 11) for i in range(100)))
        row = super()._acted(deployment, acts)
        return replace(row, results=(slow,)) if deployment.name == str(LEFT) else row


def searched(full: float, left: Behavior) -> Trials:
    """With `--n-minus-one`; ``full``: the highest scale at which the complete graph meets the
    SLO."""
    search = trials({FULL: Behavior(full), LEFT: left})
    search.study = SlowerStudy(**vars(search.study))
    search.deployments.request = replace(request(survives_loss=True), slo=SLO)
    search.of([TrialSpec(FULL)])
    return search


def rate(times: float) -> str:
    return f"--rate {4 * times:g}"


def error_of(search: Trials, slo: Slo = SLO) -> str:
    result = NoPlan(
        request=search.deployments.request,
        workload=LOADED,
        miss=nearest_miss(search, slo),
        gpus=None,
        undecided=False,
        is_late=False,
        considered=1,
        replays=search.replays,
    )
    return str(no_plan_error(result, 0.95, rate))


@pytest.mark.parametrize("full", [0.5, 2.0])
def test_with_n_minus_one_the_figures_and_the_slo_are_those_after_the_loss(full: float) -> None:
    """Whether or not the search has replayed the loss."""
    error = error_of(searched(full, Behavior(0.1)))
    assert f"closest: {FULL}, with one worker fewer: 0.0% of requests within the SLO" in error
    assert "TTFT p95 200 ms (SLO: 49 ms)" in error
    assert "Fix: Use --ttft 204ms, which the closest graph meets; or --rate 0.4, at which" in error


def test_an_overload_after_the_loss_has_no_slo_that_is_met() -> None:
    error = error_of(searched(0.5, Behavior(0.1, steadiness=OVERLOADED)))
    assert "its replay is not steady: only 2 of 4 requests/s complete" in error
    assert "which the closest graph meets" not in error


def test_without_time_for_the_loss_no_slo_is_suggested() -> None:
    search = searched(0.5, Behavior(0.1))
    search.deadline = Deadline(10, clock=lambda: 11.0)
    error = error_of(search)
    assert f"closest: {FULL}: 0.0% of requests within the SLO" in error
    assert "which the closest graph meets" not in error


def test_a_graph_that_only_a_loss_prevents_is_closer_than_one_that_is_too_slow() -> None:
    search, other = searched(2.0, Behavior(0.1)), aggregated(4)
    assert isinstance(search.study, SimulatedStudy)
    search.study.behaviors[str(other)] = Behavior(0.5, user_rate=200)
    search.of([TrialSpec(other)])
    miss = nearest_miss(search, SLO)
    assert miss
    assert miss.trial.candidate == FULL
    assert list(miss.trial.losses) == ["aggregated"]


def test_with_confidence_the_latencies_are_those_that_miss_the_slo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    intervals = {name: Interval(low=0.9, high=1.5, points=12) for name in ("ttft", "itl")}
    monkeypatch.setattr(margin, "row_intervals", lambda row, coverage: intervals)
    slo = Slo(ttft_ms=60)
    search = trials({FULL: Behavior(2.0)})
    search.deployments.request = replace(request(confidence=0.9), slo=slo)
    search.of([TrialSpec(FULL)])
    error = error_of(search, slo)
    assert "100.0% of requests within the SLO as predicted; at the upper end of the 90% " in error
    assert "intervals: TTFT p95 75 ms (SLO: 60 ms)" in error
    assert "Fix: Use --ttft 77ms, which the closest graph meets" in error


@dataclass(frozen=True, kw_only=True)
class UnevenStudy(SimulatedStudy):
    """The TTFT of the requests is 1 to 100 ms."""

    def _acted(self, deployment: Replayable, acts: Behavior) -> Row:
        times = [float(i * 37 % 100 + 1) for i in range(100)]
        uneven = answer(
            *((100.0 * i, 100.0 * i + t, 100.0 * i + t + 50, 11) for i, t in enumerate(times))
        )
        return replace(super()._acted(deployment, acts), results=(uneven,))


def test_the_suggested_slo_is_met_by_as_many_requests_as_needed() -> None:
    """No fewer than 95%, and of a single limit no more."""
    search = trials({FULL: Behavior(0.1)})
    search.study = UnevenStudy(**vars(search.study))
    search.of([TrialSpec(FULL)])
    for slo, itl in ((Slo(ttft_ms=10), None), (Slo(ttft_ms=10, itl_ms=4), pytest.approx(5.1))):
        miss = nearest_miss(search, slo)
        assert miss
        assert miss.slo.ttft_ms == pytest.approx(95.95 * 1.02, abs=1)
        assert miss.slo.itl_ms == itl


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


def test_more_replays_of_a_trace_without_a_steady_state_are_no_fix() -> None:
    trace = prompts(*[10] * 18)
    (problem,) = no_plan_error(undecided(trace, GROWING), 0.95, rate).problems
    assert "its replay is not steady: only 5 of 10 requests/s complete" in problem.message
    assert problem.fix == "Use a longer trace, or a lower --rate."
    for workload, steadiness in (
        (LOADED, GROWING),
        (trace, replace(GROWING, served_rate=10)),
    ):
        (problem,) = no_plan_error(undecided(workload, steadiness), 0.95, rate).problems
        assert "83 replays cannot decide" in problem.message
        assert problem.fix == "Raise --replays."
