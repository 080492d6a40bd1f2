"""The progress of `penstock plan`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SimulationError
from penstock.plan.no_plan import best_first, partial_lines
from penstock.plan.planning import (
    CONVERSATIONS,
    FEWEST_REPLAYS,
    LEAST_REQUESTS,
    LONGEST_REPLAY_S,
    MOST_REPLAYS,
    Cost,
    complete_workload,
    counted,
)
from penstock.plan.prepare import prepare
from penstock.plan.request import Objective
from penstock.plan.sensitivity import OUT_OF_TIME, sensitivity_rows
from penstock.plan.traffic import Traffic
from penstock.plan.trials import Deadline, Limit, TrialSpec
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Cache, Replays, late
from penstock.simulate.study import Progress, Row
from penstock.workload.duration import MAX_REPLAYED_REQUESTS
from penstock.workload.load import LoadedWorkload, find_workload, parse_workload
from tests.plan.simulated_study import Behavior, SimulatedStudy, aggregated, request, trials


def test_progress_adds_up_the_replays_of_all_searches() -> None:
    steps: list[tuple[str, int, int]] = []
    count = counted(lambda *step: steps.append(step), budget=80, candidates=12)
    count("TP2: 90% within the SLO", 1)
    count("TP4: 99% within the SLO", 3)
    count("TP4: 100% within the SLO", 77)
    assert steps == [
        ("replaying the best of 12 candidates", 0, 80),
        ("1 of at most 80 replays: TP2: 90% within the SLO", 1, 80),
        ("4 of at most 80 replays: TP4: 99% within the SLO", 4, 80),
        ("81 replays: TP4: 100% within the SLO", 81, 81),
    ]


@pytest.mark.slow  # renders a graph
def test_a_partial_result_has_the_best_trials_first() -> None:
    single, two, four = (aggregated(replicas) for replicas in (1, 2, 4))
    search = trials({single: Behavior(0.5), two: Behavior(2.0), four: Behavior(2.0)})
    search.of([TrialSpec(four), TrialSpec(single), TrialSpec(two), TrialSpec(four, scale=0.25)])
    best = best_first(search.measured, Objective.COST)
    lines = list(partial_lines(best, request("cost"), 0.95, 80, width=80))
    assert lines[0].startswith("partial result: interrupted after 3 candidates, at most 80 repl")
    order = [line for line in lines if line.startswith(("1 ×", "2 ×", "4 ×"))]
    assert order == [str(two), str(four), str(single)]
    assert all(len(line) <= 80 for line in lines[2:])
    (only,) = partial_lines([], request("cost"), 0.95, 80)
    assert "0 candidates" in only


@pytest.mark.slow  # renders a graph
def test_an_interrupt_keeps_the_trials_that_ended_before_the_one_that_was_awaited() -> None:
    first, second, third = (aggregated(replicas) for replicas in (1, 2, 3))
    search = trials({first: Behavior(2.0), second: Behavior(2.0)})
    has_third_begun = threading.Event()  # so the second one, in the same thread, has ended

    class Interrupted(SimulatedStudy):
        def rows(self, deployments: Sequence[Replayable], progress: Progress | None) -> list[Row]:
            if deployments[0].name == str(third):
                has_third_begun.set()
            if deployments[0].name == str(first):
                assert has_third_begun.wait(10)
                raise KeyboardInterrupt
            return super().rows(deployments, progress)

    replays = Replays(Cache(None, ""), processes=2)
    search.study = Interrupted(**{**vars(search.study), "replays": replays})
    with pytest.raises(KeyboardInterrupt):
        search.of([TrialSpec(first), TrialSpec(second), TrialSpec(third)])
    assert search.measured[0].candidate == second


@pytest.mark.slow  # renders a graph
def test_no_trial_starts_after_the_deadline() -> None:
    now = 0.0
    single, two = aggregated(1), aggregated(2)
    search = trials({single: Behavior(2.0), two: Behavior(2.0)})
    search.deadline, search.share = Deadline(100, lambda: now), 0.8
    assert len(search.of([TrialSpec(single)])) == 1
    now = 80
    assert search.of([TrialSpec(two)]) == []
    assert search.ended_by is Limit.TIME
    left = search.left
    assert [trial.candidate for trial in search.of([TrialSpec(single)])] == [single]  # it is known
    assert search.left == left


@pytest.mark.slow  # renders a graph
def test_a_replay_that_the_time_limit_ends_is_left_out() -> None:
    class Late(SimulatedStudy):
        def rows(self, deployments: Sequence[Replayable], progress: Progress | None) -> list[Row]:
            raise late()

        def steady_rows(self, *_: Any) -> list[Row]:
            raise late()

    two = aggregated(2)
    search = trials({two: Behavior(2.0)})
    (trial,) = search.of([TrialSpec(two)])
    search.study = Late(workload=search.study.workload, replays=search.study.replays)
    assert search.confirmed(trial) is trial
    assert search.of([TrialSpec(two, scale=2.0)]) == []
    assert search.ended_by is Limit.TIME
    rows = sensitivity_rows(search, trial.row.replayable, 1.0, shares_prefixes=False)
    assert set(rows.values()) == {OUT_OF_TIME}


def test_a_trace_whose_requests_arrive_at_once_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "same.jsonl"
    trace.write_text('{"timestamp": 7, "input_length": 9, "output_length": 9}\n' * 3)
    with pytest.raises(SimulationError) as caught:
        prepare(request(), find_workload("conversation", trace))
    (problem,) = caught.value.problems
    assert problem.file == str(trace)
    assert problem.message == "all requests arrive at once, so there is no rate to plan for"
    assert problem.fix


CONVERSATION = "conversation: {turns: 8, think: 3}\n"


def workload(requests: int, more: str = "") -> LoadedWorkload:
    text = f"requests: {requests}\ninput: 1024\noutput: 300\narrival: {{poisson: 20}}\n"
    return parse_workload(text + more, "w.yaml")


def cost(requests: int, output: int = 300) -> Cost:
    traffic = Traffic(
        cached=0, fresh=1, long_fresh=1, output=output, context=1, rate=1.0, concurrency=None
    )
    return Cost.of(workload(requests), traffic)


def test_long_replays_are_fewer_and_have_one_seed() -> None:
    assert (cost(200).replays, cost(200).is_high) == (MOST_REPLAYS, False)
    assert FEWEST_REPLAYS <= cost(2000, output=1000).replays < MOST_REPLAYS
    assert cost(2000, output=1000).is_high
    assert cost(20_000, output=4000).replays == FEWEST_REPLAYS


def test_only_conversations_and_traces_can_be_searched_with_a_part() -> None:
    """A part of other workloads does not fill the engines."""
    long = cost(15_000)
    assert long.replay_s > LONGEST_REPLAY_S
    plain, turns = workload(15_000), workload(15_000, CONVERSATION)
    assert long.affordable(plain) == plain
    part = long.affordable(turns).workload.requests
    assert part is not None
    assert LEAST_REQUESTS <= part < 15_000 * LONGEST_REPLAY_S / long.replay_s + 1
    assert cost(500).affordable(workload(500, CONVERSATION)) == workload(500, CONVERSATION)


@pytest.mark.parametrize(
    ("planned", "steady", "complete"),
    [(500, 1000, 1000 * CONVERSATIONS), (9000, 1000, 9000), (500, 9000, MAX_REPLAYED_REQUESTS)],
)
def test_many_conversations_confirm_a_graph(planned: int, steady: int, complete: int) -> None:
    complete_load = complete_workload(
        workload(planned, CONVERSATION), workload(steady, CONVERSATION)
    )
    assert complete_load
    assert complete_load.workload.requests == complete


def test_requests_that_are_no_conversations_need_no_complete_workload() -> None:
    assert complete_workload(workload(9000), workload(100)) is None
