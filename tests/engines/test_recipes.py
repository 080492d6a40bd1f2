"""NVIDIA's published recipes, through the parsers of ai-dynamo 1.6.1 and vLLM 0.31.0.

Several were written for older releases. Each rejection was verified in the source of the wheel or
with the real vLLM, and is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.engines.engine import Simulation
from penstock.engines.parsers import NotParsed, ParseResult, Rejected
from penstock.engines.table import simulate
from penstock.errors import ManifestError
from penstock.manifests.deployment import Component, Launch
from penstock.manifests.read import read_text
from tests.support.outside_files import recipes

from .launches import checked_all, mocker_accepts

RECIPES = recipes()
Checked = tuple[str, Component, Launch, ParseResult]
pytestmark = pytest.mark.needs("recipes")

# Their images are development builds. vLLM 0.31.0 does not have the key and rejects it (run).
FP4_INDEXER = "unknown key use_fp4_indexer_cache"
# dynamo/vllm/args.py: a prefill worker must configure its KV transfer itself.
NO_TRANSFER = "you must explicitly provide --kv-transfer-config"
REJECTED = {
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
# Values for placeholders, from the READMEs; the reader rejects a recipe with placeholders.
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
            continue  # kustomizations, and placeholders that only their scripts fill in
        for component in (c for d in deployments for c in d.components):
            yield from ((path.stem, component, launch) for launch in component.launches)


@pytest.fixture(scope="module")
def checked() -> list[Checked]:
    launches = list(recipe_launches())
    results = checked_all([(component.name, launch) for _, component, launch in launches])
    assert len(launches) > 100
    return [(*launched, result) for launched, result in zip(launches, results, strict=True)]


def test_the_recipes_are_accepted_except_those_listed_with_their_reason(
    checked: list[Checked],
) -> None:
    rejected = {
        (file, component.name): result.problem.message
        for file, component, _, result in checked
        if isinstance(result, Rejected)
    }
    assert rejected.keys() == REJECTED.keys(), rejected
    for where, reason in REJECTED.items():
        assert reason in rejected[where]


def test_the_parsers_check_every_launch_of_their_engines(checked: list[Checked]) -> None:
    parsable = ("dynamo.trtllm", "dynamo.vllm", "dynamo.mocker")
    unparsed = [
        (file, component.name, result.reason)
        for file, component, launch, result in checked
        if isinstance(result, NotParsed) and launch.module in parsable
    ]
    assert unparsed == []


def test_every_accepted_worker_has_a_valid_mocker_command(checked: list[Checked]) -> None:
    simulations = [
        simulate(component, launch, result)
        for _, component, launch, result in checked
        if not isinstance(result, Rejected)
        and component.engine is not None
        and launch.module == f"dynamo.{component.engine}"
    ]
    assert len(simulations) > 60
    for simulation in simulations:
        assert isinstance(simulation, Simulation), simulation
        mocker_accepts(simulation)
        check_lines(simulation)


def check_lines(simulation: Simulation) -> None:
    """Assert that no line is empty or repeated, and that at most eight are not simulated."""
    lines = simulation.simulated + simulation.not_simulated
    assert all(lines)
    assert len(set(lines)) == len(lines)
    assert len(simulation.not_simulated) <= 8
