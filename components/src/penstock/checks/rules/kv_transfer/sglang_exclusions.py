"""Rules about settings that SGLang's disaggregation and hierarchical cache exclude."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.exclusion import Exclusion, results
from penstock.checks.finding import RuleResult
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

RADIX = "disaggregation-decode-enable-radix-cache"
OFFLOAD = "disaggregation-decode-enable-offload-kvcache"
BACKEND, STORAGE = "disaggregation-transfer-backend", "hicache-storage-backend"
STAGING = "SGLANG_DISAGG_STAGING_BUFFER"
LINEAR = "enable-linear-replayssm"


def excluded_by_role(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG:
            continue
        if worker.role is Role.DECODE:
            yield from results(worker, (*_radix_cache(worker), *_decode_context(worker)))
        if worker.role in (Role.PREFILL, Role.DECODE):
            yield from results(worker, _either(worker))
        yield from results(worker, _offload(worker))


def _radix_cache(worker: Worker) -> Iterator[Exclusion]:
    if worker.get(RADIX) is not True:
        return
    method, backend = str(worker.value("speculation") or ""), worker.get(BACKEND)
    if method:
        last = "<0.5.21" if method.upper() == "DSPARK" else "<0.5.22"
        yield Exclusion(
            key=RADIX,
            problem=f"{RADIX} excludes speculative decoding ({method})",
            fix=f"Remove {RADIX}, or speculative-algorithm from the decode workers.",
            versions=f">=0.5.11,{last}",
        )
    if worker.get("enable-hisparse") is True or backend == "fake":
        other = "enable-hisparse" if backend != "fake" else f"{BACKEND} fake"
        yield Exclusion(
            key=RADIX,
            problem=f"{RADIX} excludes {other}",
            fix=f"Remove {RADIX}.",
            versions=">=0.5.11",
        )
    if backend != "nixl":
        yield Exclusion(
            key=RADIX,
            problem=f"{RADIX} requires {BACKEND} nixl, not {backend or 'mooncake, the default'}",
            fix=f"Set {BACKEND} to nixl on both pools, or remove {RADIX}.",
            versions=">=0.5.11,<0.5.14",
        )


def _decode_context(worker: Worker) -> Iterator[Exclusion]:
    size = worker.get("dcp-size") or worker.get("decode-context-parallel-size")
    if size in (None, 1, "1"):
        return
    for key in (RADIX, "enable-hierarchical-cache"):
        if worker.get(key) is True:
            yield Exclusion(
                key=key,
                problem=f"{key} excludes decode context parallelism (dcp-size {size})",
                fix=f"Remove {key}, or dcp-size from the decode workers.",
                versions=">=0.5.18,<0.5.19",
            )


def _either(worker: Worker) -> Iterator[Exclusion]:
    if worker.role is Role.PREFILL and worker.get(BACKEND) == "fake":
        yield Exclusion(
            key=BACKEND,
            problem=f"{BACKEND} fake is not supported on prefill workers",
            fix=f"Set {BACKEND} to nixl or mooncake.",
            versions=">=0.5.10",
        )
    for key, versions in ((LINEAR, ">=0.5.16"), ("enable-response-store", ">=0.5.21")):
        if worker.get(key) is True:
            yield Exclusion(
                key=key,
                problem=f"{key} does not work with disaggregation-mode {worker.role}",
                fix=f"Remove {key}.",
                versions=f"{versions}",
            )
    if worker.get("mamba-radix-cache-strategy") == "extra_buffer_lazy":
        yield Exclusion(
            key="mamba-radix-cache-strategy",
            problem=f"extra_buffer_lazy does not work with disaggregation-mode {worker.role}",
            fix="Set mamba-radix-cache-strategy to extra_buffer.",
            versions=">=0.5.14",
        )
    if worker.get("dsv4-attn-backend") == "trtllm" and _is_deepseek_v4(worker):
        yield Exclusion(
            key="dsv4-attn-backend",
            problem=f"dsv4-attn-backend trtllm excludes disaggregation-mode {worker.role}",
            fix="Remove dsv4-attn-backend from both pools.",
            versions=">=0.5.21",
        )
    staged = str(worker.env(STAGING) or "").lower() in ("1", "true", "yes", "y")
    if staged and (worker.get(BACKEND) or "mooncake") != "mooncake":
        yield Exclusion(
            key=BACKEND,
            problem=f"{STAGING} requires {BACKEND} mooncake, not {worker.get(BACKEND)}",
            fix=f"Remove {STAGING}, or set {BACKEND} to mooncake.",
            versions=">=0.5.10,<0.5.14",
        )


def _offload(worker: Worker) -> Iterator[Exclusion]:
    if worker.get(OFFLOAD) is not True:
        return
    if worker.role is not Role.DECODE:
        problem, fix, first = f"{OFFLOAD} is only for decode workers", f"Remove {OFFLOAD}.", "0.5.6"
    elif not worker.get(STORAGE):
        problem, fix, first = f"{OFFLOAD} requires {STORAGE}", f"Set {STORAGE}.", "0.5.21"
    else:
        return
    yield Exclusion(key=OFFLOAD, problem=problem, fix=fix, versions=f">={first}")


def _is_deepseek_v4(worker: Worker) -> bool:
    """`apply_deepseek_v4_defaults` runs only for these models."""
    return "deepseek-v4" in str(worker.value("model") or "").lower()
