"""Cases of KV transfer between the pools (PS304, PS40x to PS42x)."""

from __future__ import annotations

from functools import partial

from tests.checks.support import (
    REMOVE,
    SGLANG_AGG,
    SGLANG_DISAGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
    manifest,
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
    Case(
        rule="PS304",
        bad=trtllm(
            CPP
            | {"hardware/gpu": "h100", "kv_transfer/buffer_tokens": 163840}
            | {"engine/config/kv_cache_config/dtype": "auto"}
        ),
        near=trtllm(
            {"hardware/gpu": "h100", "kv_transfer/buffer_tokens": 163840}
            | {"engine/config/kv_cache_config/dtype": "auto"}
        ),
        also=("PS301",),
    ),
    Case(
        rule="PS401",
        bad=manifest(TRTLLM_DISAGG, {FILE: REMOVE}),
        near=manifest(
            TRTLLM_DISAGG,
            {FILE: REMOVE, f"{MAIN}/env/DYN_TRTLLM_OVERRIDE_ENGINE_ARGS/value": OVERRIDE},
        ),
    ),
    Case(
        rule="PS401",
        bad=manifest(VLLM_DISAGG, {"prefill/kv-transfer-config": REMOVE}),
        near=vllm({"prefill/config/kv-transfer-config/kv_role": "kv_producer"}),
    ),
    Case(
        rule="PS401",
        bad=manifest(SGLANG_DISAGG, {"decode/disaggregation-transfer-backend": REMOVE}),
        near=sglang({"kv_transfer/backend": "mooncake"}),
    ),
    Case(
        rule="PS402",
        bad=trtllm({f"{OWN}/backend": "UCX"}),
        near=trtllm({f"{OWN}/backend": "DEFAULT"}),
        also=("PS405",),
    ),
    Case(  # the backend that DEFAULT selects
        rule="PS402",
        bad=trtllm({f"{OWN}/backend": "DEFAULT", "decode/env/TRTLLM_USE_UCX_KVCACHE": "1"}),
        near=trtllm({f"{OWN}/backend": "DEFAULT", "decode/env/TRTLLM_USE_UCX_KVCACHE": "0"}),
    ),
    Case(
        rule="PS402",
        bad=vllm({"decode/config/kv-transfer-config/kv_connector": "Mooncake"}),
        near=vllm({"decode/config/kv-transfer-config/kv_connector": "PdConnector"}),
    ),
    Case(  # the default is mooncake
        rule="PS402",
        bad=manifest(SGLANG_DISAGG, {"decode/disaggregation-transfer-backend": REMOVE}),
        near=manifest(
            SGLANG_DISAGG,
            {"decode/disaggregation-transfer-backend": REMOVE}
            | {"prefill/disaggregation-transfer-backend": "mooncake"},
        ),
    ),
    Case(
        rule="PS403",
        bad=trtllm({f"{ALL}/backend": "DEFAULT"}),
        near=trtllm({f"{ALL}/backend": "NIXL"}),
    ),
    Case(
        rule="PS404",
        bad=trtllm({ALL: REMOVE}),
        near=trtllm({ALL: REMOVE, "kv_transfer/backend": "ucx"}),
    ),
    Case(rule="PS404", bad=trtllm({f"{OWN}/transceiver_runtime": "CPP"}), near=trtllm(CPP)),
    Case(
        rule="PS404",
        bad=manifest(TRTLLM_DISAGG, {f"{FILE}/transceiver_runtime": "auto"}),
        near=manifest(TRTLLM_DISAGG),
    ),
    Case(
        rule="PS405",
        bad=trtllm({"kv_transfer/backend": "ucx"}),
        near=trtllm(CPP | {"kv_transfer/backend": "ucx"}),
    ),
    Case(
        rule="PS405",
        bad=manifest(TRTLLM_DISAGG, {f"{FILE}/kv_transfer_timeout_ms": None}),
        near=manifest(TRTLLM_DISAGG, {f"{FILE}/kv_transfer_timeout_ms": REMOVE}),
    ),
    Case(
        rule="PS406",
        bad=trtllm(
            {
                f"{ALL}/enable_pipelined_transfer": True,
                "engine/config/enable_chunked_prefill": False,
            }
        ),
        near=trtllm({f"{ALL}/enable_pipelined_transfer": True}),
    ),
    Case(
        rule="PS406",
        bad=trtllm(
            {f"{OWN}/enable_pipelined_transfer": True, "decode/config/pipeline_parallel_size": 2}
        ),
        near=trtllm(
            {f"{OWN}/enable_pipelined_transfer": False, "decode/config/pipeline_parallel_size": 2}
        ),
    ),
    Case(
        rule="PS407",
        bad=trtllm(CPP | {"kv_transfer/buffer_tokens": 32736}),
        near=trtllm(CPP | {"kv_transfer/buffer_tokens": 32768}),
    ),
    Case(  # without chunked prefill, no prompt is above max_num_tokens
        rule="PS407",
        bad=trtllm(
            CPP | {"kv_transfer/buffer_tokens": 8160, "engine/config/enable_chunked_prefill": False}
        ),
        near=trtllm(
            CPP | {"kv_transfer/buffer_tokens": 8192, "engine/config/enable_chunked_prefill": False}
        ),
    ),
    Case(  # max_seq_len counts the response too
        rule="PS407",
        bad=manifest(TRTLLM_DISAGG, MANIFEST_CPP | {f"{FILE}/max_tokens_in_buffer": 28672}),
        near=manifest(TRTLLM_DISAGG, MANIFEST_CPP | {f"{FILE}/max_tokens_in_buffer": 30720}),
    ),
    Case(  # zero-copy transfers use no buffer
        rule="PS407",
        bad=manifest(TRTLLM_DISAGG, MANIFEST_CPP | {f"{FILE}/max_tokens_in_buffer": 8192}),
        near=manifest(
            TRTLLM_DISAGG,
            MANIFEST_CPP | {f"{FILE}/max_tokens_in_buffer": 8192} | ZERO_COPY,
        ),
    ),
    Case(  # the Python runtime has no such buffer
        rule="PS407",
        bad=trtllm(CPP | {"kv_transfer/buffer_tokens": 8192}),
        near=trtllm({"kv_transfer/buffer_tokens": 8192}),
    ),
    Case(  # the decode buffer must hold the longest prompt of prefill
        rule="PS407",
        bad=trtllm(CPP | {f"{OWN}/max_tokens_in_buffer": 8192}),
        near=trtllm(
            CPP | {f"{OWN}/max_tokens_in_buffer": 8192, "prefill/config/max_seq_len": 8192}
        ),
    ),
    Case(
        rule="PS408",
        bad=trtllm(CPP | {"model/context_length": REMOVE}),
        near=trtllm({"model/context_length": REMOVE}),
    ),
    Case(
        rule="PS408",
        bad=manifest(
            TRTLLM_DISAGG,
            {f"{FILE}/max_tokens_in_buffer": REMOVE, f"{FILE}/transceiver_runtime": REMOVE},
        ),
        near=manifest(TRTLLM_DISAGG, {f"{FILE}/transceiver_runtime": REMOVE}),
    ),
    Case(
        rule="PS409",
        bad=trtllm(CPP | {f"{OWN}/max_tokens_in_buffer": 32784}),
        near=trtllm(CPP | {f"{OWN}/max_tokens_in_buffer": 32800}),
    ),
    Case(
        rule="PS409",
        bad=trtllm(CPP | {f"{OWN}/max_tokens_in_buffer": 32800, BLOCK: 64}),
        near=trtllm(CPP | {f"{OWN}/max_tokens_in_buffer": 32832, BLOCK: 64}),
    ),
    Case(
        rule="PS410",
        bad=trtllm({"model/context_length": 65536, "kv_transfer/timeout_ms": REMOVE}),
        near=trtllm({"kv_transfer/timeout_ms": REMOVE}),
    ),
    Case(
        rule="PS410",
        bad=trtllm({"model/context_length": 65536, "kv_transfer/timeout_ms": 60000}),
        near=trtllm({"model/context_length": 65536, "kv_transfer/timeout_ms": 60001}),
    ),
    Case(  # no timeout
        rule="PS410",
        bad=manifest(TRTLLM_DISAGG, {f"{FILE}/kv_transfer_timeout_ms": None}),
        near=manifest(TRTLLM_DISAGG, {f"{FILE}/kv_transfer_timeout_ms": REMOVE}),
    ),
    Case(
        rule="PS411",
        bad=trtllm(OLD_TRTLLM | {"prefill/config/disable_overlap_scheduler": False}),
        near=trtllm(OLD_TRTLLM | {"decode/config/disable_overlap_scheduler": False}),
    ),
    Case(  # since 1.3.0 of TensorRT-LLM, prefill workers support it
        rule="PS411",
        bad=trtllm(OLD_TRTLLM | {"prefill/config/disable_overlap_scheduler": False}),
        near=trtllm({"prefill/config/disable_overlap_scheduler": False}),
    ),
    Case(  # without a transceiver, PS401 is the cause
        rule="PS411",
        bad=trtllm(OLD_TRTLLM | {"prefill/config/disable_overlap_scheduler": False}),
        near=trtllm(
            OLD_TRTLLM
            | {"prefill/config/disable_overlap_scheduler": False}
            | {"prefill/config/cache_transceiver_config/backend": None}
        ),
    ),
    Case(
        rule="PS412",
        bad=trtllm({"decode/config/disable_overlap_scheduler": True}),
        near=trtllm({"prefill/config/disable_overlap_scheduler": True}),
    ),
    Case(
        rule="PS412",
        bad=graph(TRTLLM_AGG, {"worker/config/disable_overlap_scheduler": True}),
        near=graph(
            TRTLLM_AGG,
            {"worker/config/disable_overlap_scheduler": True}
            | {"worker/config/speculative_config": EAGLE},
        ),
    ),
    Case(
        rule="PS420",
        bad=trtllm({"decode/env/TRTLLM_USE_UCX_KVCACHE": "1"}),
        near=trtllm({f"{ALL}/backend": "DEFAULT", "decode/env/TRTLLM_USE_UCX_KVCACHE": "1"}),
    ),
    Case(
        rule="PS420",
        bad=trtllm(
            {f"{ALL}/backend": "DEFAULT"}
            | {"engine/env": {"TRTLLM_USE_UCX_KVCACHE": "1", "TRTLLM_USE_NIXL_KVCACHE": "1"}}
        ),
        near=trtllm(
            {f"{ALL}/backend": "DEFAULT"}
            | {"engine/env": {"TRTLLM_USE_UCX_KVCACHE": "1", "TRTLLM_USE_NIXL_KVCACHE": "0"}}
        ),
    ),
)

