"""Cases of KV transfer between the pools (PS304, PS40x to PS42x)."""

from __future__ import annotations

from functools import partial

from tests.checks.support import (
    OMIT,
    REMOVE,
    SGLANG_DISAGG,
    TRTLLM_DISAGG,
    VLLM_DISAGG,
    Case,
    X,
    graph,
    sglang_agg,
    sglang_disagg_dgd,
    trtllm_agg,
    trtllm_disagg_dgd,
    vary,
    vllm_agg,
    vllm_disagg_dgd,
)

trtllm, vllm, sglang = (
    partial(graph, base) for base in (TRTLLM_DISAGG, VLLM_DISAGG, SGLANG_DISAGG)
)
# Keys of all pools, and of decode.
ALL = "engine/config/cache_transceiver_config"
OWN = "decode/config/cache_transceiver_config"
FILE = "decode/cache_transceiver_config"
OLD_TRTLLM = {"engine/image": "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:0.8.1"}
MAIN = "dgd/spec/components/decode/podTemplate/spec/containers/main"
EAGLE = {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "acme/eagle"}
OVERRIDE = '{"cache_transceiver_config": {"backend": "NIXL"}}'
BLOCK = "decode/config/kv_cache_config/tokens_per_block"
CPP = {f"{ALL}/transceiver_runtime": "CPP"}
MANIFEST_CPP = {f"{FILE}/transceiver_runtime": REMOVE}
ZERO_COPY = {
    f"{MAIN}/env/ZERO_COPY": {"name": "TRTLLM_TRY_ZCOPY_FOR_KVCACHE_TRANSFER", "value": "1"}
}
LLAMACPP = {
    "model": {"id": "acme/model", "path": "model.gguf", "context_length": 2048},
    "engine": {"kind": "llamacpp", "config": {}},
    "prefill": {"replicas": 1, "config": {}},
    "decode": {"replicas": 1, "config": {}},
}

