"""Cases of kernels, shards, step budgets and vLLM's flags (PS161 to PS171, PS224 to PS233)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.own_manifests import component, deployment, flags
from tests.checks.support import OMIT, Case, X, trtllm_agg, trtllm_disagg, vary, vllm_agg_dgd

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
        "PS161",
        vllm(
            version="1.4.0",
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            speculative_config=drafts("dflash", 16),
        ),
        vllm(  # drafts of EAGLE are computed one after the other
            version="1.4.0",
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            speculative_config=drafts("eagle3", 16),
        ),
    ),
    Case(
        "PS161",
        vllm(
            version="1.4.0",
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            speculative_config=drafts("dflash", 16),
        ),
        vllm(  # from 0.28 on they are subtracted once
            max_num_seqs=256, max_num_batched_tokens=2048, speculative_config=drafts("dflash", 16)
        ),
    ),
    Case(
        "PS162",
        vllm(
            LINEAR,
            version="1.1.1",
            tensor_parallel_size=2,
            max_num_batched_tokens=2048,
            enable_prefix_caching=True,
        ),
        vllm(  # blocks of 2096 tokens
            LINEAR,
            version="1.1.1",
            tensor_parallel_size=2,
            max_num_batched_tokens=2112,
            enable_prefix_caching=True,
        ),
    ),
    vary("PS164", vllm, X, dtype="float16")(SINKS, DENSE),
    vary("PS165", vllm, X, quantization="fp8")(SINKS, DENSE, also=("PS602",)),
    Case(
        "PS165",
        vllm(FP8_DENSE, quantization="awq_marlin"),
        vllm("nvidia/Llama-3.1-70B-Instruct-FP8", quantization="modelopt"),
    ),
    vary("PS167", vllm, data_parallel_size=X, data_parallel_size_local=4)(2, 4),
    vary("PS167", vllm, data_parallel_external_lb=True, data_parallel_size=X)(OMIT, 2),
    vary("PS168", vllm, enable_dbo=True, all2all_backend=X)(OMIT, "deepep_low_latency"),
    vary("PS171", vllm, tensor_parallel_size=4, speculative_config=X)(
        drafts("draft_model", 3, draft_tensor_parallel_size=2),
        drafts("draft_model", 3, draft_tensor_parallel_size=4),
    ),
    vary("PS171", vllm, speculative_config=X)(
        drafts("draft_model", 3, tensor_parallel_size=1), drafts("draft_model", 3)
    ),
)
KERNELS = (
    vary("PS224", vllm, SINKS, "1.0.1", X, attention_backend="FLASHINFER")(
        "rtx", "b200", fixed=vllm(SINKS, "1.0.1", "rtx")
    ),
    vary("PS224", vllm, LARGE_HEADS, X, attention_backend="FLASHINFER")("1.1.1", "1.3.0"),
    vary("PS224", vllm, LATENT, gpu=X, attention_backend="CUTLASS_MLA")("h200", "b200"),
    vary("PS224", vllm, X, attention_backend="FLASHMLA")(DENSE, "acme/unknown"),
    vary("PS224", vllm, X, attention_backend="FLASH_ATTN")(LATENT, DENSE),
    vary("PS224", vllm, LATENT, attention_backend=X, kv_cache_dtype="fp8")(
        "FLASH_ATTN_MLA", "FLASHMLA"
    ),
    vary(
        "PS224", vllm, version="1.2.0", gpu=X, attention_backend="FLASH_ATTN", kv_cache_dtype="fp8"
    )("b200", "h200"),
    vary("PS225", sglang, attention_backend="fa3", kv_cache_dtype=X)("fp8_e5m2", "fp8_e4m3"),
    vary("PS226", vllm, "zai-org/GLM-5.3-Flash", "1.5.0", X, kv_cache_dtype="fp8")(
        "h200", "b200", fixed=vllm("zai-org/GLM-5.3-Flash", "1.5.0", "h200")
    ),
    vary("PS228", trtllm_agg)(
        {"model/id": LATENT, "hardware/gpu": "h200"}
        | {"engine/config/moe_config/backend": "TRTLLM"},
        {"model/id": LATENT, "hardware/gpu": "b200"}
        | {"engine/config/moe_config/backend": "TRTLLM"},
    ),
    vary("PS232", sglang, LATENT, X, attention_backend="trtllm_mla", page_size=64)(
        "h200", "b200", fixed=sglang(LATENT, "h200", page_size=64)
    ),
    vary("PS232", sglang, DENSE, "b200", attention_backend=X)("trtllm_mla", "trtllm_mha"),
    Case(
        "PS233",
        sglang(tp_size=2, dp_size=2, enable_dp_attention=True, speculative_algorithm="NGRAM"),
        sglang(tp_size=2, speculative_algorithm="NGRAM"),
        also=("PS501",),
    ),
)
SHARDS = (
    vary("PS227", vllm, FP8_EXPERTS, "1.0.1", tensor_parallel_size=X)(8, 4),
    # expert parallelism does not split experts
    vary("PS227", vllm, FP8_EXPERTS, "1.0.1", tensor_parallel_size=8, enable_expert_parallel=X)(
        OMIT, True
    ),
    vary("PS227", vllm, FP8_DENSE, tensor_parallel_size=X)(16, 8),
    vary("PS227", sglang, "Qwen/Qwen3-30B-A3B-FP8", tp_size=4, ep_size=X)(OMIT, 4),
    vary("PS229", vllm, "Qwen/Qwen3.5-27B", tensor_parallel_size=X)(6, 8),
    vary("PS231", vllm, tensor_parallel_size=2, gpus=2, env=X)(
        {"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "0,1"}
    ),
    # a privileged container has all GPUs of the node
    vary("PS231", vllm_agg_dgd, {f"{MAIN}/env/DEVICES": DEVICES, f"{MAIN}/securityContext": X})(
        OMIT, {"privileged": True}
    ),
    # the pod has no third GPU
    vary("PS231", vllm, tensor_parallel_size=X, gpus=2, env={"CUDA_VISIBLE_DEVICES": "1,2"})(
        2, OMIT
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
        "PS230",
        sglang(LATENT, cuda_graph_max_bs=256, **DEEPEP),
        sglang(LATENT, cuda_graph_max_bs=256, env={LIMIT: "256"}, **DEEPEP),
    ),
    Case(
        "PS230",
        sglang(LATENT, cuda_graph_max_bs=128, env={LIMIT: "2048"}, **DEEPEP),
        sglang(LATENT, cuda_graph_max_bs=256, **{**DEEPEP, "deepep_mode": "normal"}),
    ),
    vary("PS454", trtllm_disagg, {"engine/config/cache_transceiver_config": {"backend": X}})(
        "MPI", "UCX"
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
    vary("PS516", two, 16, X)(32, 16),
    vary(
        "PS518",
        vllm,
        version=X,
        tensor_parallel_size=8,
        decode_context_parallel_size=2,
        kv_events_config=KV,
    )(
        "1.4.0",
        OMIT,
        fixed=vllm(version="1.4.0", tensor_parallel_size=8, kv_events_config=KV),
        also=("PS221",),
    ),
)
CASES = FLAGS + KERNELS + SHARDS + OTHERS + ROUTING