AGREEMENT = (
    Case(rule="PS413", bad=trtllm({BLOCK: 64}), near=trtllm({BLOCK: 32})),
    Case(
        rule="PS413",
        bad=vllm({"decode/config/block-size": 32}),
        near=vllm({"engine/config/block-size": 32}),
    ),
    Case(
        rule="PS413",
        bad=manifest(SGLANG_DISAGG, {"prefill/page-size": REMOVE}),
        near=manifest(SGLANG_DISAGG, {"prefill/page-size": REMOVE, "decode/page-size": REMOVE}),
    ),
    Case(
        rule="PS414",
        bad=trtllm({"decode/config/kv_cache_config/dtype": "auto"}),
        near=trtllm({"engine/config/kv_cache_config/dtype": "auto"}),
    ),
    Case(
        rule="PS414",
        bad=vllm(
            {"prefill/config/kv-cache-dtype": "fp8", "decode/config/kv-cache-dtype": "fp8_e5m2"}
        ),
        near=vllm({"prefill/config/kv-cache-dtype": "fp8", "decode/config/kv-cache-dtype": "fp8"}),
    ),
    Case(  # vLLM's handshake compares strings; in SGLang the types are equal
        rule="PS414",
        bad=vllm(
            {"prefill/config/kv-cache-dtype": "fp8", "decode/config/kv-cache-dtype": "fp8_e4m3"}
        ),
        near=sglang({"engine/config/kv-cache-dtype": "fp8_e4m3"}),
    ),
    Case(  # the default is auto
        rule="PS414",
        bad=sglang({"decode/config/kv-cache-dtype": "fp8_e4m3"}),
        near=sglang({"decode/config/kv-cache-dtype": "auto"}),
    ),
    Case(
        rule="PS415",
        bad=trtllm({"decode/config/speculative_config": EAGLE}),
        near=trtllm({"engine/config/speculative_config": EAGLE}),
    ),
    Case(  # n-gram drafting has no KV cache
        rule="PS415",
        bad=vllm(
            {"decode/config/speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}
        ),
        near=vllm(
            {"decode/config/speculative-config": {"method": "ngram", "num_speculative_tokens": 1}}
        ),
    ),
    Case(
        rule="PS415",
        bad=sglang({"prefill/config/speculative-algorithm": "EAGLE3"}),
        near=sglang({"engine/config/speculative-algorithm": "EAGLE3"}),
    ),
)

CONNECTORS = (
    Case(
        rule="PS416",
        bad=manifest(VLLM_DISAGG, {"decode/kv-transfer-config/kv_role": REMOVE}),
        near=manifest(VLLM_DISAGG, {"decode/kv-transfer-config/kv_role": "kv_consumer"}),
    ),
    Case(
        rule="PS416",
        bad=graph(
            VLLM_AGG, {"worker/args": ["--kv-transfer-config", '{"kv_connector": "LMCache"}']}
        ),
        near=graph(VLLM_AGG, {"worker/args": ["--kv-transfer-config", '{"kv_role": null}']}),
    ),
    Case(
        rule="PS417",
        bad=vllm({"decode/env/PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        near=vllm({"decode/env/PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}),
    ),
    Case(
        rule="PS417",
        bad=vllm({"decode/env/PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        near=graph(VLLM_AGG, {"worker/env/PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
    ),
    Case(
        rule="PS417",
        bad=vllm({"engine/env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}),
        near=vllm(
            {"engine/env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
            | {"engine/config/enable-cumem-allocator": True}
        ),
    ),
    Case(
        rule="PS418",
        bad=vllm({"engine/env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1"}}),
        near=vllm({"engine/env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.7"}}),
    ),
    Case(
        rule="PS418",
        bad=vllm({"engine/env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "0.0.0.0"}}),
        near=sglang({"engine/env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "0.0.0.0"}}),
    ),
    Case(
        rule="PS419",
        bad=vllm({"decode/config/pipeline-parallel-size": 2}),
        near=vllm(
            {"decode/config/pipeline-parallel-size": 2}
            | {"decode/config/disable-hybrid-kv-cache-manager": True}
        ),
    ),
    Case(
        rule="PS419",
        bad=vllm({"prefill/gpus": 2, "prefill/config/pipeline-parallel-size": 2}),
        near=graph(VLLM_AGG, {"worker/config/pipeline-parallel-size": 2}),
    ),
    Case(
        rule="PS421",
        bad=sglang({"prefill/config/chunked-prefill-size": 8200}),
        near=sglang({"prefill/config/chunked-prefill-size": 8256}),
    ),
    Case(  # each rank processes its share
        rule="PS421",
        bad=graph(
            SGLANG_AGG,
            {"worker/config/chunked-prefill-size": 8256, "worker/config/dp-size": 2}
            | {"worker/config/enable-dp-attention": True},
        ),
        near=graph(
            SGLANG_AGG,
            {"worker/config/chunked-prefill-size": 8320, "worker/config/dp-size": 2}
            | {"worker/config/enable-dp-attention": True},
        ),
    ),
)

TIERS = "worker/config/enable-hierarchical-cache"
CACHES = (
    Case(
        rule="PS422",
        bad=graph(SGLANG_AGG, {TIERS: True, "worker/config/disable-radix-cache": True}),
        near=graph(SGLANG_AGG, {TIERS: True, "worker/config/disable-radix-cache": False}),
        also=("PS502",),
    ),
)

CASES: tuple[Case, ...] = (*TRANSFER, *AGREEMENT, *CONNECTORS, *CACHES)
