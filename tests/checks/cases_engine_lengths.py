"""Cases of sequence lengths."""

from __future__ import annotations

from tests.checks.support import (
    REMOVE,
    SGLANG_AGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
    manifest,
)

STEP = "decode/config/max-num-batched-tokens"
NO_LENGTH = "model/context_length"
PREFILL, DECODE = (f"{pool}/config/max-model-len" for pool in ("prefill", "decode"))
NOT_CHUNKED = {"worker/config/enable_chunked_prefill": False}
BLOCKS = {"worker/config/block-size": 16, "model/context_length": 32768}

CASES: tuple[Case, ...] = (
    Case(
        rule="PS120",
        bad=graph(TRTLLM_AGG, {"model/context_length": 131073}),
        near=graph(TRTLLM_AGG, {"model/context_length": 131072}),
    ),
    Case(
        rule="PS120",  # positions extended by RoPE scaling
        bad=graph(VLLM_AGG, {"worker/config/max-model-len": 262144}),
        near=graph(
            VLLM_AGG,
            {
                "worker/config/max-model-len": 262144,
                "worker/config/hf-overrides": {"rope_parameters": {"factor": 64}},
            },
        ),
    ),
    Case(
        rule="PS121",
        bad=graph(TRTLLM_AGG, {**NOT_CHUNKED, "worker/config/max_num_tokens": 32767}),
        near=graph(TRTLLM_AGG, {**NOT_CHUNKED, "worker/config/max_num_tokens": 32768}),
    ),
    Case(
        rule="PS121",  # pydantic converts the text 'yes' to true
        bad=graph(TRTLLM_AGG, {**NOT_CHUNKED, "worker/config/enable_chunked_prefill": "No"}),
        near=graph(TRTLLM_AGG, {"worker/config/enable_chunked_prefill": "yes"}),
    ),
    Case(
        rule="PS121",  # TensorRT-LLM's decode workers process no prompts
        bad=graph(TRTLLM_DISAGG, {"prefill/config/enable_chunked_prefill": False}),
        near=graph(TRTLLM_DISAGG, {"decode/config/enable_chunked_prefill": False}),
    ),
    Case(
        rule="PS121",  # vLLM checks every worker; chunked prefill is its default
        bad=graph(VLLM_DISAGG, {STEP: 8192, "decode/config/enable-chunked-prefill": False}),
        near=graph(VLLM_DISAGG, {STEP: 8192}),
    ),
    Case(
        rule="PS122",
        bad=graph(TRTLLM_DISAGG, {"prefill/config/max_num_tokens": 8200}),
        near=graph(TRTLLM_DISAGG, {"prefill/config/max_num_tokens": 8224}),
    ),
    Case(
        rule="PS122",
        bad=graph(TRTLLM_DISAGG, {"prefill/config/max_num_tokens": 8200}),
        near=graph(TRTLLM_DISAGG, {"decode/config/max_num_tokens": 8200}),
    ),
    Case(
        rule="PS123",
        bad=graph(TRTLLM_DISAGG, {"decode/config/max_seq_len": 32767}),
        near=graph(TRTLLM_DISAGG, {"prefill/config/max_seq_len": 32767}),
        also=("PS126",),
    ),
    Case(
        rule="PS123",
        bad=graph(VLLM_DISAGG, {"decode/config/max-model-len": 16384}),
        near=graph(VLLM_DISAGG, {"decode/config/max-model-len": 32768}),
    ),
    Case(
        rule="PS123",  # the prefill workers' length exceeds the model's limit, which PS120 reports
        bad=graph(VLLM_DISAGG, {NO_LENGTH: REMOVE, PREFILL: 262144, DECODE: 32768}),
        near=graph(VLLM_DISAGG, {NO_LENGTH: REMOVE, PREFILL: 262144, DECODE: 131072}),
    ),
    Case(
        rule="PS124",
        bad=graph(VLLM_AGG, {"worker/config/max-num-batched-tokens": 255}),
        near=graph(VLLM_AGG, {"worker/config/max-num-batched-tokens": 256}),
    ),
    Case(
        rule="PS125",
        bad=graph(TRTLLM_DISAGG, {"model/context_length": REMOVE}),
        near=graph(
            TRTLLM_DISAGG, {"model/context_length": REMOVE, "prefill/config/max_seq_len": 32768}
        ),
    ),
    Case(
        rule="PS125",
        bad=graph(SGLANG_AGG, {"model/context_length": REMOVE}),
        near=graph(
            SGLANG_AGG,
            {"model/context_length": REMOVE, "worker/args": ["--context-length", "32Ki"]},
        ),
    ),
    Case(
        rule="PS126",
        bad=graph(TRTLLM_AGG, {"worker/config/max_seq_len": 16384}),
        near=graph(TRTLLM_AGG, {"worker/config/max_seq_len": 32768}),
    ),
    Case(
        rule="PS126",
        bad=graph(VLLM_DISAGG, {"decode/config/max_model_len": 65536}),
        near=graph(
            VLLM_DISAGG, {"engine/config/max_model_len": 65536, "model/context_length": REMOVE}
        ),
    ),
    Case(  # a manifest has no model.context_length
        rule="PS126",
        bad=graph(SGLANG_AGG, {"worker/args": ["--context-length", "16384"]}),
        near=manifest(SGLANG_AGG, {"worker/context-length": 16384}),
    ),
    Case(
        rule="PS127",
        bad=manifest(SGLANG_AGG, {"worker/max-total-tokens": 16384}),
        near=manifest(SGLANG_AGG, {"worker/max-total-tokens": 131072}),
        also=("PS302",),
    ),
    Case(
        rule="PS127",
        bad=graph(TRTLLM_AGG, {"worker/config/kv_cache_config/max_tokens": 16384}),
        near=graph(TRTLLM_AGG, {"worker/config/kv_cache_config/max_tokens": 131072}),
    ),
    Case(  # vLLM does not start
        rule="PS127",
        bad=graph(VLLM_AGG, BLOCKS | {"worker/config/num-gpu-blocks-override": 2047}),
        near=graph(VLLM_AGG, BLOCKS | {"worker/config/num-gpu-blocks-override": 2048}),
    ),
)
