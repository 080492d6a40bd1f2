"""Every published recipe is read, or refused for a reason that is written down here."""

from __future__ import annotations

import json

import pytest

from penstock.errors import ManifestError
from penstock.manifests.deployment import (
    Deployment,
    Engine,
    KnownConfig,
    Launch,
    Role,
)
from penstock.manifests.read import read_text
from tests.support.outside_files import recipes

RECIPES = recipes()
FILES = sorted(path.name for path in RECIPES.glob("*.yaml"))

pytestmark = pytest.mark.needs("recipes")

PLACEHOLDER = "is an unfilled placeholder"
PATCH = (
    "recipes_qwen3-32b_vllm_cloud-providers_kustomize_components_nscale-gpu-memory_patch-dgd.yaml"
)
REFUSED = {
    PATCH: ("no image", 11),
    "recipes_qwen3.6-35b_deploy_dynamo-fd-ec.yaml": ("${HW_NODE_SELECTOR} " + PLACEHOLDER, 48),
}
# What stays open besides the pod's own fields: file → a part of each note.
UNRESOLVED = {
    "examples_global_planner_global-planner-vllm-test.yaml": ("${K8S_NAMESPACE}", "${MODEL_NAME}"),
    "recipes_glm-5-nvfp4_sglang_disagg_efa_deploy.yaml": ("hf-token-secret",),
    "examples_backends_vllm_deploy_lora_agg_lora.yaml": ("minio-secret",),
    "examples_deployments_GKE_sglang_disagg.yaml": ("$LD_LIBRARY_PATH", "$PATH"),
    "recipes_glm-5.2_sglang_disagg-h200-agentic_deploy.yaml": ("$(nvidia-smi topo -m",),
}


def read(name: str) -> tuple[Deployment, ...]:
    return read_text((RECIPES / name).read_text(), name)


def outcome(name: str) -> str:
    try:
        read(name)
    except ManifestError as error:
        message = error.problems[0].message
        return (
            "no DGD"
            if message.startswith("the file contains no DynamoGraphDeployment")
            else "refused"
        )
    return "read"


def recipe(name: str) -> Deployment:
    (deployment,) = read(name)
    return deployment


def only_launch(deployment: Deployment, component: str) -> Launch:
    (launch,) = deployment.component(component).launches
    return launch