TRANSFER = (
    vary("PS304", trtllm)(
        CPP
        | {"hardware/gpu": "h100", "kv_transfer/buffer_tokens": 163840}
        | {"engine/config/kv_cache_config/dtype": "auto"},
        {"hardware/gpu": "h100", "kv_transfer/buffer_tokens": 163840}
        | {"engine/config/kv_cache_config/dtype": "auto"},
        also=("PS301",),
    ),
    vary(
        "PS401",
        trtllm_disagg_dgd,
        {FILE: REMOVE, f"{MAIN}/env/DYN_TRTLLM_OVERRIDE_ENGINE_ARGS/value": X},
    )(OMIT, OVERRIDE),
    Case(
        "PS401",
        vllm_disagg_dgd({"prefill/kv-transfer-config": REMOVE}),
        vllm({"prefill/config/kv-transfer-config/kv_role": "kv_producer"}),
    ),
    Case(
        "PS401",
        sglang_disagg_dgd({"decode/disaggregation-transfer-backend": REMOVE}),
        sglang({"kv_transfer/backend": "mooncake"}),
    ),
    vary("PS402", trtllm, {f"{OWN}/backend": X})("UCX", "DEFAULT", also=("PS405",)),
    # the backend that DEFAULT selects
    vary("PS402", trtllm, {f"{OWN}/backend": "DEFAULT", "decode/env/TRTLLM_USE_UCX_KVCACHE": X})(
        "1", "0"
    ),
    vary("PS402", vllm, {"decode/config/kv-transfer-config/kv_connector": X})(
        "Mooncake", "PdConnector"
    ),
    # the default is mooncake
    vary("PS402", sglang_disagg_dgd)(
        {"decode/disaggregation-transfer-backend": REMOVE},
        {"decode/disaggregation-transfer-backend": REMOVE}
        | {"prefill/disaggregation-transfer-backend": "mooncake"},
    ),
    vary("PS403", trtllm, {f"{ALL}/backend": X})("DEFAULT", "NIXL"),
    vary("PS404", trtllm, {ALL: REMOVE, "kv_transfer/backend": X})(OMIT, "ucx"),
    vary("PS404", trtllm)({f"{OWN}/transceiver_runtime": "CPP"}, CPP),
    vary("PS404", trtllm_disagg_dgd)({f"{FILE}/transceiver_runtime": "auto"}, OMIT),
    vary("PS405", trtllm)({"kv_transfer/backend": "ucx"}, CPP | {"kv_transfer/backend": "ucx"}),
    vary("PS405", trtllm_disagg_dgd, {f"{FILE}/kv_transfer_timeout_ms": X})(None, REMOVE),
    vary(
        "PS406",
        trtllm,
        {f"{ALL}/enable_pipelined_transfer": True, "engine/config/enable_chunked_prefill": X},
    )(False, OMIT),
    vary(
        "PS406",
        trtllm,
        {f"{OWN}/enable_pipelined_transfer": X, "decode/config/pipeline_parallel_size": 2},
    )(True, False),
    vary("PS407", trtllm)(
        CPP | {"kv_transfer/buffer_tokens": 32736}, CPP | {"kv_transfer/buffer_tokens": 32768}
    ),
    # without chunked prefill, no prompt is above max_num_tokens
    vary("PS407", trtllm)(
        CPP | {"kv_transfer/buffer_tokens": 8160, "engine/config/enable_chunked_prefill": False},
        CPP | {"kv_transfer/buffer_tokens": 8192, "engine/config/enable_chunked_prefill": False},
    ),
    # max_seq_len counts the response too
    vary("PS407", trtllm_disagg_dgd)(
        MANIFEST_CPP | {f"{FILE}/max_tokens_in_buffer": 28672},
        MANIFEST_CPP | {f"{FILE}/max_tokens_in_buffer": 30720},
    ),
    # zero-copy transfers use no buffer
    vary("PS407", trtllm_disagg_dgd)(
        MANIFEST_CPP | {f"{FILE}/max_tokens_in_buffer": 8192},
        MANIFEST_CPP | {f"{FILE}/max_tokens_in_buffer": 8192} | ZERO_COPY,
    ),
    # the Python runtime has no such buffer
    vary("PS407", trtllm)(
        CPP | {"kv_transfer/buffer_tokens": 8192}, {"kv_transfer/buffer_tokens": 8192}
    ),
    # the decode buffer must hold the longest prompt of prefill
    vary("PS407", trtllm)(
        CPP | {f"{OWN}/max_tokens_in_buffer": 8192},
        CPP | {f"{OWN}/max_tokens_in_buffer": 8192, "prefill/config/max_seq_len": 8192},
    ),
    vary("PS408", trtllm)(CPP | {"model/context_length": REMOVE}, {"model/context_length": REMOVE}),
    vary(
        "PS408",
        trtllm_disagg_dgd,
        {f"{FILE}/max_tokens_in_buffer": X, f"{FILE}/transceiver_runtime": REMOVE},
    )(REMOVE, OMIT),
    vary("PS409", trtllm)(
        CPP | {f"{OWN}/max_tokens_in_buffer": 32784}, CPP | {f"{OWN}/max_tokens_in_buffer": 32800}
    ),
    vary("PS409", trtllm)(
        CPP | {f"{OWN}/max_tokens_in_buffer": 32800, BLOCK: 64},
        CPP | {f"{OWN}/max_tokens_in_buffer": 32832, BLOCK: 64},
    ),
    vary("PS410", trtllm, {"model/context_length": X, "kv_transfer/timeout_ms": REMOVE})(
        65536, OMIT
    ),
    vary("PS410", trtllm, {"model/context_length": 65536, "kv_transfer/timeout_ms": X})(
        60000, 60001
    ),
    # no timeout
    vary("PS410", trtllm_disagg_dgd, {f"{FILE}/kv_transfer_timeout_ms": X})(None, REMOVE),
    vary("PS411", trtllm)(
        OLD_TRTLLM | {"prefill/config/disable_overlap_scheduler": False},
        OLD_TRTLLM | {"decode/config/disable_overlap_scheduler": False},
    ),
    # since 1.3.0 of TensorRT-LLM, prefill workers support it
    vary("PS411", trtllm)(
        OLD_TRTLLM | {"prefill/config/disable_overlap_scheduler": False},
        {"prefill/config/disable_overlap_scheduler": False},
    ),
    # without a transceiver, PS401 is the cause
    vary("PS411", trtllm)(
        OLD_TRTLLM | {"prefill/config/disable_overlap_scheduler": False},
        OLD_TRTLLM
        | {"prefill/config/disable_overlap_scheduler": False}
        | {"prefill/config/cache_transceiver_config/backend": None},
    ),
    vary("PS412", trtllm)(
        {"decode/config/disable_overlap_scheduler": True},
        {"prefill/config/disable_overlap_scheduler": True},
    ),
    vary("PS412", trtllm_agg)(
        {"worker/config/disable_overlap_scheduler": True},
        {"worker/config/disable_overlap_scheduler": True}
        | {"worker/config/speculative_config": EAGLE},
    ),
    vary("PS420", trtllm, {f"{ALL}/backend": X, "decode/env/TRTLLM_USE_UCX_KVCACHE": "1"})(
        OMIT, "DEFAULT"
    ),
    vary("PS420", trtllm)(
        {f"{ALL}/backend": "DEFAULT"}
        | {"engine/env": {"TRTLLM_USE_UCX_KVCACHE": "1", "TRTLLM_USE_NIXL_KVCACHE": "1"}},
        {f"{ALL}/backend": "DEFAULT"}
        | {"engine/env": {"TRTLLM_USE_UCX_KVCACHE": "1", "TRTLLM_USE_NIXL_KVCACHE": "0"}},
    ),
)

