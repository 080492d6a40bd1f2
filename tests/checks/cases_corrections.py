"""Cases of rules that the engines' sources contradicted: what was missed, and what was wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.checks.model_folders import LATENT, model
from tests.checks.support import (
    SGLANG_AGG,
    SGLANG_DISAGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
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
    return graph(TRTLLM_AGG, {f"worker/config/{key}": value})


def pools(prefill: int, decode: int, **more: Any) -> str:
    return vllm({"prefill/gpus": prefill, "decode/gpus": decode, **more})


CASES: tuple[Case, ...] = (
    Case(  # a field of an unmerged pull request; fields of 1.3.0rc29
        rule="PS101",
        bad=trtllm("kv_cache_config/kv_pool_rebalance_check_interval", 10),
        near=trtllm("enable_tokenization_cache", True),
    ),
    Case(  # a key of 1.3.0rc28, which Dynamo 1.6 has
        rule="PS101",
        bad=graph(TRTLLM_DISAGG, {BOUNCE: True, "engine/image": f"{IMAGE}:1.5.0"}),
        near=graph(TRTLLM_DISAGG, {BOUNCE: True, "engine/image": f"{IMAGE}:1.6.0"}),
    ),
    Case(
        rule="PS102",
        bad=trtllm("load_format", "safetensors"),
        near=trtllm("attn_backend", "flashinfer"),
    ),
    Case(  # an unknown attention backend means TRTLLM
        rule="PS105",
        bad=trtllm("attn_backend", "FLASH_ATTN"),
        near=trtllm("attn_backend", "flashinfer"),
    ),
    Case(  # TensorRT-LLM has only none and kvbm
        rule="PS105",
        bad=graph(TRTLLM_AGG, {"worker/args": ["--connector", "nixl"]}),
        near=graph(TRTLLM_AGG, {"worker/args": ["--connector", "none"]}),
    ),
    Case(
        rule="PS204",
        bad=graph(
            VLLM_AGG, {"model/path": TWO_KV_HEADS, "worker/config/enable-expert-parallel": True}
        ),
        near=graph(
            VLLM_AGG, {"model/path": FIFTY_EXPERTS, "worker/config/enable-expert-parallel": True}
        ),
    ),
    Case(  # 50 + 6 experts on 8 ranks
        rule="PS203",
        bad=graph(
            SGLANG_AGG, {"model/path": FIFTY_EXPERTS, "worker/gpus": 8, "worker/config/ep-size": 8}
        ),
        near=graph(
            SGLANG_AGG,
            {
                "model/path": FIFTY_EXPERTS,
                "worker/gpus": 8,
                "worker/config/ep-size": 8,
                "worker/config/ep-num-redundant-experts": 6,
            },
        ),
    ),
    Case(rule="PS219", bad=pools(2, 3), near=pools(2, 4)),
    Case(  # prefill ranks that share KV heads
        rule="PS219",
        bad=pools(4, 2, **{"model/path": TWO_KV_HEADS}),
        near=pools(2, 1, **{"model/path": TWO_KV_HEADS}),
    ),
    Case(  # with MLA every rank has the same KV
        rule="PS219",
        bad=pools(8, 4, **{"model/path": TWO_KV_HEADS}),
        near=pools(8, 4, **{"model/path": LATENT}),
    ),
    Case(  # one class under two names
        rule="PS402",
        bad=vllm({f"decode/config/{CONNECTOR}": "NixlPushConnector"}),
        near=vllm({f"decode/config/{CONNECTOR}": "NixlPullConnector"}),
    ),
    Case(
        rule="PS402",
        bad=sglang({"decode/config/disaggregation-transfer-backend": "mooncake"}),
        near=sglang(
            {"decode/config/disaggregation-transfer-backend": "mooncake_tcp"}
            | {"prefill/config/disaggregation-transfer-backend": "mooncake"}
        ),
    ),
    Case(  # blocks of whole prefill blocks
        rule="PS413",
        bad=vllm({"decode/config/block-size": 96}),
        near=vllm({"decode/config/block-size": 128}),
    ),
    Case(
        rule="PS413",
        bad=pools(4, 2, **{"decode/config/block-size": 128}),
        near=pools(2, 2, **{"decode/config/block-size": 128}),
    ),
    Case(
        rule="PS414",
        bad=sglang(
            {"prefill/config/kv-cache-dtype": "bf16", "decode/config/kv-cache-dtype": "bfloat16"}
        ),
        near=sglang({"prefill/config/kv-cache-dtype": "auto"}),
    ),
    Case(
        rule="PS414",
        bad=vllm(
            {"prefill/config/kv-cache-dtype": "fp8", "decode/config/kv-cache-dtype": "fp8_e4m3"}
        ),
        near=vllm({"prefill/config/kv-cache-dtype": "auto"}),
    ),
    Case(  # NIXL transfers the target's layers
        rule="PS415",
        bad=sglang({f"prefill/config/{key}": value for key, value in DRAFT.items()}),
        near=sglang({f"decode/config/{key}": value for key, value in DRAFT.items()}),
    ),
    Case(  # the handshake compares the draft's revision; an unset KV type is the pool's
        rule="PS415",
        bad=vllm({**EAGLE_POOLS, "decode/config/speculative-config/revision": "v2"}),
        near=vllm({**EAGLE_POOLS, "decode/config/speculative-config/kv_cache_dtype": "auto"}),
    ),
    Case(  # the push connector supports it
        rule="PS419",
        bad=vllm(
            {
                "engine/config/kv-transfer-config/kv_connector": "NixlPullConnector",
                "prefill/gpus": 2,
                "prefill/config/pipeline-parallel-size": 2,
            }
        ),
        near=vllm(
            {
                "engine/config/kv-transfer-config/kv_connector": "NixlPushConnector",
                "prefill/gpus": 2,
                "prefill/config/pipeline-parallel-size": 2,
            }
        ),
    ),
    Case(  # a decode worker has no radix cache unless it is set
        rule="PS422",
        bad=sglang({"decode/config/enable-hierarchical-cache": True}),
        near=sglang(
            {
                "decode/config/enable-hierarchical-cache": True,
                "decode/config/disaggregation-decode-enable-radix-cache": True,
            }
        ),
    ),
    Case(
        rule="PS146",
        bad=vllm({"decode/env": {"DYN_STORE_KV": "mem"}}),
        near=vllm({"decode/env": {"DYN_DISCOVERY_BACKEND": "kubernetes"}}),
    ),
    Case(
        rule="PS512",
        bad=vllm({"decode/env": {"DYN_RESPONSE_PLANE": "quic"}}),
        near=vllm({"decode/env": {"DYN_RESPONSE_PLANE": "tcp"}}),
    ),
)
