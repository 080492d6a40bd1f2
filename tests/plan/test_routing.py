"""Router settings of a plan: graphs that meet the SLO only with others, and those of the winner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from penstock.graph.slo import Slo
from penstock.plan import routing
from penstock.plan.estimate import Ranked
from penstock.plan.routing import routed
from penstock.plan.search import Family
from penstock.plan.space import Candidate
from penstock.plan.trials import Deadline, Trials, TrialSpec, in_order
from penstock.simulate.model import PoolReplay, Replayable
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings
from tests.plan.simulated_study import (
    TAKES_MS,
    Behavior,
    Named,
    aggregated,
    request,
    trials,
)
from tests.tune.scripted import TUNED, faster, tuned

pytestmark = pytest.mark.slow  # renders a graph
BUDGET = 80
SMALL, LARGE = aggregated(2), aggregated(4)
MISSES, MEETS = Behavior(0.5), Behavior(2.0)


@pytest.fixture(autouse=True)
def _no_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Winners are not tuned, unless a test wants it."""
    monkeypatch.setattr(routing, "indifference", lambda *_: "requests hardly queue")


def with_settings(candidate: Candidate, settings: RouterSettings = TUNED) -> Candidate:
    return replace(candidate, settings=settings)


def searched(behaviors: dict[Candidate, Behavior]) -> Trials:
    """After a search that replayed the small and the large graph with Dynamo's default."""
    search = trials(behaviors)
    search.of([TrialSpec(SMALL), TrialSpec(LARGE)])
    return search


def families_of(search: Trials) -> list[Family]:
    none = Ranked(candidates=(), capacity={})
    met = [trial for trial in search.known if trial.meets_slo]
    best = in_order(met, search.deployments.request.objective)
    return [Family(none, best=best[0] if best else None), Family(none)]


OTHER_SETTINGS = "prefill_load_scale 4, overlap_score_credit 4, queue_threshold unset"
RESCUED = (
    "{how}: 100.0% of requests meet the SLO; in kv mode with Dynamo's default settings, only 0.0%"
)
ROUND_ROBIN = replace(SMALL, router="round-robin")
UNLUCKY = Behavior(2.0, longer=Behavior(0.1))


@pytest.mark.parametrize(
    ("behaviors", "expected", "reason"),
    [
        ({with_settings(SMALL): MEETS, LARGE: MEETS}, with_settings(SMALL), OTHER_SETTINGS),
        ({ROUND_ROBIN: MEETS, LARGE: MEETS}, ROUND_ROBIN, "round-robin mode"),
        # No graph meets the SLO with the default.
        ({with_settings(LARGE): MEETS}, with_settings(LARGE), OTHER_SETTINGS),
        # In a short replay only.
        ({with_settings(SMALL): UNLUCKY, LARGE: MEETS}, LARGE, None),
        ({}, None, ""),
    ],
)
def test_the_smallest_graph_that_meets_the_slo_with_any_settings_wins(
    behaviors: dict[Candidate, Behavior], expected: Candidate | None, reason: str | None
) -> None:
    search = searched({SMALL: MISSES, LARGE: MISSES, **behaviors})
    families = families_of(search)
    winner, decision = routed(search, families, BUDGET)
    assert (winner and winner.candidate) == expected
    assert [family.best for family in families] == [winner, None]
    if reason is None:
        assert decision.startswith("Dynamo's default settings: ")
    else:
        assert decision == (RESCUED.format(how=reason) if reason else "")
        assert winner is None or winner.is_confirmed


@pytest.mark.parametrize("slo", [Slo(ttft_ms=TAKES_MS + 1, itl_ms=0.001), Slo(ttft_ms=1)])
def test_a_graph_that_is_too_slow_for_other_reasons_is_not_tried(slo: Slo) -> None:
    search = searched({SMALL: MISSES, with_settings(SMALL): MEETS, LARGE: MEETS})
    search.deployments = Named(request(slo=slo))
    winner, _ = routed(search, families_of(search), BUDGET)
    assert winner is not None
    assert winner.candidate == LARGE
    assert {trial.candidate.settings for trial in search.known} == {DYNAMO_DEFAULT}


def test_one_worker_fewer_is_tried_until_the_slo_is_missed() -> None:
    """The search may have no budget for it, or not with the settings of the winner."""
    behaviors = {aggregated(4): MEETS, aggregated(3): MEETS, SMALL: MEETS, aggregated(1): MISSES}
    search = trials(behaviors)
    search.of([TrialSpec(aggregated(4))])
    search.left = 0
    families = families_of(search)
    winner, _ = routed(search, families, BUDGET)
    assert winner is not None
    assert winner.candidate == SMALL
    assert winner.is_confirmed
    assert families[0].best is winner


def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes all replays queue for prefill, and `tune` recommend other settings."""
    monkeypatch.setattr(routing, "indifference", lambda *_: "")
    monkeypatch.setattr(routing, "tune", lambda *_: tuned(faster(TUNED)))


def test_the_winner_gets_the_settings_that_tune_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    queue(monkeypatch)
    search = searched({SMALL: MEETS, LARGE: MEETS, with_settings(SMALL): MEETS})
    families = families_of(search)
    before = search.replays
    winner, decision = routed(search, families, BUDGET)
    assert winner is not None
    assert winner.candidate == with_settings(SMALL)
    assert families[0].best is winner
    assert decision.startswith(f"{TUNED}: TTFT p50/p90/p99 ")
    assert "on traffic that was not used to choose them" in decision
    assert search.replays > before + 3  # those of `tune` count


@pytest.mark.parametrize("behavior", [MISSES, Behavior(2.0, user_rate=50)])
def test_settings_with_which_the_winner_would_be_worse_are_not_taken(
    monkeypatch: pytest.MonkeyPatch, behavior: Behavior
) -> None:
    queue(monkeypatch)
    search = searched({SMALL: MEETS, LARGE: MEETS, with_settings(SMALL): behavior})
    winner, decision = routed(search, families_of(search), BUDGET)
    assert winner is not None
    assert winner.candidate == SMALL
    assert "misses the SLO or is slower for users" in decision


@pytest.mark.parametrize(
    ("budget", "limit_s", "queues", "why"),
    [
        (BUDGET, None, False, "requests hardly queue"),
        (10, None, True, "others were not tried; raise --replays to "),
        (BUDGET, 10.0, True, "others were not tried; raise --time-limit"),
    ],
)
def test_the_default_is_kept_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, budget: int, limit_s: float | None, queues: bool, why: str
) -> None:
    if queues:
        queue(monkeypatch)
    search = searched({SMALL: MEETS, LARGE: MEETS})
    if limit_s is not None:
        search.deadline = Deadline(limit_s, clock=lambda: 9.0)
    winner, decision = routed(search, families_of(search), budget)
    assert winner is not None
    assert winner.candidate.settings == DYNAMO_DEFAULT
    assert decision.startswith(f"Dynamo's default settings: {why}")


def alone(pool: PoolReplay) -> PoolReplay:
    return replace(pool.resized(1), engine={**pool.engine, "dp_size": 1})


class OfOneWorker(Named):
    def of(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> list[tuple[Candidate, Replayable]]:
        return [
            (c, replace(deployment, pools=tuple(map(alone, deployment.pools))))
            for c, deployment in super().of(candidates, is_over)
        ]


def test_a_graph_without_a_choice_of_workers_keeps_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue(monkeypatch)
    search = trials({aggregated(1): MEETS})
    search.deployments = OfOneWorker(request())
    search.of([TrialSpec(aggregated(1))])
    _, decision = routed(search, families_of(search), BUDGET)
    assert "so the router has no choice" in decision
