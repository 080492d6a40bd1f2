"""Cases of failures that users documented: kernels, KV transfer and drafts (set3)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.cases_engine_kernels import vllm
from tests.checks.cases_exclusions import MOONCAKE, NIXL, STAGING, lmcache
from tests.checks.own_manifests import component, deployment, flags, transfer
from tests.checks.support import OMIT, Case, Words, X, vary

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
    vary("PS469", with_connector, version=X)(OMIT, "1.1.1", fixed=with_connector(**TRITON)),
    vary("PS469", with_connector, gpu=X)(OMIT, "h200"),
    Case(
        "PS469",
        with_connector(attention_backend="FLASHINFER"),
        sinks(attention_backend="FLASHINFER"),
    ),
    # FlashInfer is not selected at all
    vary("PS469", with_connector, attention_config=X)(
        OMIT, json.dumps({"use_trtllm_attention": False})
    ),
    Case("PS469", sinks(**OFFLOADING), sinks(**OFFLOADING, **TRITON)),
    # the connector that vLLM 0.14 could not combine with the TRTLLM kernels
    Case("PS469", sinks(version="0.9.0", **OFFLOADING), with_connector(version="0.9.0")),
    vary("PS237", vllm, X, kv_cache_dtype="fp8_ds_mla")(
        OMIT, "deepseek-ai/DeepSeek-V3.2", fixed=vllm(kv_cache_dtype="fp8")
    ),
    # DeepSeek V4 selects its own backend
    vary("PS237", vllm, X, kv_cache_dtype="fp8_ds_mla")(OMIT, "deepseek-ai/DeepSeek-V4-Flash"),
    vary("PS237", vllm, version=X, kv_cache_dtype="bfloat16")("0.9.0", "1.0.1"),
    vary("PS237", vllm, version="1.2.0", gpu=X, kv_cache_dtype="fp8_e5m2")("h200", "b200"),
    vary("PS238", sglang_of, "1.0.1", X, quantization="modelopt_fp8")(
        NVFP4,
        "nvidia/Llama-3.3-70B-Instruct-FP8",
        fixed=sglang_of("1.0.1", NVFP4, quantization="modelopt_fp4"),
    ),
)
TRANSFER = (
    vary("PS470", pools, (2, 1), (1, 1), *MOONCAKE, model=X)(
        OMIT, LATENT, fixed=pools((2, 1), (2, 1), *MOONCAKE), also=("PS219",)
    ),
    vary("PS470", pools, (2, 1), (1, 1), *MOONCAKE, version="1.3.0", env=X)(OMIT, STAGING),
    vary("PS470", pools, X, (4, 2), *MOONCAKE)((4, 1), (2, 1)),  # attention TP 2 and 2
    vary("PS471", pools, (4, 4), (4, 1), *NIXL, model=HYBRID, version=X)(
        "1.3.0", "1.5.0", fixed=pools((4, 4), (4, 4), *NIXL, model=HYBRID, version="1.3.0")
    ),
    # 8 KV heads
    vary("PS471", pools, (4, 4), (4, 1), *NIXL, model=X, version="1.3.0")(HYBRID, OMIT),
    vary("PS472", pools, (1, 1), (1, 1), X, *DEVICE)(
        Words(*NIXL), Words(*MOONCAKE), fixed=pools((1, 1), (1, 1), *NIXL, env=NET_DEVICES)
    ),
    vary("PS472", pools, (1, 1), (1, 1), *NIXL, *DEVICE, env=X)(OMIT, NET_DEVICES),
    vary("PS46709", trtllm_attention)(
        "decode", "worker", fixed=trtllm_attention("decode", "flashmla")
    ),
    Case(
        "PS468",
        lmcache(enable_controller=True),
        lmcache(
            enable_controller=True, controller_pull_url="c:8300", lmcache_worker_ports="[8500]"
        ),
    ),
    vary("PS448", vllm, HYBRID, X, kv_events_config=EVENTS)("1.1.1", "1.2.0"),
    # Dynamo then passes no configuration of events on
    vary("PS448", vllm, HYBRID, "1.1.1", kv_events_config=EVENTS, no_enable_prefix_caching=X)(
        OMIT, True
    ),
)
DRAFTS = (
    vary("PS180", sglang_of, X, VISION, **EAGLE3)(
        "1.0.1", "1.2.0", fixed=sglang_of("1.0.1", VISION)
    ),
    vary("PS180", sglang_of, "1.0.1", X, **EAGLE3)(VISION, DENSE),
    vary("PS181", drafting, X, kv_cache_dtype="fp8")(OMIT, DENSE, fixed=drafting()),
    # FlashAttention 3 has an fp8 KV cache
    vary("PS181", drafting, gpu=X, kv_cache_dtype="fp8")(OMIT, "h200"),
)
CASES = (*KERNELS, *TRANSFER, *DRAFTS)
