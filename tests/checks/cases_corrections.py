"""Cases of rules that the engines' sources contradicted: what was missed, and what was wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.checks.model_folders import LATENT, model
from tests.checks.support import (
    OMIT,
    SGLANG_DISAGG,
    VLLM_DISAGG,
    Case,
    Words,
    X,
    graph,
    sglang_agg,
    trtllm_agg,
    trtllm_disagg,
    vary,
    vllm_agg,
)

vllm, sglang = (partial(graph, base) for base in (VLLM_DISAGG, SGLANG_DISAGG))
CONNECTOR = "kv-transfer-config/kv_connector"
DRAFT = {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "acme/eagle"}
IMAGE = "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime"
BOUNCE = "engine/config/cache_transceiver_config/agent_bounce_buffer_enable"
EAGLE_POOLS = {
    "engine/config/speculative-config": {
        "method": "eagle3",
        "model": "acme/eagle",
        "num_speculative_tokens": 3,
    }
}
TWO_KV_HEADS = model("two-kv-heads", model_type="llama", num_key_value_heads=2)
FIFTY_EXPERTS = model(
    "fifty-experts", model_type="qwen2_moe", num_experts=50, moe_intermediate_size=1408
)


def trtllm(key: str, value: Any) -> str:
    return trtllm_agg({f"worker/config/{key}": value})


def pools(prefill: int, decode: int, **more: Any) -> str:
    return vllm({"prefill/gpus": prefill, "decode/gpus": decode, **more})


CASES: tuple[Case, ...] = (
    # a field of an unmerged pull request; fields of 1.3.0rc29
    vary("PS101", trtllm)(
        Words("kv_cache_config/kv_pool_rebalance_check_interval", 10),
        Words("enable_tokenization_cache", True),
    ),
    # a key of 1.3.0rc28, which Dynamo 1.6 has
    vary("PS101", trtllm_disagg, {BOUNCE: True, "engine/image": X})(
        f"{IMAGE}:1.5.0", f"{IMAGE}:1.6.0"
    ),
    Case("PS102", trtllm("load_format", "safetensors"), trtllm("attn_backend", "flashinfer")),
    # an unknown attention backend means TRTLLM
    vary("PS105", trtllm, "attn_backend", X)("FLASH_ATTN", "flashinfer"),
    # TensorRT-LLM has only none and kvbm
    vary("PS105", trtllm_agg, {"worker/args": X})(["--connector", "nixl"], ["--connector", "none"]),
    vary("PS204", vllm_agg, {"model/path": X, "worker/config/enable-expert-parallel": True})(
        TWO_KV_HEADS, FIFTY_EXPERTS
    ),
    # 50 + 6 experts on 8 ranks
    vary(
        "PS203",
        sglang_agg,
        {
            "model/path": FIFTY_EXPERTS,
            "worker/gpus": 8,
            "worker/config/ep-size": 8,
            "worker/config/ep-num-redundant-experts": X,
        },
    )(OMIT, 6),
    vary("PS219", pools, 2, X)(3, 4),
    # prefill ranks that share KV heads
    vary("PS219", pools, X, **{"model/path": TWO_KV_HEADS})(Words(4, 2), Words(2, 1)),
    # with MLA every rank has the same KV
    Case(
        "PS219", pools(8, 4, **{"model/path": TWO_KV_HEADS}), pools(8, 4, **{"model/path": LATENT})
    ),
    # one class under two names
    vary("PS402", vllm, {f"decode/config/{CONNECTOR}": X})(
        "NixlPushConnector", "NixlPullConnector"
    ),
    vary("PS402", sglang)(
        {"decode/config/disaggregation-transfer-backend": "mooncake"},
        {"decode/config/disaggregation-transfer-backend": "mooncake_tcp"}
        | {"prefill/config/disaggregation-transfer-backend": "mooncake"},
    ),
    vary("PS413", vllm, {"decode/config/block-size": X})(96, 128),  # blocks of whole prefill blocks
    vary("PS413", pools, X, 2, **{"decode/config/block-size": 128})(4, 2),
    vary("PS414", sglang)(
        {"prefill/config/kv-cache-dtype": "bf16", "decode/config/kv-cache-dtype": "bfloat16"},
        {"prefill/config/kv-cache-dtype": "auto"},
    ),
    vary("PS414", vllm)(
        {"prefill/config/kv-cache-dtype": "fp8", "decode/config/kv-cache-dtype": "fp8_e4m3"},
        {"prefill/config/kv-cache-dtype": "auto"},
    ),
    # NIXL transfers the target's layers
    vary("PS415", sglang)(
        {f"prefill/config/{key}": value for key, value in DRAFT.items()},
        {f"decode/config/{key}": value for key, value in DRAFT.items()},
    ),
    # the handshake compares the draft's revision; an unset KV type is the pool's
    vary("PS415", vllm)(
        {**EAGLE_POOLS, "decode/config/speculative-config/revision": "v2"},
        {**EAGLE_POOLS, "decode/config/speculative-config/kv_cache_dtype": "auto"},
    ),
    # the push connector supports it
    vary(
        "PS419",
        vllm,
        {
            "engine/config/kv-transfer-config/kv_connector": X,
            "prefill/gpus": 2,
            "prefill/config/pipeline-parallel-size": 2,
        },
    )("NixlPullConnector", "NixlPushConnector"),
    # a decode worker has no radix cache unless it is set
    vary(
        "PS422",
        sglang,
        {
            "decode/config/enable-hierarchical-cache": True,
            "decode/config/disaggregation-decode-enable-radix-cache": X,
        },
    )(OMIT, True),
    vary("PS146", vllm, {"decode/env": X})(
        {"DYN_STORE_KV": "mem"}, {"DYN_DISCOVERY_BACKEND": "kubernetes"}
    ),
    vary("PS512", vllm, {"decode/env": {"DYN_RESPONSE_PLANE": X}})("quic", "tcp"),
)
