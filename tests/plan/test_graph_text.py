"""The graphs that a plan writes: complete, and without a finding of `check`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.checks.finding import Level
from penstock.checks.run import check_source
from penstock.graph.slo import Slo
from penstock.manifests.source import graph_source
from penstock.plan.graph_text import graph_text
from penstock.plan.space import candidates, layouts
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
