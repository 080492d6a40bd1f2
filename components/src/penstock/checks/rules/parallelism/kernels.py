"""Rules about kernels: which GPU supports which backend for which model."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.parallelism.heads import dividing_tp
from penstock.checks.rules.parallelism.parallel import EXPERTS
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


def triton_ep(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        is_triton = worker.is_trtllm and worker.get("moe_config.backend") == "TRITON"
        if is_triton and worker.is_laid_out and worker.ep != worker.tp:
            size = dividing_tp(deployment, worker)  # to which PS202 changes it
            yield RuleResult(
                location=worker.config_location("moe_config.backend"),
                message=f"MoE backend TRITON requires expert parallelism {worker.tp} (the "
                f"tensor parallelism), got {worker.ep}",
                fix=Fix(text=f"Set {EXPERTS} to {size}.", config={EXPERTS: size}),
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
                location=worker.config_location("moe_config.backend"),
                message=f"MoE backend TRITON is slow for gpt-oss on {gpu.name}",
                fix=Fix(
                    text=f"Set moe_config.backend to {best}.", config={"moe_config.backend": best}
                ),
                level=Level.WARNING,
                why="TRITON works on this GPU but is 14 to 376% slower.",
            )
        elif backend not in known:
            needs_full_ep = worker.tp > 1 and best == "TRITON"  # PS211 requires it
            config = {EXPERTS: dividing_tp(deployment, worker)} if needs_full_ep else {}
            yield RuleResult(
                location=worker.config_location("moe_config.backend"),
                message=f"MoE backend {backend} has no kernels for gpt-oss on {gpu.name} (SM "
                f"{gpu.sm})",
                fix=Fix(
                    text=f"Set moe_config.backend to {best}.",
                    config={"moe_config.backend": best, **config},
                ),
            )


def fp8_on_hopper(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for worker in deployment.workers:
        dtype = str(worker.value("kv_dtype") or "auto")
        if gpu and "fp8" in dtype and lacks_fp8_kv(worker.engine, gpu, deployment.model):
            yield RuleResult(
                location=worker.settings.location("kv_dtype"),
                message=f"{gpu.name} has no kernels for an fp8 KV cache with gpt-oss",
                fix=Fix(
                    text="Set kv_cache_config.dtype to auto, the weights' type.",
                    config={"kv_cache_config.dtype": "auto"},
                ),
            )


def mxfp8_on_hopper(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.gpu is None or not deployment.gpu.is_hopper:
        return
    for worker in deployment.workers:
        algorithm = worker.env("OVERRIDE_QUANT_ALGO")
        if worker.is_trtllm and algorithm and "MXFP8" in algorithm:
            yield RuleResult(
                location=worker.location("env", "OVERRIDE_QUANT_ALGO"),
                message=f"OVERRIDE_QUANT_ALGO={algorithm} is not supported on "
                f"{deployment.gpu.name}",
                fix=Fix(text="Remove OVERRIDE_QUANT_ALGO; Hopper does not support MXFP8."),
            )
        key = "quantization-config.moe.activation"
        is_mxfp4 = deployment.model is not None and deployment.model.is_gpt_oss
        if worker.engine is Engine.VLLM and is_mxfp4 and worker.get(key) == "mxfp8":
            yield RuleResult(
                location=worker.config_location(key),
                message=f"{key} mxfp8 is not supported on {deployment.gpu.name}",
                fix=Fix(text=f"Remove {key}; Hopper does not support MXFP8."),
            )


def _trtllm_without_sinks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        backend = worker.get("attn_backend")
        is_other = isinstance(backend, str) and backend != "TRTLLM"
        if worker.is_trtllm and is_other and deployment.model and deployment.model.is_gpt_oss:
            yield RuleResult(
                location=worker.config_location("attn_backend"),
                message=f"attn_backend is {backend}, but attention sinks of gpt-oss are "
                "documented only for TRTLLM",
                fix=Fix(text="Set attn_backend to TRTLLM.", config={"attn_backend": "TRTLLM"}),
            )


# `handle_model_specific_adjustments` in sglang/srt/arg_groups/model_hook.py 0.5.21, CUDA's.
SGLANG_WITH_SINKS = ("triton", "trtllm_mha", "fa3", "fa4")
# The backend of both phases, and those of one phase, which take precedence.
ATTENTION_BACKENDS = (
    "attention-backend",
    "decode-attention-backend",
    "prefill-attention-backend",
)


def _sglang_without_sinks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG or not (
            deployment.model and deployment.model.is_gpt_oss
        ):
            continue
        for name in ATTENTION_BACKENDS:
            backend = worker.get(name)
            if backend is not None and backend not in SGLANG_WITH_SINKS:
                yield RuleResult(
                    location=worker.config_location(name),
                    message=f"{name} {backend} does not support gpt-oss; SGLang supports "
                    f"{', '.join(SGLANG_WITH_SINKS)}",
                    fix=Fix(
                        text=f"Set {name} to triton, or remove it so that SGLang selects one.",
                        config={name: "triton"},
                    ),
                    level=Level.ERROR,
                )


def hopper_attention_on_blackwell(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    if gpu is None or gpu.sm < 100:
        return
    best = (
        "trtllm_mla" if deployment.model is not None and deployment.model.is_mla else "trtllm_mha"
    )
    both_phases, *single_phases = ATTENTION_BACKENDS
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG:
            continue
        is_split = all(worker.get(name) is not None for name in single_phases)
        others = () if is_split else (both_phases,)
        for name in (*others, *single_phases, "speculative-draft-attention-backend"):
            if worker.get(name) == "fa3":
                yield RuleResult(
                    location=worker.config_location(name),
                    message=f"{name} fa3 is not supported on {gpu.name} (SM {gpu.sm})",
                    fix=Fix(
                        text=f"Set {name} to {best}, SGLang's default on this GPU.",
                        config={name: best},
                    ),
                )


def no_attention_sinks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    yield from _trtllm_without_sinks(deployment)
    yield from _sglang_without_sinks(deployment)
