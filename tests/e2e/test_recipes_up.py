"""Published manifests run with mockers: gpt-oss and TensorRT-LLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.chats import completed
from tests.local.test_published_manifests import EPP, PROFILE
from tests.support.local_graphs import ROOT, Up
from tests.support.outside_files import recipes

RECIPES = (
    "recipes_gpt-oss-120b_trtllm_disagg_deploy.yaml",
    "recipes_gpt-oss-120b_trtllm_agg_deploy.yaml",
    "recipes_gpt-oss-120b_vllm_agg-h200-agentic_deploy.yaml",
    "components_src_dynamo_profiler_templates_dgd_trtllm_disagg.yaml",
    "examples_backends_trtllm_deploy_agg_router.yaml",
    "examples_backends_trtllm_deploy_disagg_router.yaml",
    "recipes_nemotron-3-super-fp8_trtllm_disagg_deploy.yaml",
    "recipes_qwen3-32b-fp8_trtllm_disagg_deploy.yaml",
)


@pytest.mark.needs("recipes")
@pytest.mark.parametrize(
    "name", [RECIPES[0], *(pytest.param(r, marks=pytest.mark.nightly) for r in RECIPES[1:])]
)
def test_a_published_manifest_runs_with_mockers(up: Up, name: str) -> None:
    # Their findings are about clusters and GPUs; tests/checks/test_recipes.py has them.
    graph = up(recipes() / name, "--engine", "mocker", "--skip-check")
    state = graph.state()
    assert all(r["is_substitute"] for r in state["replicas"] if r["worker_id"])
    assert completed(graph, "Hello", max_tokens=5)["usage"]["completion_tokens"] == 5


def test_an_endpoint_picker_and_files_of_the_image_are_not_needed(up: Up, tmp_path: Path) -> None:
    path = tmp_path / "picked.yaml"
    model = "acme/model"
    path.write_text(EPP.replace(model, f"{model}, --planner-profile-data, {PROFILE}"))
    graph = up(path, "--skip-check")
    notes = "\n".join(graph.state()["notes"])
    assert "Epp: not started on this machine" in notes
    assert f"{PROFILE} is neither in the manifest nor on this machine" in notes
    assert completed(graph, "Hello", max_tokens=5)["usage"]["completion_tokens"] == 5


@pytest.mark.nightly
def test_our_gpt_oss_graph_runs_with_mockers_that_use_its_configuration(up: Up) -> None:
    graph = up(ROOT / "dynamo_graphs" / "gpt-oss-120b-b200-disagg.yaml")
    state = graph.state()
    assert state["desired_replicas"] == {"prefill": 4, "decode": 1, "frontend": 2}
    output = "\n".join(state["notes"])
    assert "using mocker instead of trtllm (no GPU on this machine)" in output
    assert "131072" in output
    assert state["models"] == ["openai/gpt-oss-120b"]
