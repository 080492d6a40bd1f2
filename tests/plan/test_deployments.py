"""Rendering of candidates: one of each kind, which stands for those with other worker counts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from penstock.checks.finding import Level
from penstock.checks.run import check_source
from penstock.manifests.source import Source, graph_source
from penstock.plan.deployments import FILE, Deployments
from penstock.plan.graph_text import graph_text
from penstock.plan.request import PlanRequest
from penstock.plan.space import Candidate, candidates, layouts
from penstock.serving.understand import Hints
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import replayable_deployments
from penstock.tune.settings import grid
from tests.plan.simulated_study import aggregated, request


def sampled(question: PlanRequest, count: int) -> list[Candidate]:
    """Aggregated and disaggregated ones with both routers, and some with other router settings."""
    space = candidates(question, layouts(question))
    choose = random.Random(7)
    families = [[c for c in space if c.is_disaggregated is kind] for kind in (False, True)]
    sample = [candidate for family in families for candidate in choose.sample(family, count // 2)]
    tuned = [
        replace(candidate, settings=choose.choice(grid()))
        for candidate in sample[::3]
        if candidate.router == "kv"
    ]
    return [*sample, *tuned]


def rendered_alone(question: PlanRequest, sample: list[Candidate]) -> list[Replayable]:
    """Each candidate rendered with its own numbers of workers; `check` finds no error."""
    hints = Hints(gpu=question.gpu.name, model_folder=question.folder)
    sources: list[Source] = [
        graph_source(graph_text(question, candidate), FILE) for candidate in sample
    ]
    findings = [finding for source in sources for finding in check_source(source, hints)]
    assert [f.message for f in findings if f.level is Level.ERROR and not f.suppressed] == []
    rendered = [
        result
        for result in replayable_deployments(sources, hints)
        if isinstance(result, Replayable)
    ]
    return [
        replace(deployment, name=str(c)) for deployment, c in zip(rendered, sample, strict=True)
    ]


@pytest.mark.slow  # renders graphs
@pytest.mark.parametrize(
    ("count", "options"),
    [
        (12, {"gpu": "b200", "gpus": 16, "shares": True}),
        (8, {"gpu": "gb200", "gpus": 12, "gpu_hour_price": 4.0}),
        (8, {"gpu": "h100", "gpus": 8, "shares": True}),
    ],
)
def test_the_deployment_of_a_kind_equals_that_of_each_candidate(
    count: int, options: dict[str, Any]
) -> None:
    question = request(**options)
    sample = sampled(question, count)
    deployments_of = Deployments(question).of(sample)
    assert [candidate for candidate, _ in deployments_of] == sample
    assert [deployment for _, deployment in deployments_of] == rendered_alone(question, sample)


@pytest.mark.slow  # renders a graph
def test_a_candidate_with_too_many_gpus_is_refused_though_its_kind_is_not() -> None:
    deployments = Deployments(request(gpus=8))
    deployments_of = deployments.of([aggregated(8), aggregated(9)])
    assert [candidate for candidate, _ in deployments_of] == [aggregated(8)]
    assert deployments.refused[aggregated(9)].startswith("PS209: the graph needs 9 GPUs")
