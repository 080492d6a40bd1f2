"""Cases of failures that users documented: kernels, KV transfer and drafts (set3)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.cases_engine_kernels import vllm
from tests.checks.cases_exclusions import MOONCAKE, NIXL, STAGING, lmcache
from tests.checks.own_manifests import component, deployment, flags, transfer
from tests.checks.support import Case

DENSE, HYBRID, SINKS = "Qwen/Qwen3-8B", "Qwen/Qwen3.5-35B-A3B", "openai/gpt-oss-20b"
LATENT, NVFP4 = "deepseek-ai/DeepSeek-R1", "nvidia/Llama-3.3-70B-Instruct-NVFP4"
VISION = "Qwen/Qwen3-VL-30B-A3B-Instruct"
NET_DEVICES = {"UCX_NET_DEVICES": "mlx5_0:1"}
DEVICE = ("--disaggregation-ib-device", "mlx5_0")
TRITON = {"attention_backend": "TRITON_ATTN"}
OFFLOADING = {"kv_offloading_size": 64}
EAGLE3 = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "acme/draft"}
EVENTS = json.dumps(
    {"publisher": "zmq", "endpoint": "tcp://*:20080", "enable_kv_cache_events": True}
)


def sinks(version: str = "1.0.1", gpu: str = "b200", **values: Any) -> str:
    """A worker of gpt-oss with the parsers that it needs."""
    parsers = {"dyn_reasoning_parser": "gpt_oss", "dyn_tool_call_parser": "harmony"}
    return vllm(SINKS, version, gpu, **parsers, **values)


def with_connector(**values: Any) -> str:
    return sinks(kv_transfer_config=transfer("NixlConnector")[1], **values)


def pools(
    prefill: tuple[int, int],
    decode: tuple[int, int],
    *args: str,
    model: str = DENSE,
    version: str = "1.0.1",
    env: dict[str, str] | None = None,
) -> str:
    """SGLang's prefill and decode workers; each has (TP, ranks of attention DP)."""
    components = []
    for name, (tp, ranks) in (("prefill", prefill), ("decode", decode)):
        arguments = (
            "--model-path",
            model,
            "--tp-size",
            str(tp),
            "--disaggregation-mode",
            name,
            *args,
        )
        if ranks > 1:
            arguments += ("--dp-size", str(ranks), "--enable-dp-attention")
        components.append(
            component("sglang", *arguments, name=name, gpus=tp, version=version, env=env)
        )
    return deployment(*components, router="round-robin")


def drafting(target: str = HYBRID, gpu: str = "b200", method: str = "mtp", **values: Any) -> str:
    section = {"method": method, "num_speculative_tokens": 3, **values}
    return vllm(target, "1.5.0", gpu, speculative_config=json.dumps(section))


def sglang_of(version: str, model: str, gpu: str = "", **values: Any) -> str:
    args = ("--model-path", *flags(model, **values)[1:])
    return deployment(component("sglang", *args, version=version, gpu=gpu))


def trtllm_attention(name: str, backend: str = "trtllm") -> str:
    """DeepSeek V4 with an attention backend of SGLang; no pool can use trtllm."""
    role = ("--disaggregation-mode", name, *NIXL) if name != "worker" else ()
    args = ("--model-path", "deepseek-ai/DeepSeek-V4-Flash", "--dsv4-attn-backend", backend)
    return deployment(component("sglang", *args, *role, name=name, gpu="b200"))


