"""What SGLang decides about its memory where nobody says it.

After sglang/srt/arg_groups/memory_hook.py and model_executor/pool_configurator.py 0.5.21.
"""

from __future__ import annotations

from penstock.checks.subject import Worker, whole
from penstock.hardware import Gpu
from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelShape

MIB = 1024  # of one GiB
# Kinds whose sliding layers have a pool of their own (`is_hybrid_swa_model`).
WITH_WINDOW_POOL = ("gpt_oss",)
WINDOW_SHARE = 0.8  # swa-full-tokens-ratio
LARGE_GIB = 160  # from here on steps have 16,384 tokens


def sglang_fraction(worker: Worker, gpu: Gpu, model: ModelShape) -> float:
    """mem-fraction-static as SGLang reckons it: the GPU without its reserve."""
    is_large = gpu.memory_gib >= LARGE_GIB
    batch = whole(worker.get("cuda-graph-max-bs-decode"))
    batch = batch or (512 if is_large or worker.tp >= 4 else 256)
    chunk = worker.count("max_batch_tokens") or (16384 if is_large else 8192)
    if worker.role is Role.DECODE:
        drafted = whole(worker.get("speculative-num-draft-tokens")) or 1
        chunk = (worker.count("max_sequences") or batch) * drafted
    reserve = 512 + 1.5 * max(chunk, 2048) + worker.tp * worker.pp / 8 * MIB
    if worker.role is not Role.PREFILL and worker.get("disable-cuda-graph") is not True:
        reserve += batch * 2
    if worker.role is not Role.PREFILL and worker.has_attention_dp:
        reserve += batch * worker.attention_ranks * (4.5 if batch > 300 else 3)
    if worker.role is not Role.DECODE and model.is_mla:
        reserve += 1.5 * MIB
    reserve = max(reserve, 10 * MIB)
    if worker.role is not Role.PREFILL and worker.get("moe-a2a-backend") == "deepep":
        reserve += 2 * MIB
    total = gpu.memory_gib * MIB
    return round((total - reserve) / total, 3)


def has_window_pool(worker: Worker, model: ModelShape) -> bool:
    """Whether sliding layers keep less than the whole sequence, in a pool of their own."""
    is_kind = model.kind in WITH_WINDOW_POOL and worker.engine is Engine.SGLANG
    return is_kind and worker.get("disable-hybrid-swa-memory") is not True


def window_share(worker: Worker, model: ModelShape) -> float:
    """Tokens that the pool of sliding layers holds for each of the full layers'."""
    if not has_window_pool(worker, model):
        return 1.0
    said = worker.get("swa-full-tokens-ratio")
    is_share = isinstance(said, (int, float)) and not isinstance(said, bool) and 0 < said <= 1
    return float(said) if is_share else WINDOW_SHARE
