"""NVIDIA's published recipes, through the parsers of ai-dynamo 1.6.1 and vLLM 0.31.0.

Several were written for older releases: what is refused here was checked in the wheel's source or
with the real vLLM, and is pinned with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines import ENGINES
from penstock.engines.engine import Simulation
from penstock.engines.parsers import NotParsed, ParseResult, Rejected
from penstock.errors import ManifestError
from penstock.manifests.deployment import Component, Launch
from penstock.manifests.read import read_text

from .launches import judged_all, mocker_accepts

RECIPES = Path(__file__).parents[3] / "shared" / "recipes"
Judged = tuple[str, Component, Launch, ParseResult]
pytestmark = pytest.mark.skipif(not RECIPES.is_dir(), reason=f"no recipes at {RECIPES}")

# Their images are development builds; vLLM 0.31.0 has no such key and refuses it (run with it).
FP4_INDEXER = "unknown key use_fp4_indexer_cache"
# dynamo/vllm/args.py: a prefill worker must name its KV transfer itself.
NO_TRANSFER = "you must explicitly provide --kv-transfer-config"
REFUSED = {
    ("examples_global_planner_global-planner-vllm-test", "VllmPrefillWorker"): NO_TRANSFER,
    ("recipes_deepseek-v4_deepseek-v4-flash_vllm_agg_b200_deploy", "VllmDecodeWorker"): FP4_INDEXER,
    ("recipes_deepseek-v4_deepseek-v4-pro_vllm_agg-b200-agentic_deploy", "VllmDecodeWorker"): (
        FP4_INDEXER
    ),
    ("recipes_deepseek-v4_deepseek-v4-pro_vllm_disagg-b200-agentic_deploy", "VllmPrefillWorker"): (
        FP4_INDEXER
    ),
    ("recipes_deepseek-v4_deepseek-v4-pro_vllm_disagg-b200-agentic_deploy", "VllmDecodeWorker"): (
        FP4_INDEXER
    ),
}
# What their README says to fill in; the reader refuses a recipe that still holds placeholders.
FILLED = {
    "${DYNAMO_IMAGE}": "nvcr.io/nvidia/ai-dynamo/dynamo-frontend:1.6.1",
    "${DYNAMO_VLLM_IMAGE}": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1",
    "${MODEL_NAME}": "Qwen/Qwen3-0.6B",
    "${K8S_NAMESPACE}": "default",
    "${STORAGE_CLASS_NAME}": "standard",
    "<IMAGE_TAG>": "1.6.1",
    "<your-namespace>": "default",
}


def recipe_launches() -> Iterator[tuple[str, Component, Launch]]:
    """File, component and launch of every recipe that can be read."""
    for path in sorted(RECIPES.glob("*.yaml")):
        text = path.read_text("utf-8")
        for placeholder, value in FILLED.items():
            text = text.replace(placeholder, value)
        try:
            deployments = read_text(text, path.name)
        except ManifestError:
            continue  # kustomizations, and placeholders only their scripts know
        for component in (c for d in deployments for c in d.components):
            yield from ((path.stem, component, launch) for launch in component.launches)


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    launches = list(recipe_launches())
    verdicts = judged_all([(component.name, launch) for _, component, launch in launches])
    assert len(launches) > 100
    return [(*found, verdict) for found, verdict in zip(launches, verdicts, strict=True)]


def test_the_recipes_are_accepted_but_for_those_pinned_with_their_reason(
    judged: list[Judged],
) -> None:
    refused = {
        (file, component.name): verdict.problem.message
        for file, component, _, verdict in judged
        if isinstance(verdict, Rejected)
    }
    assert refused.keys() == REFUSED.keys(), refused
    for where, reason in REFUSED.items():
        assert reason in refused[where]


def test_the_parsers_judge_every_launch_of_their_engines(judged: list[Judged]) -> None:
    parsable = ("dynamo.trtllm", "dynamo.vllm", "dynamo.mocker")
    unparsed = [
        (file, component.name, verdict.reason)
        for file, component, launch, verdict in judged
        if isinstance(verdict, NotParsed) and launch.module in parsable
    ]
    assert unparsed == []


def test_every_accepted_worker_has_a_mocker_that_the_mocker_accepts(judged: list[Judged]) -> None:
    found = [
        ENGINES[component.engine].simulate(component, launch, verdict)
        for _, component, launch, verdict in judged
        if not isinstance(verdict, Rejected)
        and component.engine is not None
        and launch.module == f"dynamo.{component.engine}"
    ]
    assert len(found) > 60
    for simulation in found:
        assert isinstance(simulation, Simulation), simulation
        mocker_accepts(simulation)
        check_lines(simulation)


def check_lines(found: Simulation) -> None:
    """Every line is for a reader: not empty, said once, at most a handful and a half left out."""
    lines = found.simulated + found.not_simulated
    assert all(lines)
    assert len(set(lines)) == len(lines)
    assert len(found.not_simulated) <= 8