def test_the_counts_are_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [outcome(name) for name in FILES]
    counts = {kind: outcomes.count(kind) for kind in ("read", "refused", "no DGD")}
    with capsys.disabled():
        print(f"\n{len(FILES)} recipes: {counts}")
    assert counts == {"read": len(FILES) - len(REFUSED) - 6, "refused": len(REFUSED), "no DGD": 6}


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_is_read_or_refused_for_the_known_reason(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(ManifestError) as caught:
            read(name)
        problem = caught.value.problems[0]
        assert (problem.message, problem.line) == REFUSED[name]
        assert problem.file == name
        assert problem.place
    elif name.endswith("_kustomization.yaml"):
        with pytest.raises(
            ManifestError, match="the file contains no DynamoGraphDeployment, only: Component"
        ):
            read(name)
    else:
        assert read(name)


def readable() -> list[str]:
    return [name for name in FILES if name not in REFUSED and "kustomization" not in name]


@pytest.mark.parametrize("name", readable())
def test_every_launch_of_a_recipe_is_resolved(name: str) -> None:
    expected = UNRESOLVED.get(name, ())
    for deployment in read(name):
        for component in deployment.components:
            for launch in component.launches:
                notes = [note for note in launch.unresolved if "metadata.uid" not in note]
                assert all(any(part in note for part in expected) for note in notes), notes
                open_ends = [a for a in launch.argv if "$" in a]
                assert all(any(part in a for part in expected) for a in open_ends)


@pytest.mark.parametrize("name", readable())
def test_every_component_of_a_recipe_runs_what_its_role_says(name: str) -> None:
    for deployment in read(name):
        for component in deployment.components:
            if component.role is Role.EPP:
                assert component.launches == ()
                continue
            modules = [launch.module for launch in component.launches]
            if component.role is Role.FRONTEND:
                assert modules == ["dynamo.frontend"]
            elif component.role in (Role.PLANNER, Role.OTHER):
                assert str(modules[0]).startswith("dynamo.")
            elif name != "examples_diffusers_deploy_agg_user_workload.yaml":
                assert component.engine is not None
                assert modules[0] == f"dynamo.{component.engine}"
            assert component.image


@pytest.mark.parametrize("name", readable())
def test_json_in_the_arguments_of_a_recipe_is_unchanged(name: str) -> None:
    for deployment in read(name):
        for component in deployment.components:
            for argument in (a for launch in component.launches for a in launch.argv):
                value = argument.partition("=")[2] if argument.startswith("--") else argument
                if value.startswith("{"):
                    assert isinstance(json.loads(value), dict)


def test_gpt_oss_disaggregated_on_trtllm() -> None:
    deployment = recipe("recipes_gpt-oss-120b_trtllm_disagg_deploy.yaml")
    prefill = deployment.component("TrtllmPrefillWorker")
    decode = deployment.component("TrtllmDecodeWorker")
    assert [c.role for c in deployment.components] == [Role.FRONTEND, Role.PREFILL, Role.DECODE]
    assert (prefill.replicas, prefill.gpus, decode.replicas, decode.gpus) == (1, 1, 1, 4)
    assert deployment.gpus == 5
    (launch,) = prefill.launches
    assert launch.argv == (
        *("python3", "-m", "dynamo.trtllm", "--model-path", "openai/gpt-oss-120b"),
        *("--served-model-name", "openai/gpt-oss-120b"),
        *("--extra-engine-args", "/opt/dynamo/configs/prefill.yaml"),
        *("--disaggregation-mode", "prefill"),
    )
    assert launch.unresolved == ()
    assert launch.secrets == ("hf-token-secret",)
    assert launch.env["OVERRIDE_QUANT_ALGO"] == "W4A8_MXFP4_MXFP8"
    assert launch.cwd == "/workspace/examples/backends/trtllm"
    for component, batch in ((prefill, 64), (decode, 1280)):
        config = component.engine_config
        assert isinstance(config, KnownConfig)
        assert config.values["kv_cache_config"]["dtype"] == "fp8"
        assert config.values["max_batch_size"] == batch
        assert config.place.startswith("ConfigMap/llm-config/")
    frontend = only_launch(deployment, "Frontend")
    assert frontend.arguments == ("--router-mode", "round-robin", "--http-port", "8000")


def test_gpt_oss_aggregated_on_vllm_takes_json_from_a_configmap() -> None:
    deployment = recipe("recipes_gpt-oss-120b_vllm_agg-h200-agentic_deploy.yaml")
    worker = deployment.component("agg")
    assert (worker.role, worker.engine, worker.replicas, worker.gpus) == (
        Role.WORKER,
        Engine.VLLM,
        8,
        1,
    )
    (launch,) = worker.launches
    (speculative,) = [a for a in launch.argv if a.startswith("--speculative-config=")]
    assert json.loads(speculative.partition("=")[2])["num_speculative_tokens"] == 3
    assert launch.env["SPECULATIVE_CONFIG"] == speculative.partition("=")[2]
    assert launch.argv[-4:] == (
        "--dyn-reasoning-parser",
        "gpt_oss",
        "--dyn-tool-call-parser",
        "harmony",
    )


def test_only_a_dynamic_ucx_device_list_is_unresolved() -> None:
    deployment = recipe("recipes_glm-5.2_sglang_disagg-h200-agentic_deploy.yaml")
    launch = only_launch(deployment, "prefill")
    assert launch.arguments[:2] == ("--config", "/etc/sglang/prefill.yaml")
    assert launch.env["UCX_NET_DEVICES"].startswith("$(nvidia-smi topo -m | awk ")
    parameters = launch.env["SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS"]
    assert parameters.startswith('{"ucx_devices":"$(nvidia-smi')
    assert parameters.endswith('","ucx_error_handling_mode":"peer"}')
    config = deployment.component("decode").engine_config
    assert isinstance(config, KnownConfig)
    assert config.values["disaggregation-mode"] == "decode"
    assert [c.role for c in deployment.components] == [Role.FRONTEND, Role.PREFILL, Role.DECODE]
