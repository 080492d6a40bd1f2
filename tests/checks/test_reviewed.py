"""Levels, reasons and fixes that readers of other people's manifests called wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.checks.finding import Level
from penstock.models.known import has_nvfp4, is_nvfp4
from tests.checks.support import (
    REMOVE,
    SGLANG_AGG,
    TRTLLM_AGG,
    VLLM_AGG,
    found,
    graph,
    only,
    trtllm_agg,
    trtllm_agg_dgd,
    trtllm_disagg,
    vllm_agg,
    vllm_agg_dgd,
    vllm_disagg,
    vllm_disagg_dgd,
)

COMPONENTS = "dgd/spec/components"
MAIN = "podTemplate/spec/containers/main"
WORKER, DECODE, PREFILL = (
    f"{COMPONENTS}/{name}/{MAIN}" for name in ("worker", "decode", "prefill")
)
NVIDIA = "nvcr.io/nvidia/ai-dynamo"
NO_RDMA = {f"{pool}/resources/limits/rdma~1ib": REMOVE for pool in (DECODE, PREFILL)}
POOLS, NAMED = ("decode", "prefill"), (DECODE, PREFILL)
TYPE = "node.kubernetes.io~1instance-type"


def vllm(image: str, changes: Mapping[str, Any]) -> str:
    pools = {f"{pool}/image": f"{NVIDIA}/vllm-runtime:{image}" for pool in (DECODE, PREFILL)}
    return vllm_disagg_dgd({**pools, **changes})


def prefill_args(*args: str) -> dict[str, Any]:
    return {
        f"{PREFILL}/command": ["python3", "-m", "dynamo.vllm"],
        f"{PREFILL}/args": ["--disaggregation-mode", "prefill", "--model", "a/b", *args],
    }


@pytest.mark.parametrize(
    ("script", "reason", "fix"),
    [
        (
            "python3",
            "it exits at once",
            "Replace `sh -c` with python3 in command, and remove python3 from args.",
        ),
        ("python3 -m dynamo.vllm", "uses its defaults", "Move the arguments into the script."),
        ("--seed", "nothing names a program", "Replace `sh -c` with the program"),
    ],
)
def test_the_reason_states_what_runs_without_the_lost_arguments(
    script: str, reason: str, fix: str
) -> None:
    words = {f"{WORKER}/command": ["sh", "-c"], f"{WORKER}/args": [script, "--model", "a/b"]}
    finding = only(vllm_agg_dgd(words), "PS771")
    assert reason in finding.why
    assert finding.fix.startswith(fix)


def test_a_release_candidate_may_lack_the_flags_of_its_release() -> None:
    args = {f"{WORKER}/args": ["--model-path", "openai/gpt-oss-120b"]}

    def with_image(tag: str) -> str:
        image = {f"{WORKER}/image": f"{NVIDIA}/tensorrtllm-runtime:{tag}"}
        return trtllm_agg_dgd({**args, **image})

    assert len(found(with_image("0.5.1"), "PS602")) == 2
    assert found(with_image("0.5.1-rc0.pre3"), "PS602") == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["nixl"], {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}),
        (["lmcache"], {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}),
    ],
)
def test_the_successor_of_the_connector_flag_has_the_role_of_the_pool(
    names: list[str], expected: Mapping[str, str]
) -> None:
    text = vllm("1.6.1", prefill_args("--connector", *names))
    finding = only(text, "PS144")
    assert finding.replaces == "--connector"
    assert json.dumps(expected) in " ".join(finding.yaml.split())
    assert not [finding for finding in found(text, "PS401") if finding.component == "prefill"]


def test_several_connectors_become_one() -> None:
    finding = only(vllm("1.6.1", prefill_args("--connector", "kvbm", "nixl")), "PS144")
    assert "PdConnector" in finding.yaml
    assert "DynamoConnector" in finding.yaml


def test_without_a_connector_the_flag_is_only_removed() -> None:
    finding = only(vllm_disagg({"decode/args": ["--connector", "none"]}), "PS144")
    assert finding.fix == "Remove --connector; without it there is no connector."
    assert "even for none" in finding.why


@pytest.mark.parametrize(
    ("name", "level", "fix"),
    [
        ("VLLM_RPC_TIMEOUT", Level.NOTE, "Remove VLLM_RPC_TIMEOUT."),
        ("VLLM_ROCM_USE_AITER_PAGED_ATTN", Level.NOTE, "Remove"),
        ("VLLM_NVFP4_GEMM_BACKEND", Level.WARNING, "Use --linear-backend instead of"),
    ],
)
def test_a_removed_variable_is_a_note_unless_it_selected_something(
    name: str, level: Level, fix: str
) -> None:
    finding = only(vllm_agg({f"worker/env/{name}": "1"}), "PS177")
    assert (finding.level, finding.fix.startswith(fix)) == (level, True)


@pytest.mark.parametrize(
    ("types", "level"),
    [
        (["g6e.4xlarge", "ml.g6e.4xlarge"], Level.NOTE),
        (["g6e.4xlarge", "g6e.8xlarge"], Level.WARNING),
        (["p5.48xlarge"], Level.WARNING),
    ],
)
def test_nodes_without_efa_have_only_tcp(types: list[str], level: Level) -> None:
    term = {"key": TYPE.replace("~1", "/"), "operator": "In", "values": types}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pods = {f"{COMPONENTS}/{pool}/podTemplate/spec/affinity": affinity for pool in POOLS}
    no_tls = {f"{pool}/env/UCX_TLS": REMOVE for pool in (DECODE, PREFILL)}
    levels = {
        finding.level for finding in found(vllm("1.6.1", {**NO_RDMA, **no_tls, **pods}), "PS431")
    }
    assert levels == {level}


def test_the_fix_for_a_graph_without_a_network_is_not_refused_by_the_chart() -> None:
    none = {"kv_transfer": {}, "hardware": {"gpu": "b200", "fabric": "none"}}
    findings = found(vllm_disagg(none), "PS431")
    assert len(findings) == 2
    for finding in findings:
        assert (finding.level, finding.yaml) == (Level.NOTE, "")
        assert "hardware.fabric" in finding.fix


@pytest.mark.parametrize(
    ("base", "given", "fix"),
    [
        (VLLM_AGG, "--model-path", "Replace --model-path with --model."),
        (VLLM_AGG, "--tp", "Replace --tp with --tensor-parallel-size."),
        (VLLM_AGG, "--mem-fraction-static", "Use --gpu-memory-utilization and adapt the value"),
        (SGLANG_AGG, "--max-model-len", "Replace --max-model-len with --context-length."),
        (TRTLLM_AGG, "--max-model-len", "Replace --max-model-len with --max-seq-len."),
    ],
)
def test_a_flag_of_another_engine_is_replaced(
    base: Mapping[str, Any], given: str, fix: str
) -> None:
    finding = only(graph(base, {"worker/args": [given, "1"]}), "PS141")
    assert finding.fix.startswith(fix)
    assert finding.replaces == given


def test_a_decode_pool_of_vllm_serves_alone_until_the_frontend_waits_for_prefill() -> None:
    def alone(tag: str) -> list[Level]:
        mode = {f"{DECODE}/env/MODE": {"name": "DYN_VLLM_DISAGGREGATION_MODE", "value": "decode"}}
        text = vllm(tag, {f"{COMPONENTS}/prefill": REMOVE, **mode})
        return [finding.level for finding in found(text, "PS766")]

    assert [alone("1.2.1"), alone("1.3.1")] == [[], [Level.ERROR]]


def test_tensorrt_llm_refuses_what_is_above_the_models_limit() -> None:
    finding = only(trtllm_agg({"model/context_length": 262144}), "PS120")
    assert finding.level is Level.WARNING
    assert "lowers the limit to 131,072 tokens" in finding.why
    assert only(vllm_agg({"model/context_length": 262144}), "PS120").level is Level.ERROR


def test_a_tray_of_a_rack_has_four_gpus() -> None:
    rack = {"hardware": {"gpu": "gb200", "gpus_per_node": 8, "fabric": "mnnvl"}}
    finding = only(trtllm_disagg({**rack, "kv_transfer": {}}), "PS206")
    assert (finding.level, finding.yaml) == (Level.WARNING, "hardware:\n  gpus_per_node: 4")
    both = found(trtllm_agg({**rack, "worker/gpus": 8}), "PS206")
    assert sorted(finding.level for finding in both) == [Level.ERROR, Level.WARNING]


def test_a_worker_without_a_mode_decodes_where_the_old_prefill_flag_exists() -> None:
    def halves(*mode: str) -> str:
        words = ["python3", "-m", "dynamo.vllm", "--model", "a/b"]
        commands = {f"{DECODE}/command": words, f"{PREFILL}/command": [*words, *mode]}
        no_args = {f"{pool}/args": [] for pool in (DECODE, PREFILL)}
        types = {f"{COMPONENTS}/{pool}/type": "worker" for pool in POOLS}
        image = {f"{pool}/image": "registry.example/vllm-runtime:latest" for pool in NAMED}
        return vllm_disagg_dgd({**commands, **no_args, **types, **image})

    assert found(halves("--is-prefill-worker"), "PS766") == []
    assert len(found(halves("--disaggregation-mode", "prefill"), "PS766")) == 1


def test_a_frontend_that_first_clears_the_namespace_is_a_frontend() -> None:
    script = "python3 -m dynamo.sglang.utils.clear_namespace && python3 -m dynamo.frontend"
    main = f"{COMPONENTS}/frontend/{MAIN}"
    start = {f"{main}/command": ["sh", "-c"], f"{main}/args": [script]}
    text = vllm_agg_dgd({**start, f"{COMPONENTS}/frontend/type": "main"})
    assert found(text, "PS770") == []
    assert found(text, "PS765") == []


@pytest.mark.parametrize(
    ("tag", "flag"), [("0.9.1", "--is-prefill-worker"), ("1.6.1", "--disaggregation-mode")]
)
def test_the_flag_for_a_prefill_worker_is_one_that_the_image_has(tag: str, flag: str) -> None:
    words = ["python3", "-m", "dynamo.vllm", "--model", "a/b"]
    command = {f"{PREFILL}/command": words, f"{PREFILL}/args": []}
    (finding,) = [
        finding for finding in found(vllm(tag, command), "PS767") if finding.component == "prefill"
    ]
    assert finding.fix.startswith(f"Add {flag}")
    assert finding.why.startswith("The worker serves whole requests")


def test_a_renamed_pass_of_the_compiler_has_its_new_name() -> None:
    passes = {"worker/config/compilation-config": {"pass_config": {"enable_noop": True}}}
    assert only(vllm_agg(passes), "PS155").fix == "Use eliminate_noops."


def test_an_endpoint_picker_uses_the_kv_events() -> None:
    main = f"{COMPONENTS}/frontend/{MAIN}"
    direct = {f"{main}/command": ["python3", "-m", "dynamo.frontend", "--router-mode", "direct"]}
    text = vllm_agg_dgd({**direct, f"{main}/args": []})
    assert len(found(text, "PS503")) == 1
    pod = {"containers": [{"name": "main", "image": f"{NVIDIA}/dynamo-frontend:1.6.1"}]}
    picker = {
        f"{COMPONENTS}/picker": {"name": "picker", "type": "epp", "podTemplate": {"spec": pod}}
    }
    assert found(vllm_agg_dgd({**direct, f"{main}/args": [], **picker}), "PS503") == []


def test_a_tag_before_a_digest_is_a_version() -> None:
    image = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1@sha256:" + "0" * 64
    assert found(vllm_agg_dgd({f"{WORKER}/image": image}), "PS901") == []
    untagged = image.replace(":1.6.1", "")
    assert found(vllm_agg_dgd({f"{WORKER}/image": untagged}), "PS901")


def test_the_port_with_the_number_is_renamed() -> None:
    ports = [{"name": "metrics", "containerPort": 9090}]
    finding = only(vllm_agg_dgd({f"{WORKER}/ports": ports}), "PS727")
    assert finding.fix == "Rename the port metrics (9090) to system."


def test_a_module_is_suggested_only_for_a_typing_error() -> None:
    command = {f"{WORKER}/command": ["python3", "-m", "dynamo.processor"]}
    finding = only(vllm_agg_dgd(command), "PS769")
    assert finding.fix.startswith("Remove the component")


@pytest.mark.parametrize(
    ("tls", "level", "message"),
    [
        ("rc,cuda_copy,cuda_ipc", Level.WARNING, "and UCX_TLS excludes tcp"),
        ("tcp,cuda_copy", Level.NOTE, "so KV transfers use TCP"),
        ("all", Level.WARNING, "so KV transfers use TCP"),
    ],
)
def test_without_a_device_ucx_uses_what_it_may(tls: str, level: Level, message: str) -> None:
    env = {f"{pool}/env/UCX_TLS": {"name": "UCX_TLS", "value": tls} for pool in (DECODE, PREFILL)}
    of_all = found(vllm("1.6.1", {**NO_RDMA, **env}), "PS431")
    assert {(finding.level, message in finding.message) for finding in of_all} == {(level, True)}


def test_without_a_connector_no_kv_is_transferred_since_1_0() -> None:
    no_connector = {f"{DECODE}/args": ["--model", "a/b", "--disaggregation-mode", "decode"]}
    command = {f"{DECODE}/command": ["python3", "-m", "dynamo.vllm"]}
    assert found(vllm("1.6.1", {**NO_RDMA, **command, **no_connector}), "PS431") == []
    assert found(vllm("0.9.0", {**NO_RDMA, **command, **no_connector}), "PS431")
    no_connector[f"{DECODE}/args"] += ["--kv-transfer-config.kv_connector", "NixlConnector"]
    assert found(vllm("1.6.1", {**NO_RDMA, **command, **no_connector}), "PS431")


def test_the_fix_of_a_graph_without_fabric_removes_no_field_that_is_unset() -> None:
    text = trtllm_disagg({"hardware/fabric": "none", "kv_transfer/transport": REMOVE})
    assert {finding.fix for finding in found(text, "PS431")} == {
        "If the nodes have an RDMA network, name it in hardware.fabric, and leave "
        "kv_transfer.transport unset. Otherwise consider aggregated workers."
    }


QWEN = ["--model", "Qwen/Qwen3.6-27B"]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "Reasoning and tool calls appear in the response text."),
        (["--dyn-tool-call-parser", "qwen3_coder"], "Reasoning appears in the response text."),
        (["--dyn-reasoning-parser", "qwen3"], "Tool calls appear in the response text."),
    ],
)
def test_a_missing_parser_is_blamed_for_what_it_reads(args: list[str], why: str) -> None:
    text = vllm_agg_dgd({f"{WORKER}/args": ["-m", "dynamo.vllm", *QWEN, *args]})
    assert only(text, "PS602").why == why


def test_a_variable_that_the_other_pool_lacks_is_removed() -> None:
    pools = {"kv_transfer/transport": "auto", "prefill/env/UCX_TLS": "rc"}
    finding = only(vllm_disagg(pools), "PS437")
    assert finding.fix.startswith("Remove UCX_TLS from prefill")
    assert "None" not in finding.fix + finding.message


@pytest.mark.parametrize(
    ("image", "has_moonep"), [("1.1.1", False), ("1.5.1", False), ("1.6.1", True), ("1.7.0", True)]
)
def test_the_choices_of_a_flag_are_those_of_the_image(image: str, has_moonep: bool) -> None:
    finding = only(vllm(image, prefill_args("--all2all-backend", "pplxx")), "PS143")
    assert ("moonep" in finding.message) is has_moonep
    assert ("mori," in finding.message) is (image == "1.1.1")


@pytest.mark.parametrize(
    ("model", "is_all", "has_some"),
    [
        ("nvidia/Qwen3-235B-A22B-NVFP4", True, True),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", False, True),  # only its experts
        ("/cache/models--acme--Model-FP4/snapshots/1", True, True),
        ("Qwen/Qwen3-235B-A22B", False, False),
    ],
)
def test_nvfp4_weights_are_all_or_only_those_of_experts(
    model: str, is_all: bool, has_some: bool
) -> None:
    assert (is_nvfp4(model), has_nvfp4(model)) == (is_all, has_some)
