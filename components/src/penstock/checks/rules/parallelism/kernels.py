"""Rules of kernels: which GPU has which, for which model."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.manifests.deployment import Engine
from penstock.memory.remedy import lacks_fp8_kv
from penstock.serving.deployment import ServingDeployment

GPT_OSS_TABLE = "TensorRT-LLM examples/models/core/gpt_oss/README.md (Jan 2026)"
MOE_ON_BLACKWELL = ("AUTO", "CUTLASS", "TRTLLM", "CUTEDSL")
MOE_KERNELS = {
    90: ("AUTO", "TRITON", "CUTLASS"),
    100: MOE_ON_BLACKWELL,
    103: MOE_ON_BLACKWELL,
    120: ("AUTO", "TRITON"),
}


@rule(
    id="PS211",
    title="TRITON experts without full expert parallelism",
    level=Level.ERROR,
    cause="The TRITON MoE backend splits by experts alone: expert parallelism must be the "
    "tensor parallelism.",
    effect="The engine fails while it loads the weights.",
    remedy="Set moe_expert_parallel_size to the tensor parallelism.",
    source=GPT_OSS_TABLE,
)
def triton_ep(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        backend = worker.get("moe_config.backend")
        if worker.is_trtllm and backend == "TRITON" and worker.ep != worker.tp:
            yield RuleResult(
                location=worker.config("moe_config.backend"),
                message=f"MoE backend TRITON splits by experts alone, and expert parallelism is "
                f"{worker.ep} of TP {worker.tp}",
                fix=Fix(
                    text="set it to the tensor parallelism",
                    config={"moe_expert_parallel_size": worker.tp},
                ),
            )


@rule(
    id="PS212",
    title="MoE kernels that this GPU does not have",
    level=Level.ERROR,
    cause="Hopper has TRITON and CUTLASS for gpt-oss's MXFP4 experts, Blackwell TRTLLM and "
    "CUTLASS, RTX PRO TRITON alone. TRITON on Blackwell works, 14 to 376 % slower.",
    effect="The engine ends while it builds its layers.",
    remedy="TRITON on Hopper, TRTLLM on Blackwell.",
    source=GPT_OSS_TABLE + "; TensorRT-LLM#17570, #8179, #14612",
)
def moe_kernels(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu, model = deployment.gpu, deployment.model
    for worker in deployment.workers:
        backend = str(worker.get("moe_config.backend") or "AUTO").upper()
        if not worker.is_trtllm or gpu is None or model is None or not model.is_gpt_oss:
            continue
        known = MOE_KERNELS[gpu.sm]
        best = "TRTLLM" if gpu.is_blackwell else "TRITON"
        if backend == "TRITON" and backend not in known:
            yield RuleResult(
                location=worker.config("moe_config.backend"),
                message=f"MoE backend TRITON for gpt-oss on {gpu.name}",
                fix=Fix(text=f"use {best}", config={"moe_config.backend": best}),
                level=Level.WARNING,
                why="It works, 14 to 376 % slower.",
            )
        elif backend not in known:
            spread = worker.tp > 1 and best == "TRITON"  # PS211
            config = {"moe_expert_parallel_size": worker.tp} if spread else {}
            yield RuleResult(
                location=worker.config("moe_config.backend"),
                message=f"MoE backend {backend} has no kernels for gpt-oss on {gpu.name} "
                f"(SM {gpu.sm})",
                fix=Fix(text=f"use {best}", config={"moe_config.backend": best, **config}),
            )


@rule(
    id="PS213",
    title="fp8 KV for gpt-oss on Hopper",
    level=Level.ERROR,
    cause="TensorRT-LLM has no fp8 KV kernels for gpt-oss on SM 90.",
    effect="The engine refuses to start or answers wrong.",
    remedy="dtype auto: 72 KiB a token for 120b instead of 36.",
    source=GPT_OSS_TABLE,
)
def fp8_on_hopper(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for worker in deployment.workers:
        dtype = str(worker.value("kv_dtype") or "auto")
        if gpu and "fp8" in dtype and lacks_fp8_kv(worker.engine, gpu, deployment.model):
            yield RuleResult(
                location=worker.settings.location("kv_dtype"),
                message=f"fp8 KV for gpt-oss on {gpu.name}",
                fix=Fix(
                    text="leave it to the weights' type", config={"kv_cache_config.dtype": "auto"}
                ),
            )


@rule(
    id="PS214",
    title="MXFP8 activations on Hopper",
    level=Level.ERROR,
    cause="OVERRIDE_QUANT_ALGO=W4A8_MXFP4_MXFP8 and vLLM's MoE activation mxfp8 need "
    "Blackwell's tensor cores.",
    effect="The engine fails when it builds its layers.",
    remedy="Remove it.",
    source=GPT_OSS_TABLE + "; vllm fused_moe/oracle/mxfp4.py 0.31.0",
)
def mxfp8_on_hopper(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.gpu is None or not deployment.gpu.is_hopper:
        return
    for worker in deployment.workers:
        algorithm = worker.env("OVERRIDE_QUANT_ALGO")
        if worker.is_trtllm and algorithm and "MXFP8" in algorithm:
            yield RuleResult(
                location=worker.location("env", "OVERRIDE_QUANT_ALGO"),
                message=f"OVERRIDE_QUANT_ALGO={algorithm} on {deployment.gpu.name}",
                fix=Fix(text="remove it: Hopper has no MXFP8"),
            )
        key = "quantization-config.moe.activation"
        is_mxfp4 = deployment.model is not None and deployment.model.is_gpt_oss
        if worker.engine is Engine.VLLM and is_mxfp4 and worker.get(key) == "mxfp8":
            yield RuleResult(
                location=worker.config(key),
                message=f"{key} mxfp8 on {deployment.gpu.name}",
                fix=Fix(text="remove it: Hopper has no MXFP8"),
            )


def sinks_without_kernels(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        backend = worker.get("attn_backend")
        is_other = isinstance(backend, str) and backend != "TRTLLM"
        if worker.is_trtllm and is_other and deployment.model and deployment.model.is_gpt_oss:
            yield RuleResult(
                location=worker.config("attn_backend"),
                message=f"attn_backend {backend} with gpt-oss, whose attention sinks are "
                "documented on TRTLLM alone",
                fix=Fix(text="leave it out", config={"attn_backend": "TRTLLM"}),
            )


# `handle_model_specific_adjustments` in sglang/srt/arg_groups/model_hook.py 0.5.21, CUDA's.
SGLANG_WITH_SINKS = ("triton", "trtllm_mha", "fa3", "fa4")
# The one for both phases, and those that win over it in theirs.
ATTENTION_BACKENDS = (
    "attention-backend",
    "decode-attention-backend",
    "prefill-attention-backend",
)


def sglang_without_sinks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG or not (
            deployment.model and deployment.model.is_gpt_oss
        ):
            continue
        for name in ATTENTION_BACKENDS:
            backend = worker.get(name)
            if backend is not None and backend not in SGLANG_WITH_SINKS:
                yield RuleResult(
                    location=worker.config(name),
                    message=f"{name} {backend} with gpt-oss: SGLang takes "
                    f"{', '.join(SGLANG_WITH_SINKS)}",
                    fix=Fix(
                        text="name one of them; without one SGLang chooses by GPU",
                        config={name: "triton"},
                    ),
                    level=Level.ERROR,
                )


@rule(
    id="PS222",
    title="Hopper's attention on Blackwell",
    level=Level.ERROR,
    cause="SGLang's fa3 needs SM 8x or 9x.",
    effect="An assertion at the start.",
    remedy="trtllm_mha, or no backend: SGLang chooses.",
    source="sglang/srt/layers/attention/attention_registry.py 0.5.21",
)
def hopper_attention(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    if gpu is None or gpu.sm < 100:
        return
    best = (
        "trtllm_mla" if deployment.model is not None and deployment.model.is_mla else "trtllm_mha"
    )
    whole, *parts = ATTENTION_BACKENDS
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG:
            continue
        is_split = all(worker.get(name) is not None for name in parts)
        others = () if is_split else (whole,)
        for name in (*others, *parts, "speculative-draft-attention-backend"):
            if worker.get(name) == "fa3":
                yield RuleResult(
                    location=worker.config(name),
                    message=f"{name} fa3 on {gpu.name} (SM {gpu.sm})",
                    fix=Fix(text="SGLang's own choice on it", config={name: best}),
                )


@rule(
    id="PS215",
    title="attention sinks on another backend",
    level=Level.WARNING,
    cause="gpt-oss's attention sinks are documented on TensorRT-LLM's attn_backend TRTLLM; "
    "SGLang has them in some of its attention backends.",
    effect="Wrong answers or a refusal at the start (FLASHINFER with unequal TP: wrong "
    "output); SGLang always refuses.",
    remedy="Leave the attention backend out.",
    source="TensorRT-LLM deployment guide for gpt-oss; TensorRT-LLM#6507; "
    "sglang/srt/arg_groups/model_hook.py 0.5.21",
)
def no_attention_sinks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    yield from sinks_without_kernels(deployment)
    yield from sglang_without_sinks(deployment)
