"""Cases of sequence lengths."""

from __future__ import annotations

from tests.checks.support import (
    OMIT,
    REMOVE,
    Case,
    X,
    sglang_agg,
    sglang_agg_dgd,
    trtllm_agg,
    trtllm_disagg,
    vary,
    vllm_agg,
    vllm_disagg,
)

STEP = "decode/config/max-num-batched-tokens"
NO_LENGTH = "model/context_length"
PREFILL, DECODE = (f"{pool}/config/max-model-len" for pool in ("prefill", "decode"))
NOT_CHUNKED = {"worker/config/enable_chunked_prefill": False}
BLOCKS = {"worker/config/block-size": 16, "model/context_length": 32768}

CASES: tuple[Case, ...] = (
    vary("PS120", trtllm_agg, {"model/context_length": X})(131073, 131072),
    # positions extended by RoPE scaling
    vary(
        "PS120", vllm_agg, {"worker/config/max-model-len": 262144, "worker/config/hf-overrides": X}
    )(OMIT, {"rope_parameters": {"factor": 64}}),
    vary("PS121", trtllm_agg, {**NOT_CHUNKED, "worker/config/max_num_tokens": X})(32767, 32768),
    # pydantic converts the text 'yes' to true
    vary("PS121", trtllm_agg)(
        {**NOT_CHUNKED, "worker/config/enable_chunked_prefill": "No"},
        {"worker/config/enable_chunked_prefill": "yes"},
    ),
    # TensorRT-LLM's decode workers process no prompts
    vary("PS121", trtllm_disagg)(
        {"prefill/config/enable_chunked_prefill": False},
        {"decode/config/enable_chunked_prefill": False},
    ),
    # vLLM checks every worker; chunked prefill is its default
    vary("PS121", vllm_disagg, {STEP: 8192, "decode/config/enable-chunked-prefill": X})(
        False, OMIT
    ),
    vary("PS122", trtllm_disagg, {"prefill/config/max_num_tokens": X})(8200, 8224),
    vary("PS122", trtllm_disagg)(
        {"prefill/config/max_num_tokens": 8200}, {"decode/config/max_num_tokens": 8200}
    ),
    vary("PS123", trtllm_disagg)(
        {"decode/config/max_seq_len": 32767}, {"prefill/config/max_seq_len": 32767}, also=("PS126",)
    ),
    vary("PS123", vllm_disagg, {"decode/config/max-model-len": X})(16384, 32768),
    # the prefill workers' length exceeds the model's limit, which PS120 reports
    vary("PS123", vllm_disagg, {NO_LENGTH: REMOVE, PREFILL: 262144, DECODE: X})(32768, 131072),
    vary("PS124", vllm_agg, {"worker/config/max-num-batched-tokens": X})(255, 256),
    vary("PS125", trtllm_disagg, {"model/context_length": REMOVE, "prefill/config/max_seq_len": X})(
        OMIT, 32768
    ),
    vary("PS125", sglang_agg, {"model/context_length": REMOVE, "worker/args": X})(
        OMIT, ["--context-length", "32Ki"]
    ),
    vary("PS126", trtllm_agg, {"worker/config/max_seq_len": X})(16384, 32768),
    vary("PS126", vllm_disagg)(
        {"decode/config/max_model_len": 65536},
        {"engine/config/max_model_len": 65536, "model/context_length": REMOVE},
    ),
    # a manifest has no model.context_length
    Case(
        "PS126",
        sglang_agg({"worker/args": ["--context-length", "16384"]}),
        sglang_agg_dgd({"worker/context-length": 16384}),
    ),
    vary("PS127", sglang_agg_dgd, {"worker/max-total-tokens": X})(16384, 131072, also=("PS302",)),
    vary("PS127", trtllm_agg, {"worker/config/kv_cache_config/max_tokens": X})(16384, 131072),
    # vLLM does not start
    vary("PS127", vllm_agg)(
        BLOCKS | {"worker/config/num-gpu-blocks-override": 2047},
        BLOCKS | {"worker/config/num-gpu-blocks-override": 2048},
    ),
)
