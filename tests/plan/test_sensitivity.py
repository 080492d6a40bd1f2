"""Headroom, comparisons and misses, over deployments that break at known loads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from penstock.graph.slo import Slo
from penstock.plan.sensitivity import (
    Headroom,
    compared,
    headroom,
    in_background,
    loss_rows,
    nearest_miss,
    sensitivity_rows,
    widened,
)
from penstock.plan.space import Layout
from penstock.plan.trials import TrialSpec
from penstock.simulate.model import Replayable
from penstock.simulate.study import SEEDS, Progress, Row, Study
from penstock.simulate.window import Steadiness
from penstock.workload.load import parse_workload
from tests.plan.simulated_study import (
    TAKES_MS,
    Behavior,
    Named,
    SimulatedStudy,
    aggregated,
    disaggregated,
    replayed_deployment,
    request,
    trials,
)


def row() -> Row:
    return Row(replayable=replayed_deployment(), metrics=(), results=())


@pytest.mark.parametrize(
    ("max_scale", "left", "expected"),
    [
        (1.0, 9, Headroom(sustained=None, failing=1.25)),
        (1.7, 9, Headroom(sustained=1.6, failing=2.0)),
        (100.0, 9, Headroom(sustained=8.0, failing=None)),
        (100.0, 2, Headroom(sustained=1.6, failing=None)),
        (1.0, 0, Headroom()),
    ],
)
def test_headroom_is_what_was_replayed(max_scale: float, left: int, expected: Headroom) -> None:
    asked = trials({aggregated(1): Behavior(max_scale=max_scale)}, left=left)
    assert headroom(asked, aggregated(1), 1.0) == expected


LONGER = Behavior(
    1.3, steadiness=Steadiness(window_s=100, request_s=5, offered_rate=4, served_rate=4)
)


def test_a_step_that_only_a_short_replay_meets_is_no_headroom() -> None:
    """A growing queue shows in the longer replay only. Of a costly one, the short replay shows no
    more than that the SLO is missed."""
    grows = Behavior(
        2.1,
        steadiness=Steadiness(window_s=10, request_s=5, offered_rate=4, served_rate=4),
        longer=LONGER,
    )
    for is_costly, expected in (
        (False, Headroom(sustained=1.25, failing=1.6)),
        (True, Headroom(failing=2.5)),
    ):
        search = trials({aggregated(1): grows})
        search.is_costly = is_costly
        assert headroom(search, aggregated(1), 1.0) == expected


@pytest.mark.parametrize(
    ("disaggregation", "aggregation", "gpus", "by_gpus", "favored"),
    [
        # One misses the SLO earlier; both at the last scale.
        (Behavior(3, user_rate=101), Behavior(1.5), 8, True, [False, False, False, True, False]),
        (Behavior(3, user_rate=110), Behavior(3), 8, True, [True, True, True, True, False]),
        # Faster with more GPUs.
        (Behavior(3, user_rate=200), Behavior(3), 4, True, [False] * 5),
        (Behavior(3, user_rate=200), Behavior(3), 4, False, [True, True, True, True, False]),
    ],
)
def test_disaggregation_is_favored_where_the_other_misses_the_slo_or_is_slower(
    disaggregation: Behavior, aggregation: Behavior, gpus: int, by_gpus: bool, favored: list[bool]
) -> None:
    pair = disaggregated(4, 4), aggregated(gpus)
    search = trials(dict(zip(pair, (disaggregation, aggregation), strict=True)))
    comparisons = compared(search, *pair, 1.0, by_gpus=by_gpus)
    assert [each.scale for each in comparisons] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert [each.favors_disaggregated for each in comparisons] == favored


def test_a_scale_at_which_a_graph_was_not_replayed_favors_none() -> None:
    """The replays that are left are used at the planned scale first."""
    pools, other = disaggregated(4, 4), aggregated(8)
    asked = trials({pools: Behavior(3, user_rate=200), other: Behavior(3)}, left=4)
    asked.of([TrialSpec(pools)])  # as the search does for the best graph
    comparisons = compared(asked, pools, other, 1.0, by_gpus=True)
    assert [(each.scale, each.favors_disaggregated) for each in comparisons] == [
        (0.25, True),
        (0.5, None),
        (1.0, True),
        (2.0, None),
        (4.0, None),
    ]
    assert comparisons[1].aggregated is None


def test_the_closest_miss_has_an_slo_that_it_meets() -> None:
    asked = trials({aggregated(1): Behavior(max_scale=0.5), aggregated(2): Behavior(max_scale=0.1)})
    asked.of([TrialSpec(aggregated(1)), TrialSpec(aggregated(2))])
    slo = Slo(ttft_ms=TAKES_MS - 1)
    miss = nearest_miss(asked, slo)
    assert miss
    assert miss.scale == 0.5
    assert miss.slo.ttft_ms == pytest.approx(TAKES_MS * 1.02)
    assert miss.slo.itl_ms is None


def test_without_a_replay_there_is_no_miss() -> None:
    assert nearest_miss(trials({}), Slo(ttft_ms=1)) is None


def test_the_aggregated_graph_is_widened_to_as_many_gpus() -> None:
    two = Layout(gpus=2)
    assert widened(aggregated(1), 3) == aggregated(3)
    assert widened(aggregated(1, layout=two), 5) == aggregated(2, layout=two)
    assert widened(aggregated(1, layout=two), 1) == aggregated(1, layout=two)


@pytest.mark.parametrize(("max_scale", "replays"), [(2.0, 1 + SEEDS), (0.5, 1)])
def test_conversations_after_a_loss_are_replayed_as_long_as_those_that_confirm_a_graph(
    max_scale: float, replays: int
) -> None:
    """A short replay that misses the SLO is enough."""
    search = trials({aggregated(1): Behavior(max_scale)})
    search.deployments = Named(request())
    search.complete = parse_workload(
        "requests: 400\ninput: 100\noutput: 10\narrival: {poisson: 4}\n"
        "conversation: {turns: 8, think: 3}\n",
        "agents.yaml",
    )
    assert isinstance(search.study, SimulatedStudy)
    (row,) = loss_rows(search, aggregated(2), 1.0).values()
    assert isinstance(row, Row)
    assert search.study.meets(row) == (max_scale > 1)
    assert len(search.study.asked) == replays


@pytest.mark.slow
def test_a_sensitivity_without_a_request_that_fits_says_so() -> None:
    search = trials({})
    long = parse_workload("input: 100000\noutput: 8\narrival: {poisson: 1}\n", "long.yaml")
    search.study = Refused(workload=long, replays=search.study.replays)
    fits = replace(replayed_deployment(), context=131072)
    whys = [
        row
        for row in sensitivity_rows(search, fits, 1.0, shares_prefixes=False).values()
        if isinstance(row, str)
    ]
    assert whys == [
        f"every request is longer than the 131072 tokens of {replayed_deployment().name}"
    ]


@dataclass(frozen=True, kw_only=True)
class Refused(Study):
    """Creates jobs, and runs none."""

    def rows(self, deployments: Sequence[Replayable], progress: Progress | None) -> list[Row]:
        sampled = self._sampled(self.workload, deployments)
        for deployment in deployments:
            self._jobs(deployment, self.workload, sampled)
        return [row()]


def test_analyses_in_the_background_run_during_the_block() -> None:
    reached = threading.Event()
    with in_background(lambda: reached.wait(60), lambda: True) as futures:
        reached.set()
        assert [future.result() for future in futures] == [True, True]
