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
from tests.plan.simulated_study import aggregated, disaggregated, request


def sampled(question: PlanRequest, count: int) -> list[Candidate]:
    """Aggregated and disaggregated ones with both routers, and some with other router settings."""
    space = candidates(question, layouts(question))
    choose = random.Random(7)
    families = [[c for c in space if c.is_disaggregated is kind] for kind in (False, True)]
    some = [one for family in families for one in choose.sample(family, count // 2)]
    tuned = [
        replace(one, settings=choose.choice(grid())) for one in some[::3] if one.router == "kv"
    ]
    return [*some, *tuned]


def rendered_alone(question: PlanRequest, some: list[Candidate]) -> list[Replayable]:
    """Each candidate rendered with its own numbers of workers; `check` finds no error."""
    hints = Hints(gpu=question.gpu.name, model_folder=question.folder)
    sources: list[Source] = [graph_source(graph_text(question, one), FILE) for one in some]
    findings = [finding for source in sources for finding in check_source(source, hints)]
    assert [f.message for f in findings if f.level is Level.ERROR and not f.suppressed] == []
    found = [one for one in replayable_deployments(sources, hints) if isinstance(one, Replayable)]
    return [replace(one, name=str(c)) for one, c in zip(found, some, strict=True)]


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
    some = sampled(question, count)
    found = Deployments(question).of(some)
    assert [candidate for candidate, _ in found] == some
    assert [deployment for _, deployment in found] == rendered_alone(question, some)


@pytest.mark.slow  # renders a graph
def test_candidates_with_other_numbers_of_workers_are_rendered_once() -> None:
    rendered: list[bool] = []

    def is_over() -> bool:  # is asked once before each rendering, and once after all
        rendered.append(True)
        return False

    deployments = Deployments(request(gpus=8))
    some = [aggregated(1), aggregated(2), aggregated(8), disaggregated(1, 2), disaggregated(3, 1)]
    found = deployments.of(some, is_over)
    assert len(rendered) == 2 + 1
    assert [tuple(pool.replicas for pool in one.pools) for _, one in found] == [
        *((1,), (2,), (8,)),
        *((1, 2), (3, 1)),
    ]
    assert [one.gpus for _, one in found] == [1, 2, 8, 3, 4]
    assert len({one.name for _, one in found}) == len(some)
    deployments.of([aggregated(5)], is_over)
    assert len(rendered) == 3


@pytest.mark.slow  # renders a graph
def test_a_candidate_with_too_many_gpus_is_refused_though_its_kind_is_not() -> None:
    deployments = Deployments(request(gpus=8))
    found = deployments.of([aggregated(8), aggregated(9)])
    assert [candidate for candidate, _ in found] == [aggregated(8)]
    assert deployments.refused[aggregated(9)].startswith("PS209: the graph needs 9 GPUs")
