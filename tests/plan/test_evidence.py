"""What the replays of a search show: the Pareto front, the cost, and the neighbors of a graph."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from penstock.graph.slo import Slo
from penstock.plan.evidence import (
    cost_per_million,
    neighbors,
    pareto_front,
    replayed,
    surest_trials,
)
from penstock.plan.request import Objective
from penstock.plan.space import Candidate, Layout
from penstock.plan.trials import Trial
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.study import Row
from penstock.tune.settings import DYNAMO_DEFAULT, grid
from tests.plan.simulated_study import aggregated, disaggregated, replayed_deployment, request
from tests.simulate.test_metrics import steady

TP2 = Layout(gpus=2)
TUNED = next(settings for settings in grid() if settings != DYNAMO_DEFAULT)


@cache
def row() -> Row:
    """Of a steady stream: TTFT 50 ms, ITL 10 ms."""
    metrics = replay_metrics(steady(), 1, Slo(ttft_ms=51))
    return Row(replayable=replayed_deployment(), metrics=(metrics,), results=(steady(),))


def trial(
    candidate: Candidate,
    user_rate: float = 100.0,
    gpu_rate: float = 1000.0,
    *,
    seeds: int = 1,
    scale: float = 1.0,
    meets_slo: bool = True,
) -> Trial:
    metrics = replace(
        row().metrics[0],
        user_rate=user_rate,
        gpu_rate=gpu_rate,
        gpu_hours_per_million=1e6 / 3600 / gpu_rate,
    )
    name = replace(row().replayable, name=str(candidate))
    replay_row = replace(row(), replayable=name, metrics=(metrics,) * seeds, scale=scale)
    return Trial(candidate=candidate, row=replay_row, meets_slo=meets_slo)


@pytest.mark.slow  # renders a graph
def test_the_front_has_the_trials_that_no_other_surpasses_in_both_rates() -> None:
    slow, middle, fast, worse, equal = (
        trial(aggregated(number), *rates)
        for number, rates in enumerate(
            [(100, 3000), (150, 2000), (300, 500), (140, 1900), (150, 2000)], start=1
        )
    )
    assert pareto_front([worse, fast, middle, slow, equal]) == [slow, middle, fast]
    assert pareto_front([worse]) == [worse]
    assert pareto_front([]) == []


@pytest.mark.slow  # renders a graph
def test_the_front_leaves_out_what_misses_the_slo_unless_all_do() -> None:
    met = trial(aggregated(1), 100, 1000)
    missed = trial(aggregated(2), 200, 2000, meets_slo=False)
    assert replayed([met, missed], request(), 0.95, met).front == [met]
    assert replayed([missed], request(), 0.95, missed).front == [missed]


@pytest.mark.slow  # renders a graph
def test_each_candidate_is_shown_once_at_the_planned_scale() -> None:
    small, two = aggregated(1), aggregated(2)
    first, all_seeds, longer = trial(small), trial(small, seeds=3), trial(small, meets_slo=False)
    other = trial(two)
    analysis = trial(two, scale=2.0, seeds=3)
    measured = [first, all_seeds, other, longer, analysis]
    assert surest_trials(measured, Objective.COST) == [longer, other]


@pytest.mark.slow  # renders a graph
def test_at_the_maximum_rate_the_choice_is_shown_as_it_was_confirmed() -> None:
    small, two = aggregated(1), aggregated(2)
    confirmed = trial(small, scale=1.5, seeds=3)
    higher, missed = trial(small, scale=1.6), trial(small, scale=1.7, meets_slo=False)
    other = trial(two, scale=1.2)
    measured = [other, higher, missed, confirmed]
    assert surest_trials(measured, Objective.THROUGHPUT) == [other, higher]
    longer = trial(small, scale=1.6, meets_slo=False)
    assert surest_trials([*measured, longer], Objective.THROUGHPUT) == [other, confirmed]
    shown_trials = replayed(measured, request("throughput"), 0.95, confirmed)
    assert list(shown_trials.trials) == [other, confirmed]


@pytest.mark.slow  # renders a graph
def test_the_cost_is_the_price_or_gpu_seconds_of_a_million_tokens() -> None:
    cheap = trial(aggregated(1), gpu_rate=500)
    assert cost_per_million(cheap, None) == pytest.approx(2000)  # 1,000,000 / 500
    assert cost_per_million(cheap, 3.6) == pytest.approx(2.0)  # 2000 s of 0.001 each
    metrics = replace(cheap.row.metrics[0], gpu_hours_per_million=None)
    none = replace(cheap, row=replace(cheap.row, metrics=(metrics,)))
    assert cost_per_million(none, 3.6) is None


POOLS = disaggregated(2, 4)
OTHERS = next(settings for settings in grid() if settings not in (DYNAMO_DEFAULT, TUNED))


def tuned(candidate: Candidate) -> Candidate:
    return replace(candidate, settings=TUNED)


@pytest.mark.parametrize(
    ("choice", "near", "far"),
    [
        pytest.param(
            aggregated(4),
            {
                aggregated(5): "replicas",
                aggregated(3): "replicas",
                aggregated(4, batch=128): "batch",
                replace(aggregated(4), worker=replace(aggregated(4).worker, step=2048)): "step",
                replace(aggregated(4), router="round-robin"): "router mode",
                tuned(aggregated(4)): "router settings",
                aggregated(4, layout=TP2): "layout",
                aggregated(2, layout=TP2): "layout",  # on the same GPUs
            },
            [
                aggregated(4),
                aggregated(6),
                aggregated(5, batch=128),
                aggregated(3, layout=TP2),
                aggregated(2, batch=128, layout=TP2),
                replace(aggregated(5), router="round-robin"),
                disaggregated(1, 3),
            ],
            id="aggregated",
        ),
        # As many wider workers as fit on the same GPUs.
        pytest.param(aggregated(7), {aggregated(3, layout=TP2): "layout"}, [], id="wider"),
        pytest.param(aggregated(3, layout=TP2), {aggregated(7): "layout"}, [], id="narrower"),
        pytest.param(
            POOLS,
            {
                disaggregated(3, 4): "prefill replicas",
                disaggregated(2, 3): "decode replicas",
                disaggregated(3, 3): "replicas of both pools",  # a worker moved
                replace(
                    POOLS, worker=replace(POOLS.worker, layout=TP2, replicas=2)
                ): "decode layout",
            },
            [disaggregated(3, 5), disaggregated(4, 2), aggregated(6)],
            id="disaggregated",
        ),
        # A neighbor of a graph with tuned settings may have Dynamo's.
        pytest.param(
            tuned(aggregated(4)),
            {
                aggregated(4): "router settings",
                aggregated(5): "replicas, router settings",
                tuned(aggregated(5)): "replicas",
            },
            [replace(aggregated(5), settings=OTHERS), aggregated(6), tuned(aggregated(4))],
            id="tuned",
        ),
    ],
)
def test_neighbors_differ_in_one_setting_which_is_named(
    choice: Candidate, near: dict[Candidate, str], far: list[Candidate]
) -> None:
    assert neighbors(choice, [*near, *far]) == near
