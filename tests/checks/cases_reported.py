"""Cases of failures that users reported (PS930 to PS989)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.own_manifests import component, deployment, flags, transfer
from tests.checks.support import OMIT, Case, Words, X, dump, vary

DENSE, EXPERTS, FP8 = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8"
HYBRID, MAMBA = "Qwen/Qwen3.5-35B-A3B", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
V4, V4_FP8 = "deepseek-ai/DeepSeek-V4-Flash", "sgl-project/DeepSeek-V4-Flash-FP8"
V4_NVFP4 = "nvidia/DeepSeek-V4-Flash-NVFP4"
SPARSE, LATENT = "zai-org/GLM-5.2-FP8", "deepseek-ai/DeepSeek-R1"
LLAMA4 = "nvidia/Llama-4-Scout-17B-16E-Instruct-NVFP4"
GEMMA = "google/gemma-4-31B-it"
EFA = {"vpc.amazonaws.com/efa": "8"}
EAGLE: dict[str, Any] = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
CONNECTOR = transfer("NixlConnector")[1]


def vllm(model: str, version: str = "1.4.2", gpu: str = "", **values: Any) -> str:
    env = values.pop("env", None)
    gpus = int(values.get("tensor_parallel_size", 1)) * int(values.get("data_parallel_size", 1))
    args = flags(model, **values)
    worker = component("vllm", *args, version=version, gpu=gpu, env=env, gpus=gpus)
    return deployment(worker, version=version)


def sglang(model: str, version: str = "1.4.2", gpu: str = "", **values: Any) -> str:
    name, env = values.pop("name", "worker"), values.pop("env", None)
    args = ("--model-path", *flags(model, **values)[1:])
    gpus = int(values.get("tp_size", 1))
    if name != "worker":
        args += ("--disaggregation-mode", name)
    worker = component("sglang", *args, name=name, version=version, gpu=gpu, gpus=gpus, env=env)
    return deployment(worker, version=version)


def drafting(model: str, version: str = "1.5.1", method: str = "mtp", **values: Any) -> str:
    section = json.dumps({"method": method, "num_speculative_tokens": 2})
    return vllm(model, version, speculative_config=section, **values)


def attention_dp(model: str, tp: int, ranks: int, version: str = "1.3.1", **values: Any) -> str:
    layout: dict[str, Any] = {"tp_size": tp, "dp_size": ranks, "enable_dp_attention": True}
    return sglang(model, version, **layout, **values)


def with_host_devices(limits: dict[str, str], path: str = "/dev/infiniband") -> str:
    worker = component("vllm", *flags(DENSE), limits=limits)
    spec = worker["podTemplate"]["spec"]
    spec["volumes"] = [{"name": "devices", "hostPath": {"path": path}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "devices", "mountPath": path}]
    return deployment(worker)


def prefill_ranks(*args: str) -> str:
    """A prefill worker with two data-parallel ranks, and a decode worker."""
    pools = []
    for name, own in (("prefill", args), ("decode", ())):
        mode = ("--model-path", DENSE, "--disaggregation-mode", name)
        pools.append(component("sglang", *mode, *own, name=name, gpus=2 if own else 1))
    return deployment(*pools)


def tiers(cpu: int, disk: int) -> str:
    env = {"DYN_KVBM_CPU_CACHE_GB": str(cpu), "DYN_KVBM_DISK_CACHE_GB": str(disk)}
    return vllm(DENSE, "1.6.1", env=env)


def trtllm(model: str, version: str, settings: dict[str, Any]) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "engine"},
        "data": {"engine.yaml": dump(settings)},
    }
    path = "/config/engine.yaml"
    worker = component(
        "trtllm", "--model-path", model, "--extra-engine-args", path, version=version, gpus=4
    )
    spec = worker["podTemplate"]["spec"]
    spec["volumes"] = [{"name": "engine", "configMap": {"name": "engine"}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "engine", "mountPath": "/config"}]
    return dump(config) + "---\n" + deployment(worker, version=version)


V4_MTP: dict[str, Any] = {
    "tensor_parallel_size": 4,
    "moe_expert_parallel_size": 4,
    "speculative_config": {"decoding_type": "MTP", "max_draft_len": 1},
}
HYBRID_MODELS = (
    vary("PS930", sglang, X, "1.6.1", enable_hierarchical_cache=True)(
        HYBRID, EXPERTS, fixed=sglang(HYBRID, "1.6.1")
    ),
    # a model that is known only by its name
    vary("PS930", sglang, X, "1.6.0", enable_hierarchical_cache=True)(
        "acme/Qwen3.8-27B-W8A8", "acme/Qwen3-27B-W8A8"
    ),
    Case(
        "PS932",
        drafting(HYBRID, enable_prefix_caching=True),
        drafting(HYBRID, no_enable_prefix_caching=True),
        is_repaired_by_near=True,
    ),
    vary("PS932", drafting, HYBRID, X)(OMIT, "1.4.2"),  # the default of 0.28
    vary("PS932", drafting, HYBRID, "1.6.1", no_async_scheduling=X)(OMIT, True),
    vary("PS947", vllm, X, mamba_cache_mode="all")(
        HYBRID, MAMBA, fixed=vllm(HYBRID, mamba_cache_mode="align")
    ),
    vary(
        "PS949",
        drafting,
        HYBRID,
        "1.3.1",
        env=X,
        enable_prefix_caching=True,
        no_async_scheduling=True,
    )({"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}, {"VLLM_SSM_CONV_STATE_LAYOUT": "SD"}),
    vary(
        "PS950",
        vllm,
        HYBRID,
        X,
        kv_transfer_config=CONNECTOR,
        no_disable_hybrid_kv_cache_manager=True,
        enable_prefix_caching=True,
    )(
        "1.1.1",
        "1.3.1",
        fixed=vllm(
            HYBRID,
            "1.1.1",
            kv_transfer_config=CONNECTOR,
            no_disable_hybrid_kv_cache_manager=True,
            no_enable_prefix_caching=True,
        ),
    ),
    vary("PS951", drafting, X, "1.3.1", "ngram")(MAMBA, DENSE, fixed=vllm(MAMBA, "1.3.1")),
)
DEEPSEEK = (
    vary("PS933", sglang, V4, gpu=X, tp_size=4, moe_a2a_backend="deepep")(
        "h200", "b200", fixed=sglang(V4, gpu="h200", tp_size=4)
    ),
    vary("PS933", sglang, X, gpu="h200", tp_size=4, moe_a2a_backend="deepep")(V4, V4_FP8),
    vary("PS937", attention_dp, SPARSE, 8, X, **EAGLE)(2, 8, is_repaired_by_near=True),
    vary("PS937", attention_dp, X, 8, 2, **EAGLE)(SPARSE, LATENT),
    vary("PS939", attention_dp, V4, 4, 4, X, **EAGLE)(OMIT, "1.4.2", fixed=attention_dp(V4, 4, 4)),
    vary("PS952", attention_dp, X, 8, 8, "1.4.2", name="decode", **EAGLE)(
        SPARSE, "zai-org/GLM-5-FP8", fixed=attention_dp(SPARSE, 8, 8, "1.4.2", name="decode")
    ),
    vary("PS954", sglang, X, tp_size=8, reasoning_parser="deepseek-v3")(
        "deepseek-ai/DeepSeek-V3-0324",
        "deepseek-ai/DeepSeek-V3.1",
        fixed=sglang("deepseek-ai/DeepSeek-V3-0324", tp_size=8),
    ),
    vary("PS955", trtllm, V4, X, V4_MTP)(
        "1.4.2",
        "1.5.1",
        fixed=trtllm(V4, "1.4.2", {k: v for k, v in V4_MTP.items() if "spec" not in k}),
    ),
)
KERNELS = (
    vary("PS931", vllm, MAMBA, enable_lora=True, max_lora_rank=X)(
        256, 128, is_repaired_by_near=True
    ),
    vary("PS931", vllm, X, enable_lora=True, max_lora_rank=256)(EXPERTS, DENSE),
    vary("PS936", vllm, DENSE, gpu_memory_utilization=0.95, env=X)(
        OMIT, {"VLLM_USE_V2_MODEL_RUNNER": "0"}, fixed=vllm(DENSE, gpu_memory_utilization=0.9)
    ),
    vary("PS936", vllm, X, gpu_memory_utilization=0.95)(DENSE, EXPERTS),
    vary("PS940", sglang, FP8, X, moe_runner_backend="flashinfer_cutlass")(
        OMIT, "1.6.1", fixed=sglang(FP8)
    ),
    vary("PS940", sglang, X, moe_runner_backend="flashinfer_cutlass")(
        "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "acme/Qwen3-30B-A3B-Instruct-2507"
    ),
    # experts in NVFP4, although the quant_method is fp8
    vary("PS940", sglang, X, moe_runner_backend="flashinfer_cutlass")(
        FP8, V4_NVFP4, fixed=sglang(FP8)
    ),
    vary("PS97010", sglang, X, "1.6.1", moe_runner_backend="flashinfer_cutedsl")(
        FP8, V4_NVFP4, fixed=sglang(FP8, "1.6.1")
    ),
    vary("PS941", vllm, DENSE, "1.0.2", X, dtype="half", kv_cache_dtype="fp8")(
        "v100", "a100", fixed=vllm(DENSE, "1.0.2", "v100", dtype="half")
    ),
    vary(
        "PS943",
        vllm,
        EXPERTS,
        gpu="b200",
        data_parallel_size=2,
        enable_expert_parallel=True,
        all2all_backend="deepep_v2",
        enforce_eager=X,
    )(True, OMIT, is_repaired_by_near=True),
    vary(
        "PS946",
        sglang,
        DENSE,
        enable_deterministic_inference=True,
        attention_backend=X,
        chunked_prefill_size=2048,
    )("flashinfer", "fa3"),
    vary(
        "PS948",
        drafting,
        LATENT,
        tensor_parallel_size=8,
        decode_context_parallel_size=8,
        cp_kv_cache_interleave_size=X,
    )(16, OMIT, is_repaired_by_near=True),
)
WINDOWS = (
    vary("PS941", vllm, DENSE, gpu="a100", attention_backend=X, kv_cache_dtype="fp8")(
        "TRITON_ATTN", "FLASHINFER"
    ),
    vary("PS965", vllm, GEMMA, gpu=X, attention_backend="FLASHINFER")(
        "h200", "b200", fixed=vllm(GEMMA, gpu="h200")
    ),
    vary("PS965", drafting, GEMMA, "1.4.2", gpu="h200", kv_cache_dtype=X)("fp8", OMIT),
)
EXPERT_KERNELS = (
    vary("PS961", vllm, EXPERTS, gpu=X, moe_backend="flashinfer_trtllm")(
        "h200", "b200", fixed=vllm(EXPERTS, gpu="h200")
    ),
    vary("PS961", vllm, X, gpu="a100", moe_backend="flashinfer_cutlass")(EXPERTS, DENSE),
    vary("PS962", sglang, LLAMA4, X, gpu="rtx", moe_runner_backend="flashinfer_cutlass")(
        OMIT, "1.6.1"
    ),
    vary("PS963", vllm, "nvidia/DeepSeek-V4-Flash-NVFP4", X, "rtx", tensor_parallel_size=4)(
        "1.3.1", "1.4.2"
    ),
    vary("PS964", vllm, "MiniMaxAI/MiniMax-M3", X, moe_backend="flashinfer_cutlass")(
        OMIT, "1.5.1", fixed=vllm("MiniMaxAI/MiniMax-M3")
    ),
)
REFUSED = (
    vary("PS97001", sglang, DENSE, enable_priority_scheduling=True, schedule_policy=X)(
        "lpm", "fcfs", is_repaired_by_near=True
    ),
    vary("PS97002", sglang, DENSE, retraction_policy="priority", enable_priority_scheduling=X)(
        OMIT, True, is_repaired_by_near=True
    ),
    vary(
        "PS97003",
        sglang,
        DENSE,
        enable_tokenizer_batch_encode=True,
        enable_dynamic_batch_tokenizer=X,
    )(True, OMIT, is_repaired_by_near=True),
    vary("PS97004", sglang, SPARSE, tp_size=8, enable_prefill_cp=True, cp_strategy=X)(
        OMIT, "interleave", is_repaired_by_near=True
    ),
    vary("PS97005", sglang, HYBRID, gpu=X, linear_attn_decode_backend="flashinfer")(
        "b200",
        "h200",
        fixed=sglang(
            HYBRID, gpu="b200", linear_attn_decode_backend="flashinfer", mamba_ssm_dtype="bfloat16"
        ),
    ),
    vary(
        "PS97006",
        vllm,
        MAMBA,
        "1.6.1",
        enable_mamba_cache_stochastic_rounding=True,
        mamba_ssm_cache_dtype=X,
    )(OMIT, "float16", is_repaired_by_near=True),
    vary(
        "PS97007",
        vllm,
        MAMBA,
        "1.6.1",
        gpu="h200",
        enable_mamba_cache_stochastic_rounding=True,
        mamba_ssm_cache_dtype="float16",
        mamba_backend=X,
    )("triton", "flashinfer", is_repaired_by_near=True),
    vary("PS97008", sglang, DENSE, disable_cuda_graph_padding=X, enable_torch_compile=True)(
        True, OMIT, is_repaired_by_near=True
    ),
    vary("PS97009", sglang, EXPERTS, tp_size=4, moe_dp_size=X)(3, 2),
    vary("PS97010", sglang, EXPERTS, gpu="b200", moe_runner_backend=X)(
        "flashinfer_cutedsl", "flashinfer_cutlass", fixed=sglang(EXPERTS, gpu="b200")
    ),
)
PODS = (
    vary("PS934", with_host_devices)(EFA, {"rdma/ib": "8"}, fixed=with_host_devices(EFA, "/mnt")),
    vary("PS942", tiers, 100, X)(20, 200, is_repaired_by_near=True),
    vary("PS944", prefill_ranks)(
        Words("--dp-size", "2"),
        Words("--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"),
        is_repaired_by_near=True,
    ),
)
OLDER_GPUS = (
    vary("PS96001", sglang, DENSE, gpu="a100", attention_backend=X, page_size=64)(
        "trtllm_mha", "flashinfer"
    ),
    vary("PS96002", vllm, LATENT, gpu="a100", tensor_parallel_size=8, attention_backend=X)(
        "FLASHMLA", "TRITON_MLA"
    ),
    vary("PS96003", vllm, DENSE, "1.2.1", X, quantization="fp8")("v100", "t4"),
    vary("PS96003", sglang, "Qwen/Qwen3-32B-FP8", gpu=X)("t4", "a100"),
    vary("PS96004", vllm, DENSE, gpu="t4", dtype=X)("bfloat16", "half", is_repaired_by_near=True),
    vary("PS96005", sglang, DENSE, gpu=X)("v100", "t4"),
    vary("PS96006", vllm, DENSE, X, "v100")("1.3.1", "1.2.1", is_repaired_by_near=True),
)
CASES = (
    *HYBRID_MODELS,
    *DEEPSEEK,
    *KERNELS,
    *EXPERT_KERNELS,
    *WINDOWS,
    *REFUSED,
    *PODS,
    *OLDER_GPUS,
)