KERNELS = (
    Case(
        rule="PS469",
        bad=with_connector(),
        near=with_connector(version="1.1.1"),
        fixed=with_connector(**TRITON),
    ),
    Case(rule="PS469", bad=with_connector(), near=with_connector(gpu="h200")),
    Case(
        rule="PS469",
        bad=with_connector(attention_backend="FLASHINFER"),
        near=sinks(attention_backend="FLASHINFER"),
    ),
    Case(  # FlashInfer is not selected at all
        rule="PS469",
        bad=with_connector(),
        near=with_connector(attention_config=json.dumps({"use_trtllm_attention": False})),
    ),
    Case(rule="PS469", bad=sinks(**OFFLOADING), near=sinks(**OFFLOADING, **TRITON)),
    Case(  # the connector that vLLM 0.14 could not combine with the TRTLLM kernels
        rule="PS469",
        bad=sinks(version="0.9.0", **OFFLOADING),
        near=with_connector(version="0.9.0"),
    ),
    Case(
        rule="PS237",
        bad=vllm(kv_cache_dtype="fp8_ds_mla"),
        near=vllm("deepseek-ai/DeepSeek-V3.2", kv_cache_dtype="fp8_ds_mla"),
        fixed=vllm(kv_cache_dtype="fp8"),
    ),
    Case(  # DeepSeek V4 selects its own backend
        rule="PS237",
        bad=vllm(kv_cache_dtype="fp8_ds_mla"),
        near=vllm("deepseek-ai/DeepSeek-V4-Flash", kv_cache_dtype="fp8_ds_mla"),
    ),
    Case(
        rule="PS237",
        bad=vllm(version="0.9.0", kv_cache_dtype="bfloat16"),
        near=vllm(version="1.0.1", kv_cache_dtype="bfloat16"),
    ),
    Case(
        rule="PS237",
        bad=vllm(version="1.2.0", gpu="h200", kv_cache_dtype="fp8_e5m2"),
        near=vllm(version="1.2.0", gpu="b200", kv_cache_dtype="fp8_e5m2"),
    ),
    Case(
        rule="PS238",
        bad=sglang_of("1.0.1", NVFP4, quantization="modelopt_fp8"),
        near=sglang_of("1.0.1", "nvidia/Llama-3.3-70B-Instruct-FP8", quantization="modelopt_fp8"),
        fixed=sglang_of("1.0.1", NVFP4, quantization="modelopt_fp4"),
    ),
)
TRANSFER = (
    Case(
        rule="PS470",
        bad=pools((2, 1), (1, 1), *MOONCAKE),
        near=pools((2, 1), (1, 1), *MOONCAKE, model=LATENT),
        fixed=pools((2, 1), (2, 1), *MOONCAKE),
        also=("PS219",),
    ),
    Case(
        rule="PS470",
        bad=pools((2, 1), (1, 1), *MOONCAKE, version="1.3.0"),
        near=pools((2, 1), (1, 1), *MOONCAKE, version="1.3.0", env=STAGING),
    ),
    Case(  # attention TP 2 and 2
        rule="PS470",
        bad=pools((4, 1), (4, 2), *MOONCAKE),
        near=pools((2, 1), (4, 2), *MOONCAKE),
    ),
    Case(
        rule="PS471",
        bad=pools((4, 4), (4, 1), *NIXL, model=HYBRID, version="1.3.0"),
        near=pools((4, 4), (4, 1), *NIXL, model=HYBRID, version="1.5.0"),
        fixed=pools((4, 4), (4, 4), *NIXL, model=HYBRID, version="1.3.0"),
    ),
    Case(  # 8 KV heads
        rule="PS471",
        bad=pools((4, 4), (4, 1), *NIXL, model=HYBRID, version="1.3.0"),
        near=pools((4, 4), (4, 1), *NIXL, version="1.3.0"),
    ),
    Case(
        rule="PS472",
        bad=pools((1, 1), (1, 1), *NIXL, *DEVICE),
        near=pools((1, 1), (1, 1), *MOONCAKE, *DEVICE),
        fixed=pools((1, 1), (1, 1), *NIXL, env=NET_DEVICES),
    ),
    Case(
        rule="PS472",
        bad=pools((1, 1), (1, 1), *NIXL, *DEVICE),
        near=pools((1, 1), (1, 1), *NIXL, *DEVICE, env=NET_DEVICES),
    ),
    Case(
        rule="PS46709",
        bad=trtllm_attention("decode"),
        near=trtllm_attention("worker"),
        fixed=trtllm_attention("decode", "flashmla"),
    ),
    Case(
        rule="PS468",
        bad=lmcache(enable_controller=True),
        near=lmcache(
            enable_controller=True, controller_pull_url="c:8300", lmcache_worker_ports="[8500]"
        ),
    ),
    Case(
        rule="PS448",
        bad=vllm(HYBRID, "1.1.1", kv_events_config=EVENTS),
        near=vllm(HYBRID, "1.2.0", kv_events_config=EVENTS),
    ),
    Case(  # Dynamo then passes no configuration of events on
        rule="PS448",
        bad=vllm(HYBRID, "1.1.1", kv_events_config=EVENTS),
        near=vllm(HYBRID, "1.1.1", kv_events_config=EVENTS, no_enable_prefix_caching=True),
    ),
)
DRAFTS = (
    Case(
        rule="PS180",
        bad=sglang_of("1.0.1", VISION, **EAGLE3),
        near=sglang_of("1.2.0", VISION, **EAGLE3),
        fixed=sglang_of("1.0.1", VISION),
    ),
    Case(
        rule="PS180",
        bad=sglang_of("1.0.1", VISION, **EAGLE3),
        near=sglang_of("1.0.1", DENSE, **EAGLE3),
    ),
    Case(
        rule="PS181",
        bad=drafting(kv_cache_dtype="fp8"),
        near=drafting(DENSE, kv_cache_dtype="fp8"),
        fixed=drafting(),
    ),
    Case(  # FlashAttention 3 has an fp8 KV cache
        rule="PS181",
        bad=drafting(kv_cache_dtype="fp8"),
        near=drafting(gpu="h200", kv_cache_dtype="fp8"),
    ),
)
CASES = (*KERNELS, *TRANSFER, *DRAFTS)
