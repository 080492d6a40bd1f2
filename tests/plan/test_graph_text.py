"""The graphs that a plan writes: complete, and without a finding of `check`."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from penstock.checks.finding import Level
from penstock.checks.run import check_source
from penstock.graph.slo import Slo
from penstock.manifests.source import graph_source
from penstock.plan.graph_text import graph_text
from penstock.plan.space import Candidate, Layout, candidates, layouts
from penstock.serving.understand import Hints
from penstock.simulate.replayable import replayable
from penstock.tune.settings import RouterSettings, settings_of
from tests.plan.simulated_study import aggregated, disaggregated, request


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "b300", "gb200", "gb300"])
def test_every_kind_of_candidate_is_a_graph_that_check_takes(gpu: str) -> None:
    question = request("interactivity", gpu=gpu, gpus=8, shares_prefixes=True)
    everything = candidates(question, layouts(question))
    for candidate in everything[:: max(1, len(everything) // 12)]:
        source = graph_source(graph_text(question, candidate), "planned.yaml")
        findings = [f for f in check_source(source, Hints()) if not f.suppressed]
        # `plan` excludes candidates by memory; all else must be valid for every candidate.
        errors = [f for f in findings if f.level is not Level.NOTE and f.rule[:3] != "PS3"]
        assert not errors, (str(candidate), errors)


def test_the_graph_has_the_values_of_the_candidate() -> None:
    question = request(gpus=8, gpu_hour_price=2.5)
    source = graph_source(
        graph_text(question, disaggregated(2, 3), ["Why: tests."]), "planned.yaml"
    )
    assert source.loaded
    graph = source.loaded.graph
    assert graph.prefill
    assert graph.decode
    assert (graph.prefill.replicas, graph.decode.replicas, graph.worker) == (2, 3, None)
    assert graph.slo.ttft_ms == question.slo.ttft_ms
    assert graph.hardware.gpu_hour_price == 2.5
    assert graph.hardware.fabric == "ib"
    assert source.loaded.text.startswith("# Why: tests.\nmodel:\n")


def test_an_slo_of_1000_seconds_is_a_number() -> None:
    """YAML reads `1e+06` as text."""
    question = replace(request(), slo=Slo(e2e_ms=1_000_000))
    source = graph_source(graph_text(question, aggregated(2)), "planned.yaml")
    assert source.loaded
    assert source.loaded.graph.slo.e2e_ms == 1_000_000


def test_one_pool_needs_no_fabric() -> None:
    text = graph_text(request(), aggregated(2))
    assert "fabric" not in text
    assert "kv_transfer" not in text


def test_the_graph_has_only_the_router_settings_that_differ_from_the_default() -> None:
    assert "router" not in graph_text(request(), aggregated(2))
    settings = RouterSettings(4, 1, 0.0)
    text = graph_text(request(), replace(aggregated(2), settings=settings))
    assert "\nrouter: {prefill_load_scale: 4, queue_threshold: 0}\n" in text
    assert settings_of(replayable(graph_source(text, "planned.yaml"), Hints())) == settings


def names(found_layouts: tuple[Layout, ...]) -> list[str]:
    return [str(layout) for layout in found_layouts]


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
    considered = candidates(question, layouts(question))
    assert considered
    assert len(set(considered)) == len(considered)
    assert all(candidate.gpus <= gpus for candidate in considered)
    assert any(candidate.is_disaggregated for candidate in considered) == (gpus > 1)


def test_for_cost_every_number_of_workers_is_a_candidate() -> None:
    question = request("cost", gpus=4)
    considered = candidates(question, [Layout(gpus=1)])
    assert {c.worker.replicas for c in considered if not c.is_disaggregated} == {1, 2, 3, 4}
    pairs = {(c.prefill[0].replicas, c.worker.replicas) for c in considered if c.is_disaggregated}
    assert pairs == {(p, d) for p, d in itertools.product(range(1, 4), repeat=2) if p + d <= 4}


def test_for_speed_all_gpus_are_used() -> None:
    question = request("interactivity", gpus=4)
    considered = candidates(question, [Layout(gpus=1)])
    assert {candidate.gpus for candidate in considered} == {4}


def test_other_routers_are_candidates_only_with_shared_prefixes() -> None:
    question = request(gpus=2)
    assert {c.router for c in candidates(question, layouts(question))} == {"kv"}
    shared = request(gpus=2, shares_prefixes=True)
    assert {c.router for c in candidates(shared, layouts(shared))} == {"kv", "round-robin"}


def test_the_order_prefers_one_pool_then_few_gpus_then_few_workers() -> None:
    wide = aggregated(1, layout=Layout(gpus=4))
    unordered: list[Candidate] = [disaggregated(1, 1), aggregated(8), aggregated(4), wide]
    assert sorted(unordered, key=lambda c: c.order) == [
        wide,
        aggregated(4),
        aggregated(8),
        disaggregated(1, 1),
    ]
