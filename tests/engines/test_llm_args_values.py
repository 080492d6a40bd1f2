"""Values of TensorRT-LLM's engine file that 1.3.0rc29 accepts, and values that it rejects."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engines.llm_args.validate import validate

SPECULATION = {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "m"}
SUFFIX = {"decoding_type": "SA", "max_draft_len": 3}


@pytest.mark.parametrize(
    "values",
    [
        {"enable_tokenization_cache": True, "enable_return_routed_experts": True},
        {"cache_transceiver_config": {"agent_bounce_params": {"a": "b"}}},
        {"moe_config": {"backend": "CUTEDSL_FC12"}},
        {"attn_backend": "flashinfer"},
        {"env_overrides": {"X": 1, "Y": True}},
        {"hf_revision": "main"},
        {"kv_cache_config": {"max_attention_window": [128, -1]}},
        {"load_format": "GMS"},
        {"load_format": 1},
        {"kv_cache_config": {"dtype": "FP8", "pool_ratio": [0.5, 0.5]}},
        {"kv_cache_config": {"dtype": "bfloat16"}},
        {"multimodal_config": None, "cuda_graph_config": None},
        {"cuda_graph_config": {"num_tokens": [1]}},
        {"cuda_graph_config": {"mode": "encode", "seq_lens": [1]}},
        {"moe_config": {"load_balancer": "/balancer.yaml"}},
        {"moe_config": {"load_balancer": {"initial_global_assignments": {0: [1, 2]}}}},
        {"speculative_config": {**SPECULATION, "sa_config": {"threshold": 1}}},
        {"speculative_config": {**SUFFIX, "enable_global_pool": True, "global_pool_size": 9}},
    ],
)
def test_a_value_that_the_release_accepts_is_accepted(values: dict[str, Any]) -> None:
    assert validate(values) == ()


@pytest.mark.parametrize(
    ("values", "at", "fix"),
    [
        (
            {"kv_cache_config": {"kv_pool_rebalance_check_interval": 3}},
            "kv_cache_config.kv_pool_rebalance_check_interval",
            "Remove it.",
        ),
        ({"speculative_config": {"max_draft_len": 3}}, "speculative_config", "decoding_type"),
        ({"load_format": "safetensors"}, "load_format", "Did you mean auto?"),
        ({"load_format": True}, "load_format", "Use one of auto, dummy"),
        ({"kv_cache_config": {"dtype": "fp8_e4m3"}}, "kv_cache_config.dtype", "Did you mean fp8?"),
        ({"attention_dp_config": None}, "attention_dp_config", "Remove attention_dp_config"),
        (
            {"kv_cache_config": {"block_reuse_config": None}},
            "kv_cache_config.block_reuse_config",
            "Remove kv_cache_config.b",
        ),
        ({"speculative_config": {"decoding_type": "PARD"}}, "speculative_config", "max_draft_len"),
        (
            {"kv_cache_config": {"pool_ratio": [0.5, 0.4]}},
            "kv_cache_config.pool_ratio",
            "the sum 1",
        ),
        ({"kv_cache_config": {"pool_ratio": []}}, "kv_cache_config.pool_ratio", "not empty"),
        (
            {"kv_cache_config": {"max_util_for_resume": 0}},
            "kv_cache_config.max_util_for_resume",
            "greater than 0",
        ),
        ({"gms_config": {"tag": " "}}, "gms_config.tag", "not blank"),
        (
            {"cuda_graph_config": {"mode": "decode", "num_tokens": [3]}},
            "cuda_graph_config.num_tokens",
            "mode to encode",
        ),
        (
            {"moe_config": {"load_balancer": {"slots": 1}}},
            "moe_config.load_balancer.slots",
            "num_slots",
        ),
        (
            {"nvfp4_gemm_config": {"allowed_backends": ["cutlas"]}},
            "nvfp4_gemm_config.allowed_backends.0",
            "cutlass",
        ),
        ({"kv_connector_config": {"conector": "x"}}, "kv_connector_config.conector", "connector"),
        ({"mpi_session": {}}, "mpi_session", "Remove it"),
        (
            {"speculative_config": {**SPECULATION, "draft_len_schedule": {1: 3, 4: 5}}},
            "speculative_config.draft_len_schedule",
            "at most 3",
        ),
        (
            {
                "speculative_config": {
                    **SPECULATION,
                    "use_dynamic_tree": True,
                    "dynamic_tree_max_topK": 2,
                    "max_total_draft_tokens": 7,
                }
            },
            "speculative_config.max_total_draft_tokens",
            "3 to 6",
        ),
        (
            {"speculative_config": {**SUFFIX, "global_pool_size": 9}},
            "speculative_config.global_pool_size",
            "enable_global_pool",
        ),
        (
            {"speculative_config": {**SUFFIX, "max_matching_ngram_size": 0}},
            "speculative_config.max_matching_ngram_size",
            "other than 0",
        ),
        (
            {
                "speculative_config": {
                    **SUFFIX,
                    "max_matching_ngram_size": 65,
                    "enable_global_pool": True,
                }
            },
            "speculative_config.max_matching_ngram_size",
            "at most 64",
        ),
        (
            {
                "speculative_config": {
                    "decoding_type": "DSpark",
                    "max_draft_len": 3,
                    "block_size": 4,
                }
            },
            "speculative_config.block_size",
            "to 3",
        ),
    ],
)
def test_a_value_that_the_release_rejects_is_reported_once(
    values: dict[str, Any], at: str, fix: str
) -> None:
    (found,) = validate(values)
    assert ".".join(map(str, found.path)) == at
    assert fix in found.fix