AGREEMENT = (
    vary("PS413", trtllm, {BLOCK: X})(64, 32),
    vary("PS413", vllm)({"decode/config/block-size": 32}, {"engine/config/block-size": 32}),
    vary("PS413", sglang_disagg_dgd, {"prefill/page-size": REMOVE, "decode/page-size": X})(
        OMIT, REMOVE
    ),
    vary("PS414", trtllm)(
        {"decode/config/kv_cache_config/dtype": "auto"},
        {"engine/config/kv_cache_config/dtype": "auto"},
    ),
    vary(
        "PS414", vllm, {"prefill/config/kv-cache-dtype": "fp8", "decode/config/kv-cache-dtype": X}
    )("fp8_e5m2", "fp8"),
    # vLLM's handshake compares strings; in SGLang the types are equal
    Case(
        "PS414",
        vllm({"prefill/config/kv-cache-dtype": "fp8", "decode/config/kv-cache-dtype": "fp8_e4m3"}),
        sglang({"engine/config/kv-cache-dtype": "fp8_e4m3"}),
    ),
    # the default is auto
    vary("PS414", sglang, {"decode/config/kv-cache-dtype": X})("fp8_e4m3", "auto"),
    vary("PS415", trtllm)(
        {"decode/config/speculative_config": EAGLE}, {"engine/config/speculative_config": EAGLE}
    ),
    # n-gram drafting has no KV cache
    vary(
        "PS415",
        vllm,
        {"decode/config/speculative-config": {"method": X, "num_speculative_tokens": 1}},
    )("mtp", "ngram"),
    vary("PS415", sglang)(
        {"prefill/config/speculative-algorithm": "EAGLE3"},
        {"engine/config/speculative-algorithm": "EAGLE3"},
    ),
)

CONNECTORS = (
    vary("PS416", vllm_disagg_dgd, {"decode/kv-transfer-config/kv_role": X})(REMOVE, "kv_consumer"),
    vary("PS416", vllm_agg, {"worker/args": X})(
        ["--kv-transfer-config", '{"kv_connector": "LMCache"}'],
        ["--kv-transfer-config", '{"kv_role": null}'],
    ),
    vary("PS417", vllm, {"decode/env/PYTORCH_CUDA_ALLOC_CONF": X})(
        "expandable_segments:True", "expandable_segments:False"
    ),
    Case(
        "PS417",
        vllm({"decode/env/PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        vllm_agg({"worker/env/PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
    ),
    vary("PS417", vllm)(
        {"engine/env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
        {"engine/env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
        | {"engine/config/enable-cumem-allocator": True},
    ),
    vary("PS418", vllm, {"engine/env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": X}})(
        "127.0.0.1", "10.0.0.7"
    ),
    Case(
        "PS418",
        vllm({"engine/env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "0.0.0.0"}}),
        sglang({"engine/env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "0.0.0.0"}}),
    ),
    vary("PS419", vllm)(
        {"decode/config/pipeline-parallel-size": 2},
        {"decode/config/pipeline-parallel-size": 2}
        | {"decode/config/disable-hybrid-kv-cache-manager": True},
    ),
    Case(
        "PS419",
        vllm({"prefill/gpus": 2, "prefill/config/pipeline-parallel-size": 2}),
        vllm_agg({"worker/config/pipeline-parallel-size": 2}),
    ),
    vary("PS421", sglang, {"prefill/config/chunked-prefill-size": X})(8200, 8256),
    # each rank processes its share
    vary("PS421", sglang_agg)(
        {"worker/config/chunked-prefill-size": 8256, "worker/config/dp-size": 2}
        | {"worker/config/enable-dp-attention": True},
        {"worker/config/chunked-prefill-size": 8320, "worker/config/dp-size": 2}
        | {"worker/config/enable-dp-attention": True},
    ),
)

TIERS = "worker/config/enable-hierarchical-cache"
CACHES = (
    vary("PS422", sglang_agg, {TIERS: True, "worker/config/disable-radix-cache": X})(
        True, False, also=("PS502",)
    ),
)

CASES: tuple[Case, ...] = (*TRANSFER, *AGREEMENT, *CONNECTORS, *CACHES)
