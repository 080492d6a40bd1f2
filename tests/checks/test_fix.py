"""Fixes are written as flags, keys or variables that have an effect in the checked file."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from penstock.checks.finding import Finding, Level
from penstock.checks.registry import by_id
from tests.checks.support import (
    REMOVE,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    check,
    graph,
    sglang_agg,
    trtllm_agg,
    trtllm_agg_dgd,
    trtllm_disagg,
    vllm_agg,
    vllm_agg_dgd,
)

WORKER = "dgd/spec/components/worker/podTemplate/spec/containers/main"
FRONTEND = "dgd/spec/components/frontend/podTemplate/spec/containers/main"
VLLM = ["python3", "-m", "dynamo.vllm", "--model", "openai/gpt-oss-120b"]


def found(text: str, rule: str, gpu: str = "b200") -> Finding:
    (finding,) = [f for f in check(text, gpu=gpu) if f.rule == rule]
    return finding


def test_a_frontend_without_a_command_gets_a_variable() -> None:
    bare = {f"{FRONTEND}/command": REMOVE, f"{FRONTEND}/args": REMOVE, f"{FRONTEND}/env": []}
    text = vllm_agg_dgd(bare)
    fix = found(text, "PS511").yaml
    assert "- name: DYN_MIGRATION_LIMIT" in fix
    assert "args" not in fix


def test_a_flag_in_a_script_is_part_of_the_text() -> None:
    script = " ".join([*VLLM, "--gpu-memory-utilization", "0.97"])
    text = vllm_agg_dgd({f"{WORKER}/command": ["bash", "-c"], f"{WORKER}/args": [f"exec {script}"]})
    finding = found(text, "PS306")
    assert finding.yaml == ""
    assert finding.fix.endswith(" Set `--gpu-memory-utilization 0.9` in the launch script.")


def test_a_switch_is_fixed_in_the_spelling_of_the_file() -> None:
    plain = vllm_agg({"engine/config/no-enable-prefix-caching": True})
    fix: Any = yaml.safe_load(found(plain, "PS502").yaml)
    assert fix == {"worker": {"config": {"no-enable-prefix-caching": False}}}
    pasted = {"worker/config/no-enable-prefix-caching": False}
    fixed = vllm_agg({"engine/config/no-enable-prefix-caching": True, **pasted})
    assert not [f for f in check(fixed) if f.rule == "PS502"]


def test_the_text_names_the_key_of_the_graph() -> None:
    parser = found(trtllm_agg({"model/tool_call_parser": REMOVE}), "PS602")
    assert parser.fix == "Set model.tool_call_parser: harmony."
    assert yaml.safe_load(parser.yaml) == {"model": {"tool_call_parser": "harmony"}}
    vocabulary = found(trtllm_agg(), "PS606")
    assert (
        vocabulary.fix == "Put the file on a volume and set model.harmony_vocabulary to its folder."
    )
    assert "TIKTOKEN_ENCODINGS_BASE" in found(trtllm_agg_dgd(), "PS606").fix


def test_a_null_in_a_graph_omits_the_key_and_in_a_manifest_the_key_is_removed() -> None:
    key = "num-gpu-blocks-override"
    text = vllm_agg({f"worker/config/{key}": 511})
    assert yaml.safe_load(found(text, "PS302").yaml) == {"worker": {"config": {key: None}}}
    fixed = vllm_agg({f"worker/config/{key}": None})
    assert not [f for f in check(fixed) if f.rule in ("PS302", "PS143")]
    finding = found(vllm_agg_dgd({f"worker/{key}": 511}), "PS302")
    assert (finding.yaml, finding.fix.endswith(f" Remove `{key}`.")) == ("", True)


def test_a_null_in_a_manifest_is_the_text_none() -> None:
    refused = vllm_agg_dgd({"worker/kv-cache-dtype": None})
    assert "is null, which becomes the string None" in found(refused, "PS143").message
    taken = vllm_agg_dgd({"worker/num-gpu-blocks-override": None})
    assert not [f for f in check(taken) if f.rule == "PS143"]


def test_a_value_of_all_pools_is_fixed_where_it_is_set() -> None:
    text = vllm_agg({"engine/args": ["--kv-cache-dtype", "fp9"]})
    finding = found(text, "PS143")
    assert finding.replaces == "--kv-cache-dtype"
    assert finding.fix.endswith(" Replace the existing `--kv-cache-dtype`.")
    assert set(yaml.safe_load(finding.yaml)) == {"engine"}


def test_pools_do_not_agree_on_what_a_kernel_lacks() -> None:
    text = trtllm_disagg({"decode/config/kv_cache_config/dtype": "auto"})
    assert "dtype: auto" in found(text, "PS414", gpu="h100").yaml


@pytest.mark.parametrize("lacking", ["prefill", "decode"])
def test_pools_agree_on_transports_that_reach_gpus(lacking: str) -> None:
    text = trtllm_disagg({f"{lacking}/env/UCX_TLS": "rc_x,rc"})
    assert "cuda_copy" in found(text, "PS437").yaml


@pytest.mark.parametrize("rule", ["PS110", "PS111"])
def test_graph_sizes_are_fixed_for_both_rules(rule: str) -> None:
    largest = 100 if rule == "PS110" else 128
    sizes = {"batch_sizes": [8, 128], "max_batch_size": largest}
    text = trtllm_agg({"worker/config/cuda_graph_config": sizes})
    assert len([f for f in check(text) if f.rule in ("PS110", "PS111")]) == 1
    fix: Any = yaml.safe_load(found(text, rule).yaml)
    fixed = {"batch_sizes": [8, 64], "max_batch_size": 64}
    assert fix["worker"]["config"]["cuda_graph_config"] == fixed


def test_a_key_that_an_older_image_has_is_an_error_only_for_newer_ones() -> None:
    text = vllm_agg({"worker/config/swap-space": 2})
    image = {"engine/image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.0.2"}
    older = vllm_agg({"worker/config/swap-space": 2, **image})
    assert found(text, "PS144").level is Level.ERROR
    assert not {f.rule for f in check(older)} & {"PS142", "PS144"}


def test_a_removed_key_is_named_with_its_replacement() -> None:
    gone = {"worker/config/attention-config": {"use_fp4_indexer_cache": True}}
    assert "indexer_kv_dtype: mxfp4" in found(vllm_agg(gone), "PS169").fix


def test_a_key_is_fixed_where_it_is_set() -> None:
    """The finding is at the context length; the memory fraction, which fixes it, is a flag."""
    flag = ["--gpu-memory-utilization", "0.21"]
    text = vllm_agg({"worker/args": flag, "model/context_length": 131072})
    finding = found(text, "PS302")
    assert yaml.safe_load(finding.yaml)["worker"]["args"][0] == flag[0]
    assert finding.fix.endswith(" Replace the existing `--gpu-memory-utilization`.")


def test_a_key_is_fixed_by_the_name_in_the_file() -> None:
    config = {"moe-runner-backend": "triton_kernel", "expert-parallel-size": 2}
    text = sglang_agg({f"worker/config/{key}": value for key, value in config.items()})
    fix: Any = yaml.safe_load(found(text, "PS223").yaml)
    assert fix == {"worker": {"config": {"expert-parallel-size": 1}}}


def test_the_fix_of_an_override_is_text() -> None:
    part = ["--trtllm.kv_cache_config.free_gpu_memory_fraction", "0.99"]
    finding = found(trtllm_agg({"worker/args": part}), "PS306")
    assert (finding.yaml, part[0] in finding.fix) == ("", True)


@pytest.mark.parametrize(
    ("base", "pool", "variables"),
    [
        (TRTLLM_AGG, "worker", {"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"}),
        (
            TRTLLM_DISAGG,
            "decode",
            {"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE", "UCX_CUDA_IPC_ENABLE_MNNVL"},
        ),
    ],
)
@pytest.mark.parametrize("has_claim", [True, False])
def test_the_text_of_multi_node_nvlink_names_what_the_fix_sets(
    base: Any, pool: str, variables: set[str], has_claim: bool
) -> None:
    claim = {f"{pool}/pod/resourceClaims": [{"name": "c", "resourceClaimTemplateName": "c"}]}
    rack = {"hardware": {"gpu": "gb200", "gpus_per_node": 4}, f"{pool}/nodes": 2}
    finding = found(graph(base, rack | (claim if has_claim else {})), "PS438", gpu="gb200")
    fix = yaml.safe_load(finding.yaml)[pool]
    assert set(fix["env"]) == set(re.findall(r"[A-Z]+_[A-Z_]+", finding.fix)) == variables
    assert ("pod" in fix) == ("claim a ComputeDomain channel" in finding.fix) == (not has_claim)
    condition = "in a disaggregated deployment also UCX_CUDA_IPC_ENABLE_MNNVL"
    assert condition in by_id("PS438").remedy
