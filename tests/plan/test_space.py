"""Which graphs are considered."""

from __future__ import annotations

import itertools

import pytest

from penstock.plan.space import Candidate, Layout, candidates, layouts
from tests.plan.simulated_study import aggregated, disaggregated, request


def names(found: tuple[Layout, ...]) -> list[str]:
    return [str(layout) for layout in found]


def test_layouts_stay_within_a_node_and_the_budget() -> None:
    assert names(layouts(request(gpus=2))) == ["TP1", "TP2", "TP2/EP2", "DP2/EP2"]
    assert max(layout.gpus for layout in layouts(request(gpus=64))) == 8
    assert max(layout.gpus for layout in layouts(request(gpu="gb200", gpus=64))) == 4


def test_hoppers_experts_are_whole() -> None:
    assert names(layouts(request(gpu="h200", gpus=2))) == ["TP1", "TP2/EP2", "DP2/EP2"]


@pytest.mark.parametrize("objective", ["cost", "throughput", "interactivity"])
@pytest.mark.parametrize("gpus", [1, 3, 8])
def test_candidates_fit_and_are_all_different(objective: str, gpus: int) -> None:
    question = request(objective, gpus=gpus)
    found = candidates(question, layouts(question))
    assert found
    assert len(set(found)) == len(found)
    assert all(candidate.gpus <= gpus for candidate in found)
    assert any(candidate.is_disaggregated for candidate in found) == (gpus > 1)


def test_for_cost_every_number_of_workers_is_a_candidate() -> None:
    question = request("cost", gpus=4)
    found = candidates(question, [Layout(gpus=1)])
    assert {c.worker.replicas for c in found if not c.is_disaggregated} == {1, 2, 3, 4}
    pairs = {(c.prefill[0].replicas, c.worker.replicas) for c in found if c.is_disaggregated}
    assert pairs == {(p, d) for p, d in itertools.product(range(1, 4), repeat=2) if p + d <= 4}


def test_for_speed_all_gpus_are_used() -> None:
    question = request("interactivity", gpus=4)
    found = candidates(question, [Layout(gpus=1)])
    assert {candidate.gpus for candidate in found} == {4}


def test_other_routers_are_candidates_only_with_shared_prefixes() -> None:
    question = request(gpus=2)
    assert {c.router for c in candidates(question, layouts(question))} == {"kv"}
    shared = request(gpus=2, shares_prefixes=True)
    assert {c.router for c in candidates(shared, layouts(shared))} == {"kv", "round-robin"}


def test_the_order_prefers_one_pool_then_few_gpus_then_few_workers() -> None:
    wide = aggregated(1, layout=Layout(gpus=4))
    some: list[Candidate] = [disaggregated(1, 1), aggregated(8), aggregated(4), wide]
    assert sorted(some, key=lambda c: c.order) == [
        wide,
        aggregated(4),
        aggregated(8),
        disaggregated(1, 1),
    ]
