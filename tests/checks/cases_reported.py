"""Cases of failures that users reported (PS930 to PS989)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.own_manifests import component, deployment, flags, transfer
from tests.checks.support import Case, dump

DENSE, EXPERTS, FP8 = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8"
HYBRID, MAMBA = "Qwen/Qwen3.5-35B-A3B", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
V4, V4_FP8 = "deepseek-ai/DeepSeek-V4-Flash", "sgl-project/DeepSeek-V4-Flash-FP8"
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
    Case(
        rule="PS930",
        bad=sglang(HYBRID, "1.6.1", enable_hierarchical_cache=True),
        near=sglang(EXPERTS, "1.6.1", enable_hierarchical_cache=True),
        fixed=sglang(HYBRID, "1.6.1"),
    ),
    Case(
        rule="PS930",  # a model that is known only by its name
        bad=sglang("acme/Qwen3.8-27B-W8A8", "1.6.0", enable_hierarchical_cache=True),
        near=sglang("acme/Qwen3-27B-W8A8", "1.6.0", enable_hierarchical_cache=True),
    ),
    Case(
        rule="PS932",
        bad=drafting(HYBRID, enable_prefix_caching=True),
        near=drafting(HYBRID, no_enable_prefix_caching=True),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS932",  # the default of 0.28
        bad=drafting(HYBRID),
        near=drafting(HYBRID, "1.4.2"),
    ),
    Case(
        rule="PS932",
        bad=drafting(HYBRID, "1.6.1"),
        near=drafting(HYBRID, "1.6.1", no_async_scheduling=True),
    ),
    Case(
        rule="PS947",
        bad=vllm(HYBRID, mamba_cache_mode="all"),
        near=vllm(MAMBA, mamba_cache_mode="all"),
        fixed=vllm(HYBRID, mamba_cache_mode="align"),
    ),
    Case(
        rule="PS949",
        bad=drafting(
            HYBRID,
            "1.3.1",
            env={"VLLM_SSM_CONV_STATE_LAYOUT": "DS"},
            enable_prefix_caching=True,
            no_async_scheduling=True,
        ),
        near=drafting(
            HYBRID,
            "1.3.1",
            env={"VLLM_SSM_CONV_STATE_LAYOUT": "SD"},
            enable_prefix_caching=True,
            no_async_scheduling=True,
        ),
    ),
    Case(
        rule="PS950",
        bad=vllm(
            HYBRID,
            "1.1.1",
            kv_transfer_config=CONNECTOR,
            no_disable_hybrid_kv_cache_manager=True,
            enable_prefix_caching=True,
        ),
        near=vllm(
            HYBRID,
            "1.3.1",
            kv_transfer_config=CONNECTOR,
            no_disable_hybrid_kv_cache_manager=True,
            enable_prefix_caching=True,
        ),
        fixed=vllm(
            HYBRID,
            "1.1.1",
            kv_transfer_config=CONNECTOR,
            no_disable_hybrid_kv_cache_manager=True,
            no_enable_prefix_caching=True,
        ),
    ),
    Case(
        rule="PS951",
        bad=drafting(MAMBA, "1.3.1", "ngram"),
        near=drafting(DENSE, "1.3.1", "ngram"),
        fixed=vllm(MAMBA, "1.3.1"),
    ),
)
DEEPSEEK = (
    Case(
        rule="PS933",
        bad=sglang(V4, gpu="h200", tp_size=4, moe_a2a_backend="deepep"),
        near=sglang(V4, gpu="b200", tp_size=4, moe_a2a_backend="deepep"),
        fixed=sglang(V4, gpu="h200", tp_size=4),
    ),
    Case(
        rule="PS933",
        bad=sglang(V4, gpu="h200", tp_size=4, moe_a2a_backend="deepep"),
        near=sglang(V4_FP8, gpu="h200", tp_size=4, moe_a2a_backend="deepep"),
    ),
    Case(
        rule="PS937",
        bad=attention_dp(SPARSE, 8, 2, **EAGLE),
        near=attention_dp(SPARSE, 8, 8, **EAGLE),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS937",
        bad=attention_dp(SPARSE, 8, 2, **EAGLE),
        near=attention_dp(LATENT, 8, 2, **EAGLE),
    ),
    Case(
        rule="PS939",
        bad=attention_dp(V4, 4, 4, **EAGLE),
        near=attention_dp(V4, 4, 4, "1.4.2", **EAGLE),
        fixed=attention_dp(V4, 4, 4),
    ),
    Case(
        rule="PS952",
        bad=attention_dp(SPARSE, 8, 8, "1.4.2", name="decode", **EAGLE),
        near=attention_dp("zai-org/GLM-5-FP8", 8, 8, "1.4.2", name="decode", **EAGLE),
        fixed=attention_dp(SPARSE, 8, 8, "1.4.2", name="decode"),
    ),
    Case(
        rule="PS954",
        bad=sglang("deepseek-ai/DeepSeek-V3-0324", tp_size=8, reasoning_parser="deepseek-v3"),
        near=sglang("deepseek-ai/DeepSeek-V3.1", tp_size=8, reasoning_parser="deepseek-v3"),
        fixed=sglang("deepseek-ai/DeepSeek-V3-0324", tp_size=8),
    ),
    Case(
        rule="PS955",
        bad=trtllm(V4, "1.4.2", V4_MTP),
        near=trtllm(V4, "1.5.1", V4_MTP),
        fixed=trtllm(V4, "1.4.2", {k: v for k, v in V4_MTP.items() if "spec" not in k}),
    ),
)
KERNELS = (
    Case(
        rule="PS931",
        bad=vllm(MAMBA, enable_lora=True, max_lora_rank=256),
        near=vllm(MAMBA, enable_lora=True, max_lora_rank=128),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS931",
        bad=vllm(EXPERTS, enable_lora=True, max_lora_rank=256),
        near=vllm(DENSE, enable_lora=True, max_lora_rank=256),
    ),
    Case(
        rule="PS936",
        bad=vllm(DENSE, gpu_memory_utilization=0.95),
        near=vllm(DENSE, gpu_memory_utilization=0.95, env={"VLLM_USE_V2_MODEL_RUNNER": "0"}),
        fixed=vllm(DENSE, gpu_memory_utilization=0.9),
    ),
    Case(
        rule="PS936",
        bad=vllm(DENSE, gpu_memory_utilization=0.95),
        near=vllm(EXPERTS, gpu_memory_utilization=0.95),
    ),
    Case(
        rule="PS940",
        bad=sglang(FP8, moe_runner_backend="flashinfer_cutlass"),
        near=sglang(FP8, "1.6.1", moe_runner_backend="flashinfer_cutlass"),
        fixed=sglang(FP8),
    ),
    Case(
        rule="PS940",
        bad=sglang("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", moe_runner_backend="flashinfer_cutlass"),
        near=sglang("acme/Qwen3-30B-A3B-Instruct-2507", moe_runner_backend="flashinfer_cutlass"),
    ),
    Case(
        rule="PS941",
        bad=vllm(DENSE, "1.0.2", "v100", dtype="half", kv_cache_dtype="fp8"),
        near=vllm(DENSE, "1.0.2", "a100", dtype="half", kv_cache_dtype="fp8"),
        fixed=vllm(DENSE, "1.0.2", "v100", dtype="half"),
    ),
    Case(
        rule="PS943",
        bad=vllm(
            EXPERTS,
            gpu="b200",
            data_parallel_size=2,
            enable_expert_parallel=True,
            all2all_backend="deepep_v2",
            enforce_eager=True,
        ),
        near=vllm(
            EXPERTS,
            gpu="b200",
            data_parallel_size=2,
            enable_expert_parallel=True,
            all2all_backend="deepep_v2",
        ),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS946",
        bad=sglang(
            DENSE,
            enable_deterministic_inference=True,
            attention_backend="flashinfer",
            chunked_prefill_size=2048,
        ),
        near=sglang(
            DENSE,
            enable_deterministic_inference=True,
            attention_backend="fa3",
            chunked_prefill_size=2048,
        ),
    ),
    Case(
        rule="PS948",
        bad=drafting(
            LATENT,
            tensor_parallel_size=8,
            decode_context_parallel_size=8,
            cp_kv_cache_interleave_size=16,
        ),
        near=drafting(LATENT, tensor_parallel_size=8, decode_context_parallel_size=8),
        is_repaired_by_near=True,
    ),
)
WINDOWS = (
    Case(
        rule="PS941",
        bad=vllm(DENSE, gpu="a100", attention_backend="TRITON_ATTN", kv_cache_dtype="fp8"),
        near=vllm(DENSE, gpu="a100", attention_backend="FLASHINFER", kv_cache_dtype="fp8"),
    ),
    Case(
        rule="PS965",
        bad=vllm(GEMMA, gpu="h200", attention_backend="FLASHINFER"),
        near=vllm(GEMMA, gpu="b200", attention_backend="FLASHINFER"),
        fixed=vllm(GEMMA, gpu="h200"),
    ),
    Case(
        rule="PS965",
        bad=drafting(GEMMA, "1.4.2", gpu="h200", kv_cache_dtype="fp8"),
        near=drafting(GEMMA, "1.4.2", gpu="h200"),
    ),
)
EXPERT_KERNELS = (
    Case(
        rule="PS961",
        bad=vllm(EXPERTS, gpu="h200", moe_backend="flashinfer_trtllm"),
        near=vllm(EXPERTS, gpu="b200", moe_backend="flashinfer_trtllm"),
        fixed=vllm(EXPERTS, gpu="h200"),
    ),
    Case(
        rule="PS961",
        bad=vllm(EXPERTS, gpu="a100", moe_backend="flashinfer_cutlass"),
        near=vllm(DENSE, gpu="a100", moe_backend="flashinfer_cutlass"),
    ),
    Case(
        rule="PS962",
        bad=sglang(LLAMA4, gpu="rtx", moe_runner_backend="flashinfer_cutlass"),
        near=sglang(LLAMA4, "1.6.1", gpu="rtx", moe_runner_backend="flashinfer_cutlass"),
    ),
    Case(
        rule="PS963",
        bad=vllm("nvidia/DeepSeek-V4-Flash-NVFP4", "1.3.1", "rtx", tensor_parallel_size=4),
        near=vllm("nvidia/DeepSeek-V4-Flash-NVFP4", "1.4.2", "rtx", tensor_parallel_size=4),
    ),
    Case(
        rule="PS964",
        bad=vllm("MiniMaxAI/MiniMax-M3", moe_backend="flashinfer_cutlass"),
        near=vllm("MiniMaxAI/MiniMax-M3", "1.5.1", moe_backend="flashinfer_cutlass"),
        fixed=vllm("MiniMaxAI/MiniMax-M3"),
    ),
)
REFUSED = (
    Case(
        rule="PS97001",
        bad=sglang(DENSE, enable_priority_scheduling=True, schedule_policy="lpm"),
        near=sglang(DENSE, enable_priority_scheduling=True, schedule_policy="fcfs"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS97002",
        bad=sglang(DENSE, retraction_policy="priority"),
        near=sglang(DENSE, retraction_policy="priority", enable_priority_scheduling=True),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS97003",
        bad=sglang(DENSE, enable_tokenizer_batch_encode=True, enable_dynamic_batch_tokenizer=True),
        near=sglang(DENSE, enable_tokenizer_batch_encode=True),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS97004",
        bad=sglang(SPARSE, tp_size=8, enable_prefill_cp=True),
        near=sglang(SPARSE, tp_size=8, enable_prefill_cp=True, cp_strategy="interleave"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS97005",
        bad=sglang(HYBRID, gpu="b200", linear_attn_decode_backend="flashinfer"),
        near=sglang(HYBRID, gpu="h200", linear_attn_decode_backend="flashinfer"),
        fixed=sglang(
            HYBRID, gpu="b200", linear_attn_decode_backend="flashinfer", mamba_ssm_dtype="bfloat16"
        ),
    ),
    Case(
        rule="PS97006",
        bad=vllm(MAMBA, "1.6.1", enable_mamba_cache_stochastic_rounding=True),
        near=vllm(
            MAMBA,
            "1.6.1",
            enable_mamba_cache_stochastic_rounding=True,
            mamba_ssm_cache_dtype="float16",
        ),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS97007",
        bad=vllm(
            MAMBA,
            "1.6.1",
            gpu="h200",
            enable_mamba_cache_stochastic_rounding=True,
            mamba_ssm_cache_dtype="float16",
            mamba_backend="triton",
        ),
        near=vllm(
            MAMBA,
            "1.6.1",
            gpu="h200",
            enable_mamba_cache_stochastic_rounding=True,
            mamba_ssm_cache_dtype="float16",
            mamba_backend="flashinfer",
        ),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS97008",
        bad=sglang(DENSE, disable_cuda_graph_padding=True, enable_torch_compile=True),
        near=sglang(DENSE, enable_torch_compile=True),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS97009",
        bad=sglang(EXPERTS, tp_size=4, moe_dp_size=3),
        near=sglang(EXPERTS, tp_size=4, moe_dp_size=2),
    ),
    Case(
        rule="PS97010",
        bad=sglang(EXPERTS, gpu="b200", moe_runner_backend="flashinfer_cutedsl"),
        near=sglang(EXPERTS, gpu="b200", moe_runner_backend="flashinfer_cutlass"),
        fixed=sglang(EXPERTS, gpu="b200"),
    ),
)
PODS = (
    Case(
        rule="PS934",
        bad=with_host_devices(EFA),
        near=with_host_devices({"rdma/ib": "8"}),
        fixed=with_host_devices(EFA, "/mnt"),
    ),
    Case(rule="PS942", bad=tiers(100, 20), near=tiers(100, 200), is_repaired_by_near=True),
    Case(
        rule="PS944",
        bad=prefill_ranks("--dp-size", "2"),
        near=prefill_ranks("--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"),
        is_repaired_by_near=True,
    ),
)
OLDER_GPUS = (
    Case(
        rule="PS96001",
        bad=sglang(DENSE, gpu="a100", attention_backend="trtllm_mha", page_size=64),
        near=sglang(DENSE, gpu="a100", attention_backend="flashinfer", page_size=64),
    ),
    Case(
        rule="PS96002",
        bad=vllm(LATENT, gpu="a100", tensor_parallel_size=8, attention_backend="FLASHMLA"),
        near=vllm(LATENT, gpu="a100", tensor_parallel_size=8, attention_backend="TRITON_MLA"),
    ),
    Case(
        rule="PS96003",
        bad=vllm(DENSE, "1.2.1", "v100", quantization="fp8"),
        near=vllm(DENSE, "1.2.1", "t4", quantization="fp8"),
    ),
    Case(
        rule="PS96003",
        bad=sglang("Qwen/Qwen3-32B-FP8", gpu="t4"),
        near=sglang("Qwen/Qwen3-32B-FP8", gpu="a100"),
    ),
    Case(
        rule="PS96004",
        bad=vllm(DENSE, gpu="t4", dtype="bfloat16"),
        near=vllm(DENSE, gpu="t4", dtype="half"),
        is_repaired_by_near=True,
    ),
    Case(rule="PS96005", bad=sglang(DENSE, gpu="v100"), near=sglang(DENSE, gpu="t4")),
    Case(
        rule="PS96006",
        bad=vllm(DENSE, "1.3.1", "v100"),
        near=vllm(DENSE, "1.2.1", "v100"),
        is_repaired_by_near=True,
    ),
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
