"""Rules about vLLM's attention backends: which GPU, KV cache type and layers each supports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.version_range import UNCHANGED, Versions
from penstock.hardware import Gpu
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

KEYS = ("attention-backend", "attention-config.backend")
# Models whose own code selects among attention backends.
OWN_SELECTION = ("deepseek_v4", "deepseek_v41_text", "deepseek_ref", "glm5_next_text")
# `supports_compute_capability`: the generations (SM / 10) of GPUs.
GENERATIONS: Mapping[str, tuple[int, ...]] = {
    "FLASH_ATTN_MLA": (9,),
    "FLASHMLA": (9, 10),
    "CUTLASS_MLA": (10,),
    "FLASHINFER_MLA": (10,),
}
OF_MLA = (*GENERATIONS, "TRITON_MLA")
NOT_OF_MLA = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
# Backends that support no fp8 KV cache, in every version of the range.
PLAIN_KV_ONLY = ("FLEX_ATTENTION", "FLASH_ATTN_MLA")


@dataclass(frozen=True)
class _Reason:
    text: str
    versions: Versions = UNCHANGED


def unsupported_backend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts = deployment.facts_of(worker)
        if worker.engine is not Engine.VLLM or worker.env("VLLM_MLA_DISABLE") is not None:
            continue
        if facts is None or facts.kind in OWN_SELECTION:
            continue
        for key in KEYS:
            value = worker.get(key)
            if not isinstance(value, str):
                continue
            for reason in _reasons(value.upper(), worker, deployment.gpu, facts):
                yield RuleResult(
                    location=worker.config_location(key),
                    message=f"{key} {value} {reason.text}",
                    fix=Fix(text=f"Remove {key}.", config={key: None}),
                    versions=reason.versions,
                )


def _reasons(backend: str, worker: Worker, gpu: Gpu | None, facts: ModelFacts) -> Iterator[_Reason]:
    if gpu is not None and gpu.sm // 10 not in GENERATIONS.get(backend, (gpu.sm // 10,)):
        yield _Reason(f"does not support {gpu.name} (SM {gpu.sm})")
    yield from _layers(backend, gpu, facts)
    dtype = str(worker.value("kv_dtype") or "auto")
    if backend in PLAIN_KV_ONLY and dtype.startswith("fp8"):
        yield _Reason(f"does not support the KV cache type {dtype}")
    elif backend == "FLASH_ATTN" and dtype.startswith("fp8"):
        yield from _flash_attention(dtype, gpu)


def _layers(backend: str, gpu: Gpu | None, facts: ModelFacts) -> Iterator[_Reason]:
    if facts.is_mla and backend in NOT_OF_MLA:
        yield _Reason("does not support MLA")
    elif facts.head_sizes and backend in OF_MLA:
        yield _Reason("supports only models with MLA")
    elif backend == "FLASHINFER":
        yield from _flashinfer(gpu, facts)
    elif backend == "FLEX_ATTENTION" and facts.has_sinks:
        yield _Reason("does not support attention sinks")


def _flashinfer(gpu: Gpu | None, facts: ModelFacts) -> Iterator[_Reason]:
    largest = max(facts.head_sizes, default=0)
    if largest > 256:
        before = Versions(vllm="<0.23")
        yield _Reason(f"does not support attention heads of size {largest}", before)
    if facts.has_sinks and gpu is not None and not gpu.is_blackwell:
        # `supports_sink`: SM 100 only; from 0.28 on also SM 120, from 0.31 on also SM 90.
        until = "0.28" if gpu.sm >= 120 else "0.31"
        versions = Versions(vllm=f"<{until}")
        yield _Reason(f"does not support attention sinks on {gpu.name} (SM {gpu.sm})", versions)


def _flash_attention(dtype: str, gpu: Gpu | None) -> Iterator[_Reason]:
    if dtype == "fp8_e5m2":
        yield _Reason("does not support the KV cache type fp8_e5m2", Versions(vllm=">=0.23"))
    elif gpu is not None and not gpu.is_hopper:
        # `flash_attn_supports_fp8`: only FlashAttention 3, on Hopper. Later versions add others.
        only_hopper = Versions(vllm="<0.28")
        yield _Reason(f"does not support an fp8 KV cache on {gpu.name} (SM {gpu.sm})", only_hopper)
