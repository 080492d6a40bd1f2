"""Levels, reasons and fixes of findings on public manifests that two reviewers called wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.checks.finding import Fix, Level
from tests.checks.all_cases import cases
from tests.checks.support import (
    REMOVE,
    VLLM_AGG,
    check,
    found,
    manifest,
    only,
    sglang_agg_dgd,
    trtllm_agg_dgd,
    trtllm_disagg_dgd,
    vllm_agg_dgd,
    vllm_disagg,
    vllm_disagg_dgd,
)

COMPONENTS = "dgd/spec/components"
MAIN = "podTemplate/spec/containers/main"
FRONTEND, WORKER, DECODE, PREFILL = (
    f"{COMPONENTS}/{name}/{MAIN}" for name in ("frontend", "worker", "decode", "prefill")
)
NVIDIA = "nvcr.io/nvidia/ai-dynamo"


KINDS = {
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n": "Pass a graph, or a manifest",
    "apiVersion: x/v1\nkind: LeaderWorkerSet\nspec: {a: 1, a: 2}\n": "Pass a graph, or a manifest",
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {}\n": "Pass a graph",
    "apiVersion: v1\nkind: ConfigMap\ndata: {a: <your-name>}\n": "Pass a graph",
    "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n": "Build the overlay",
    "apiVersion: x/v1\nkind: Component\n": "Build an overlay that uses it",
    "apiVersion: x/v1\nkind: DynamoGraphDeploymentRequest\n": "Save the DynamoGraphDeployment",
}


@pytest.mark.parametrize("text", KINDS)
def test_a_file_without_a_deployment_has_nothing_to_check(text: str) -> None:
    (finding,) = check(text)
    kind = text.split("kind: ")[1].partition("\n")[0]
    assert (finding.rule, finding.level, finding.line) == ("PS001", Level.ERROR, 1)
    assert f"the file contains no DynamoGraphDeployment, only: {kind}" in finding.message
    assert "reads graphs and DynamoGraphDeployments" in finding.why
    assert finding.fix.startswith(KINDS[text])


def test_a_syntax_error_may_hide_a_deployment() -> None:
    (finding, *_) = check(f"kind: Service\n---\n{vllm_agg_dgd()}x: [\n")
    assert finding.message.startswith("not valid YAML")


def test_a_duplicate_key_whose_first_value_is_lost_is_a_warning_and_the_rest_is_checked() -> None:
    text = vllm_agg_dgd({"worker/max-num-batched-tokens": 100})
    twice = text.replace("metadata:\n", "metadata:\n  finalizers: [x/a]\n  finalizers: [x/b]\n", 1)
    finding = only(twice, "PS009")
    first = next(n for n, line in enumerate(twice.splitlines(), 1) if "[x/a]" in line)
    assert (finding.level, finding.line) == (Level.WARNING, first + 1)
    assert (
        finding.message
        == f"duplicate key `finalizers`: kubectl uses this one and ignores line {first}"
    )
    assert finding.fix.endswith(f"remove `finalizers` on line {first}.")
    assert len(found(twice, "PS124")) == len(found(text, "PS124")) == 1
    assert not found(twice, "PS004")


def trtllm(gpus: int, nodes: int = 1, **config: Any) -> str:
    worker = f"{COMPONENTS}/worker"
    return trtllm_agg_dgd(
        {
            **{f"worker/{key}": value for key, value in config.items()},
            f"{WORKER}/resources/limits/nvidia.com~1gpu": str(gpus),
            **({f"{worker}/multinode": {"nodeCount": nodes}} if nodes > 1 else {}),
        }
    )


@pytest.mark.parametrize(
    ("gpus", "nodes", "config", "fix"),
    [
        (8, 2, {}, "Set tensor_parallel_size to 16, which the 16 GPUs of each replica allow."),
        (8, 1, {}, "Set tensor_parallel_size to 8, which the 8 GPUs of each replica allow."),
        (1, 1, {}, "Set moe_expert_parallel_size to 1."),
        (12, 1, {}, "Set moe_expert_parallel_size to 1."),
        (8, 1, {"moe_tensor_parallel_size": 1}, "Set tensor_parallel_size to 8, which"),
        (8, 1, {"moe_tensor_parallel_size": 2}, "Set moe_expert_parallel_size to 1 and"),
    ],
)
def test_tensor_parallelism_is_raised_where_the_gpus_allow_it(
    gpus: int, nodes: int, config: Mapping[str, Any], fix: str
) -> None:
    sizes = {"tensor_parallel_size": 1, "moe_expert_parallel_size": 8, **config}
    assert only(trtllm(gpus, nodes, **sizes), "PS201").fix.startswith(fix)


def test_a_multi_node_worker_of_tensorrt_llm_with_too_many_gpus_does_not_start() -> None:
    finding = only(trtllm(4, 2, tensor_parallel_size=4), "PS205")
    assert finding.level is Level.ERROR
    assert finding.message == "worker needs TP 4 = 4 GPUs but has 8, and each GPU gets an MPI rank"
    assert "`mpirun -n 8`" in finding.why
    assert "ranks from 4 on" in finding.why
    on_one_node = only(trtllm(8, 1, tensor_parallel_size=4), "PS205")
    assert on_one_node.level is Level.WARNING
    assert on_one_node.message.endswith("the others are unused")


def pinned(selector: Mapping[str, str]) -> str:
    pods = {
        f"{COMPONENTS}/{pool}/podTemplate/spec/nodeSelector": dict(selector)
        for pool in ("decode", "prefill")
    }
    main = {
        f"{pool}/{path}": REMOVE
        for pool in (DECODE, PREFILL)
        for path in ("resources/limits/rdma~1ib", "env/UCX_TLS")
    }
    return vllm_disagg_dgd({**pods, **main})


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ({"instanceType": "g6-gpu-karpenter"}, "g6-gpu-karpenter"),
        ({"karpenter.k8s.aws/instance-family": "g5"}, "g5"),
        ({"karpenter.k8s.aws/instance-category": "g"}, "g"),
        ({"karpenter.sh/nodepool": "gpu-g6e-spot"}, "gpu-g6e-spot"),
        ({"eks.amazonaws.com/nodegroup": "g4dn"}, "g4dn"),
        ({"node.kubernetes.io/instance-type": "g6.48xlarge"}, "g6.48xlarge"),
        ({"node.kubernetes.io/instance-type": "g6.8xlarge"}, ""),
        ({"karpenter.k8s.aws/instance-family": "p5"}, ""),
        ({"karpenter.k8s.aws/instance-category": "p"}, ""),
        ({"karpenter.sh/nodepool": "gpu-b200"}, ""),
        ({"team": "g5"}, ""),
    ],
)
def test_pods_on_nodes_with_little_efa_get_no_advice_to_request_devices(
    selector: dict[str, str], shown: str
) -> None:
    for finding in found(pinned(selector), "PS431"):
        asks = finding.fix == "Request one RDMA device per GPU."
        assert (finding.level is Level.NOTE, asks) == (bool(shown), not shown)
        assert f"the nodes ({shown}) have" in finding.message or not shown
    assert found(pinned(selector), "PS431")


def frontend(image: str, *flags: str) -> str:
    command = {
        f"{FRONTEND}/image": image,
        f"{FRONTEND}/command": ["python3", "-m", "dynamo.frontend"],
        f"{FRONTEND}/args": list(flags),
    }
    return vllm_agg_dgd(command)


@pytest.mark.parametrize(
    ("image", "level", "error"),
    [
        (f"{NVIDIA}/vllm-runtime:my-tag", Level.ERROR, "“Unknown arguments specified”"),
        (f"{NVIDIA}/vllm-runtime:1.6.1", Level.ERROR, "“Unknown arguments specified”"),
        (f"{NVIDIA}/vllm-runtime:0.8.0", Level.ERROR, "an error about unrecognized arguments"),
        ("my-registry/vllm-runtime:my-tag", Level.WARNING, "“Unknown arguments specified”"),
    ],
)
def test_a_flag_that_no_release_has_is_an_error_with_what_the_program_prints(
    image: str, level: Level, error: str
) -> None:
    finding = only(frontend(image, "--router-mode", "kv", "--direct-route"), "PS141")
    assert finding.level is level
    assert error in finding.why
    assert finding.fix.startswith("Remove --direct-route and set --router-mode direct")


@pytest.mark.parametrize(
    ("image", "context", "message"),
    [
        ("vllm-runtime:1.6.1", {"capabilities": {"add": ["IPC_LOCK"]}}, "does not run as root"),
        ("vllm-runtime:1.6.1", {}, "lacks the capability IPC_LOCK"),
        ("vllm-runtime:0.6.1", {"capabilities": {"add": ["IPC_LOCK"]}}, ""),
        ("vllm-runtime:1.6.1", {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}}, ""),
        ("vllm-runtime:1.6.1", {"runAsUser": 0}, "lacks the capability IPC_LOCK"),
        ("vllm-runtime:1.6.1", {"privileged": True}, ""),
    ],
)
def test_locking_memory_needs_the_capability_and_root(
    image: str, context: dict[str, Any], message: str
) -> None:
    changes: dict[str, Any] = {f"{COMPONENTS}/prefill/podTemplate/spec/securityContext": REMOVE}
    changes |= {f"{PREFILL}/image": f"{NVIDIA}/{image}", f"{PREFILL}/securityContext": context}
    findings = [f for f in found(vllm_disagg_dgd(changes), "PS433") if f.component == "prefill"]
    assert [f.level for f in findings] == ([Level.NOTE] if message else [])
    for finding in findings:
        assert message in finding.message
        assert "no limit of locked memory" in finding.fix
        assert "runAsUser: 0" in finding.yaml


@pytest.mark.parametrize(
    ("tag", "flag"), [("0.8.0", "--is-prefill-worker"), ("1.6.1", "--disaggregation-mode")]
)
def test_the_missing_mode_has_the_name_that_the_version_has(tag: str, flag: str) -> None:
    changes = {
        f"{PREFILL}/image": f"{NVIDIA}/vllm-runtime:{tag}",
        f"{PREFILL}/command": ["python3", "-m", "dynamo.vllm"],
        f"{PREFILL}/args": ["--model", "a/b"],
    }
    finding = only(vllm_disagg_dgd(changes), "PS767")
    assert finding.message.startswith(f"prefill has type prefill but no {flag}, so it")
    assert finding.fix.startswith(f"Add {flag}")


SIDECAR = {"name": "logs", "image": "my-registry/logs:my-tag"}


@pytest.mark.parametrize(
    ("image", "message", "fix"),
    [
        (
            "my-registry/vllm-runtime:my-tag",
            "my-registry/…:my-tag",
            "the registry and the tag with those",
        ),
        (f"{NVIDIA}/vllm-runtime:my-tag", "my-tag", "the tag with that"),
        ("your-registry/vllm-runtime:1.6.1", "your-registry", "the registry with that"),
    ],
)
def test_the_placeholders_of_an_image_are_one_finding(image: str, message: str, fix: str) -> None:
    finding = only(vllm_agg_dgd({f"{WORKER}/image": image}), "PS909")
    assert (finding.level, finding.component) == (Level.WARNING, "worker")
    assert finding.message == f"{message} in 1 place must be replaced"
    assert finding.fix == f"Replace {fix} of your image."


def test_placeholders_are_counted_in_every_container() -> None:
    changes = {
        f"{WORKER}/image": "my-registry/vllm-runtime:my-tag",
        f"{COMPONENTS}/worker/podTemplate/spec/containers/logs": SIDECAR,
        f"{COMPONENTS}/worker/podTemplate/spec/initContainers": [SIDECAR],
    }
    finding = only(vllm_agg_dgd(changes), "PS909")
    assert finding.message == "my-registry/…:my-tag in 3 places must be replaced"


def test_a_registry_to_replace_does_not_hide_a_tag_without_a_version() -> None:
    text = vllm_agg_dgd({f"{WORKER}/image": "my-registry/vllm-runtime:custom"})
    assert only(text, "PS901").component == "worker"
    assert only(text, "PS909").why.startswith("Kubernetes finds no such image.")


def test_security_without_root_is_a_choice_of_the_graph() -> None:
    graphs = {
        security: found(vllm_disagg({"cluster/security": security}), "PS433")
        for security in ("least", "nonroot", "image")
    }
    assert [bool(findings) for findings in graphs.values()] == [False, False, True]
    for finding in graphs["image"]:
        assert finding.yaml == "cluster:\n  security: least"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "has no kv-events-config and publishes no KV events"),
        ({"enable_kv_cache_events": False}, "kv-events-config of worker publishes no events"),
    ],
)
def test_the_message_about_kv_events_says_whether_they_are_configured(
    config: dict[str, Any], message: str
) -> None:
    args = ["--model", "a/b", *(["--kv-events-config", json.dumps(config)] if config else [])]
    command = {f"{WORKER}/command": ["python3", "-m", "dynamo.vllm"], f"{WORKER}/args": args}
    finding = only(manifest({**VLLM_AGG, "router": {"mode": "kv"}}, command), "PS501")
    assert message in finding.message


@pytest.mark.parametrize(
    ("image", "level"),
    [(f"{NVIDIA}/vllm-runtime:my-tag", Level.ERROR), ("my-registry/vllm-runtime:my-tag", None)],
)
def test_a_module_that_no_release_has_is_an_error_whatever_the_tag(
    image: str, level: Level | None
) -> None:
    command = {f"{FRONTEND}/image": image, f"{FRONTEND}/args": []}
    command |= {f"{FRONTEND}/command": ["python3", "-m", "dynamo.frontend.none"]}
    finding = only(vllm_agg_dgd(command), "PS769")
    assert finding.level is (level or Level.WARNING)


ALPHA = """apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: g}
spec:
  services:
    Worker:
      componentType: worker
      frontendSidecar:
        image: my-registry/vllm-runtime:my-tag
        args: [-m, dynamo.frontend]
      extraPodSpec:
        mainContainer:
          image: my-registry/vllm-runtime:my-tag
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-0.6B]
"""


def test_the_image_of_a_frontend_sidecar_is_counted() -> None:
    finding = only(ALPHA, "PS909")
    assert finding.message == "my-registry/…:my-tag in 2 places must be replaced"
    assert finding.line == 9


def test_an_image_for_other_hardware_must_be_built() -> None:
    image = {f"{WORKER}/image": f"{NVIDIA}/vllm-runtime-xpu:my-tag"}
    finding = only(vllm_agg_dgd(image), "PS783")
    assert finding.message.startswith("NVIDIA has published no image vllm-runtime-xpu")
    assert finding.fix.startswith("Build the image")
    later = {f"{WORKER}/image": f"{NVIDIA}/dynamo-planner:my-tag"}
    assert found(vllm_agg_dgd(later), "PS783") == []


def test_a_more_precise_instruction_takes_the_place_of_the_same_one() -> None:
    fix = Fix(text="Set --x to 1. Then restart.")
    assert (
        fix.and_also("Set `--x 1` in the script.").text
        == "Set `--x 1` in the script. Then restart."
    )
    assert fix.and_also("Remove `--y`.").text == "Set --x to 1. Then restart. Remove `--y`."


def test_the_fix_of_a_flag_says_remove_once() -> None:
    args = ["--model-path", "a/b", "--skip-tokenizer-init"]
    command = {f"{WORKER}/command": ["python3", "-m", "dynamo.sglang"], f"{WORKER}/args": args}
    assert only(sglang_agg_dgd(command), "PS611").fix == "Remove `--skip-tokenizer-init`."


def test_a_pod_with_more_gpus_than_a_node_stays_pending() -> None:
    finding = only(trtllm(64, 1, tensor_parallel_size=4), "PS205")
    assert finding.level is Level.ERROR
    assert finding.message == "worker needs TP 4 = 4 GPUs but has 64, more than a node has"
    assert "Pending" in finding.why
    on_nodes = only(vllm_with_gpus("16"), "PS205")
    assert on_nodes.level is Level.WARNING, "some nodes have 16"


def vllm_with_gpus(gpus: str) -> str:
    limits = {f"{WORKER}/resources/limits/nvidia.com~1gpu": gpus}
    return vllm_agg_dgd(limits | {f"{WORKER}/args": ["--tensor-parallel-size", "4"]})


def test_every_placeholder_of_an_image_is_named() -> None:
    finding = only(vllm_agg_dgd({f"{WORKER}/image": "<REGISTRY>/vllm:<TAG>"}), "PS909")
    assert finding.message.startswith("<REGISTRY>, <TAG> in ")
    labels = {f"{COMPONENTS}/worker/podTemplate/metadata/labels": {"pool": "<A>-<B>"}}
    assert "<A>, <B>" in only(vllm_agg_dgd(labels), "PS909").message


@pytest.mark.parametrize(("operator", "level"), [("1.1", Level.ERROR), ("1.6", Level.WARNING)])
def test_a_mount_without_a_volume_is_refused_before_the_operator_added_claims(
    operator: str, level: Level
) -> None:
    mount = {f"{WORKER}/volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
    findings = check(vllm_agg_dgd(mount), operator=operator)
    (finding,) = [finding for finding in findings if finding.rule == "PS726"]
    assert finding.level is level
    assert ("API server rejects" in finding.why) is (level is Level.ERROR)


def test_the_flag_of_a_prefill_worker_before_1_0_is_named() -> None:
    images = {f"{one}/image": f"{NVIDIA}/vllm-runtime:0.8.1" for one in (FRONTEND, DECODE, PREFILL)}
    fixes = [
        one.fix
        for one in found(vllm_disagg_dgd(images), "PS141")
        if "--disaggregation-mode" in one.message
    ]
    assert [fix.split(",")[0] for fix in fixes] == [
        "Use --is-prefill-worker instead",
        "Remove --disaggregation-mode",  # a worker without the other flag is a decode worker
    ]


def test_settings_in_a_file_of_an_unknown_flag_may_contain_what_is_missing() -> None:
    arguments = ["--model", "a/b", "--disaggregation-mode", "prefill"]
    base = trtllm_disagg_dgd({f"{PREFILL}/args": arguments})
    assert found(base, "PS401")
    unknown = trtllm_disagg_dgd({f"{PREFILL}/args": [*arguments, "--config-path", "/a.yaml"]})
    assert not [finding for finding in found(unknown, "PS401") if "prefill" in finding.place]


def ucx(decode: str, prefill: str) -> str:
    variables = {"decode": decode, "prefill": prefill}
    return vllm_disagg_dgd(
        {
            f"{COMPONENTS}/{pool}/{MAIN}/env/UCX_TLS": {"name": "UCX_TLS", "value": value}
            for pool, value in variables.items()
        }
    )


def test_a_pool_on_intel_xpus_needs_other_transports_than_cuda() -> None:
    mixed = ucx("ib,rc,cuda_copy", "ib,rc,ze_copy")
    assert not found(mixed, "PS434")
    assert not found(mixed, "PS437")
    without = ucx("ib,rc,cuda_copy", "ib,rc")
    assert found(without, "PS434")
    assert found(without, "PS437")


def test_devices_are_not_counted_if_a_variable_selects_them() -> None:
    limits = {f"{pool}/resources/limits": GPUS_AND_NIC for pool in (DECODE, PREFILL)}
    assert found(vllm_disagg_dgd(limits), "PS432")
    selected = {f"{pool}/env/UCX_NET_DEVICES": ONE_NIC for pool in (DECODE, PREFILL)}
    assert not found(vllm_disagg_dgd(limits | selected), "PS432")


GPUS_AND_NIC = {"nvidia.com/gpu": "4", "rdma/ib": "2"}
ONE_NIC = {"name": "UCX_NET_DEVICES", "value": "mlx5_0:1"}


def test_vllm_on_several_nodes_that_fits_one_runs_on_each() -> None:
    arguments = {f"{WORKER}/args": ["--model", "a/b", "--tensor-parallel-size", "4"]}
    limits = {f"{WORKER}/resources/limits/nvidia.com~1gpu": "4"}
    nodes = {f"{COMPONENTS}/worker/multinode": {"nodeCount": 2}}
    assert not found(vllm_agg_dgd(arguments | limits | nodes), "PS205")
    larger = {f"{WORKER}/args": ["--model", "a/b", "--tensor-parallel-size", "6"]}
    assert found(vllm_agg_dgd(larger | limits | nodes), "PS205")


def test_the_threshold_of_a_startup_probe_is_named() -> None:
    (case, *_) = cases()["PS707"]
    assert all(
        re.match(r"Raise failureThreshold to \d+", finding.fix)
        for finding in found(case.bad, "PS707")
    )
