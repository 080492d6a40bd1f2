"""Cases of kernels, shards, step budgets and vLLM's flags (PS161 to PS171, PS224 to PS233)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.own_manifests import component, deployment, flags
from tests.checks.support import TRTLLM_AGG, TRTLLM_DISAGG, VLLM_AGG, Case, graph, manifest

MAIN = "dgd/spec/components/worker/podTemplate/spec/containers/main"
DEVICES = {"name": "CUDA_VISIBLE_DEVICES", "value": "1,2"}
DENSE, LINEAR = "Qwen/Qwen3-8B", "Qwen/Qwen3.5-122B-A10B"
LATENT, SINKS, LARGE_HEADS = (
    "deepseek-ai/DeepSeek-R1",
    "openai/gpt-oss-20b",
    "google/gemma-4-31B-it",
)
FP8_EXPERTS, FP8_DENSE = "MiniMaxAI/MiniMax-M2.5", "Qwen/Qwen3-32B-FP8"


def vllm(model: str = DENSE, version: str = "1.6.1", gpu: str = "", **values: Any) -> str:
    """A vLLM worker with flags; `env` and `gpus` are those of the component."""
    settings = {key: values.pop(key) for key in ("env", "gpus") if key in values}
    return deployment(
        component("vllm", *flags(model, **values), version=version, gpu=gpu, **settings)
    )


def sglang(model: str = DENSE, gpu: str = "", name: str = "worker", **values: Any) -> str:
    settings = {key: values.pop(key) for key in ("env", "gpus") if key in values}
    args = ("--model-path", *flags(model, **values)[1:])
    return deployment(component("sglang", *args, name=name, gpu=gpu, **settings))


def drafts(method: str, tokens: int, **section: Any) -> str:
    return json.dumps({"method": method, "num_speculative_tokens": tokens, "model": "d", **section})


FLAGS = (
    Case(
        rule="PS161",
        bad=vllm(
            version="1.4.0",
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            speculative_config=drafts("dflash", 16),
        ),
        near=vllm(  # drafts of EAGLE are computed one after the other
            version="1.4.0",
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            speculative_config=drafts("eagle3", 16),
        ),
    ),
    Case(
        rule="PS161",
        bad=vllm(
            version="1.4.0",
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            speculative_config=drafts("dflash", 16),
        ),
        near=vllm(  # from 0.28 on they are subtracted once
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            speculative_config=drafts("dflash", 16),
        ),
    ),
    Case(
        rule="PS162",
        bad=vllm(
            LINEAR,
            version="1.1.1",
            tensor_parallel_size=2,
            max_num_batched_tokens=2048,
            enable_prefix_caching=True,
        ),
        near=vllm(  # blocks of 2096 tokens
            LINEAR,
            version="1.1.1",
            tensor_parallel_size=2,
            max_num_batched_tokens=2112,
            enable_prefix_caching=True,
        ),
    ),
    Case(rule="PS164", bad=vllm(SINKS, dtype="float16"), near=vllm(DENSE, dtype="float16")),
    Case(
        rule="PS165",
        bad=vllm(SINKS, quantization="fp8"),
        near=vllm(DENSE, quantization="fp8"),
        also=("PS602",),
    ),
    Case(
        rule="PS165",
        bad=vllm(FP8_DENSE, quantization="awq_marlin"),
        near=vllm("nvidia/Llama-3.1-70B-Instruct-FP8", quantization="modelopt"),
    ),
    Case(
        rule="PS167",
        bad=vllm(data_parallel_size=2, data_parallel_size_local=4),
        near=vllm(data_parallel_size=4, data_parallel_size_local=4),
    ),
    Case(
        rule="PS167",
        bad=vllm(data_parallel_external_lb=True),
        near=vllm(data_parallel_external_lb=True, data_parallel_size=2),
    ),
    Case(
        rule="PS168",
        bad=vllm(enable_dbo=True),
        near=vllm(enable_dbo=True, all2all_backend="deepep_low_latency"),
    ),
    Case(
        rule="PS171",
        bad=vllm(
            tensor_parallel_size=4,
            speculative_config=drafts("draft_model", 3, draft_tensor_parallel_size=2),
        ),
        near=vllm(
            tensor_parallel_size=4,
            speculative_config=drafts("draft_model", 3, draft_tensor_parallel_size=4),
        ),
    ),
    Case(
        rule="PS171",
        bad=vllm(speculative_config=drafts("draft_model", 3, tensor_parallel_size=1)),
        near=vllm(speculative_config=drafts("draft_model", 3)),
    ),
)
KERNELS = (
    Case(
        rule="PS224",
        bad=vllm(SINKS, "1.0.1", "rtx", attention_backend="FLASHINFER"),
        near=vllm(SINKS, "1.0.1", "b200", attention_backend="FLASHINFER"),
        fixed=vllm(SINKS, "1.0.1", "rtx"),
    ),
    Case(
        rule="PS224",
        bad=vllm(LARGE_HEADS, "1.1.1", attention_backend="FLASHINFER"),
        near=vllm(LARGE_HEADS, "1.3.0", attention_backend="FLASHINFER"),
    ),
    Case(
        rule="PS224",
        bad=vllm(LATENT, gpu="h200", attention_backend="CUTLASS_MLA"),
        near=vllm(LATENT, gpu="b200", attention_backend="CUTLASS_MLA"),
    ),
    Case(
        rule="PS224",
        bad=vllm(DENSE, attention_backend="FLASHMLA"),
        near=vllm("acme/unknown", attention_backend="FLASHMLA"),
    ),
    Case(
        rule="PS224",
        bad=vllm(LATENT, attention_backend="FLASH_ATTN"),
        near=vllm(DENSE, attention_backend="FLASH_ATTN"),
    ),
    Case(
        rule="PS224",
        bad=vllm(LATENT, attention_backend="FLASH_ATTN_MLA", kv_cache_dtype="fp8"),
        near=vllm(LATENT, attention_backend="FLASHMLA", kv_cache_dtype="fp8"),
    ),
    Case(
        rule="PS224",
        bad=vllm(version="1.2.0", gpu="b200", attention_backend="FLASH_ATTN", kv_cache_dtype="fp8"),
        near=vllm(
            version="1.2.0", gpu="h200", attention_backend="FLASH_ATTN", kv_cache_dtype="fp8"
        ),
    ),
    Case(
        rule="PS225",
        bad=sglang(attention_backend="fa3", kv_cache_dtype="fp8_e5m2"),
        near=sglang(attention_backend="fa3", kv_cache_dtype="fp8_e4m3"),
    ),
    Case(
        rule="PS226",
        bad=vllm("zai-org/GLM-5.3-Flash", "1.5.0", "h200", kv_cache_dtype="fp8"),
        near=vllm("zai-org/GLM-5.3-Flash", "1.5.0", "b200", kv_cache_dtype="fp8"),
        fixed=vllm("zai-org/GLM-5.3-Flash", "1.5.0", "h200"),
    ),
    Case(
        rule="PS228",
        bad=graph(
            TRTLLM_AGG,
            {"model/id": LATENT, "hardware/gpu": "h200"}
            | {"engine/config/moe_config/backend": "TRTLLM"},
        ),
        near=graph(
            TRTLLM_AGG,
            {"model/id": LATENT, "hardware/gpu": "b200"}
            | {"engine/config/moe_config/backend": "TRTLLM"},
        ),
    ),
    Case(
        rule="PS232",
        bad=sglang(LATENT, "h200", attention_backend="trtllm_mla", page_size=64),
        near=sglang(LATENT, "b200", attention_backend="trtllm_mla", page_size=64),
        fixed=sglang(LATENT, "h200", page_size=64),
    ),
    Case(
        rule="PS232",
        bad=sglang(DENSE, "b200", attention_backend="trtllm_mla"),
        near=sglang(DENSE, "b200", attention_backend="trtllm_mha"),
    ),
    Case(
        rule="PS233",
        bad=sglang(tp_size=2, dp_size=2, enable_dp_attention=True, speculative_algorithm="NGRAM"),
        near=sglang(tp_size=2, speculative_algorithm="NGRAM"),
        also=("PS501",),
    ),
)
SHARDS = (
    Case(
        rule="PS227",
        bad=vllm(FP8_EXPERTS, "1.0.1", tensor_parallel_size=8),
        near=vllm(FP8_EXPERTS, "1.0.1", tensor_parallel_size=4),
    ),
    Case(  # expert parallelism does not split experts
        rule="PS227",
        bad=vllm(FP8_EXPERTS, "1.0.1", tensor_parallel_size=8),
        near=vllm(FP8_EXPERTS, "1.0.1", tensor_parallel_size=8, enable_expert_parallel=True),
    ),
    Case(
        rule="PS227",
        bad=vllm(FP8_DENSE, tensor_parallel_size=16),
        near=vllm(FP8_DENSE, tensor_parallel_size=8),
    ),
    Case(
        rule="PS227",
        bad=sglang("Qwen/Qwen3-30B-A3B-FP8", tp_size=4),
        near=sglang("Qwen/Qwen3-30B-A3B-FP8", tp_size=4, ep_size=4),
    ),
    Case(
        rule="PS229",
        bad=vllm("Qwen/Qwen3.5-27B", tensor_parallel_size=6),
        near=vllm("Qwen/Qwen3.5-27B", tensor_parallel_size=8),
    ),
    Case(
        rule="PS231",
        bad=vllm(tensor_parallel_size=2, gpus=2, env={"CUDA_VISIBLE_DEVICES": "0"}),
        near=vllm(tensor_parallel_size=2, gpus=2, env={"CUDA_VISIBLE_DEVICES": "0,1"}),
    ),
    Case(  # a privileged container has all GPUs of the node
        rule="PS231",
        bad=manifest(VLLM_AGG, {f"{MAIN}/env/DEVICES": DEVICES}),
        near=manifest(
            VLLM_AGG,
            {f"{MAIN}/env/DEVICES": DEVICES, f"{MAIN}/securityContext": {"privileged": True}},
        ),
    ),
    Case(  # the pod has no third GPU
        rule="PS231",
        bad=vllm(tensor_parallel_size=2, gpus=2, env={"CUDA_VISIBLE_DEVICES": "1,2"}),
        near=vllm(gpus=2, env={"CUDA_VISIBLE_DEVICES": "1,2"}),
    ),
)
DEEPEP = {
    "tp_size": 8,
    "dp_size": 8,
    "enable_dp_attention": True,
    "moe_a2a_backend": "deepep",
    "deepep_mode": "low_latency",
    "gpus": 8,
}
LIMIT = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
OTHERS = (
    Case(
        rule="PS230",
        bad=sglang(LATENT, cuda_graph_max_bs=256, **DEEPEP),
        near=sglang(LATENT, cuda_graph_max_bs=256, env={LIMIT: "256"}, **DEEPEP),
    ),
    Case(
        rule="PS230",
        bad=sglang(LATENT, cuda_graph_max_bs=128, env={LIMIT: "2048"}, **DEEPEP),
        near=sglang(LATENT, cuda_graph_max_bs=256, **{**DEEPEP, "deepep_mode": "normal"}),
    ),
    Case(
        rule="PS454",
        bad=graph(
            TRTLLM_DISAGG,
            {"engine/config/cache_transceiver_config": {"backend": "MPI"}},
        ),
        near=graph(
            TRTLLM_DISAGG,
            {"engine/config/cache_transceiver_config": {"backend": "UCX"}},
        ),
    ),
)
KV = '{"publisher":"zmq","endpoint":"tcp://*:20080","enable_kv_cache_events":true}'


def two(*sizes: int) -> str:
    found = (
        component("vllm", *flags(DENSE, block_size=size, kv_events_config=KV), name=f"pool{at}")
        for at, size in enumerate(sizes)
    )
    return deployment(*found)


ROUTING = (
    Case(rule="PS516", bad=two(16, 32), near=two(16, 16)),
    Case(
        rule="PS518",
        bad=vllm(
            version="1.4.0",
            tensor_parallel_size=8,
            decode_context_parallel_size=2,
            kv_events_config=KV,
        ),
        near=vllm(tensor_parallel_size=8, decode_context_parallel_size=2, kv_events_config=KV),
        fixed=vllm(version="1.4.0", tensor_parallel_size=8, kv_events_config=KV),
        also=("PS221",),
    ),
)
CASES = FLAGS + KERNELS + SHARDS + OTHERS + ROUTING
