"""What SGLang decides about its memory where nobody says it.

After sglang/srt/arg_groups/memory_hook.py and model_executor/pool_configurator.py 0.5.21.
"""

from __future__ import annotations

from penstock.hardware import Gpu
from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelShape
from penstock.positive_int import positive_int
from penstock.serving.worker import Worker

MIB = 1024  # of one GiB
# Kinds whose sliding layers have a pool of their own (`is_hybrid_swa_model`).
WITH_WINDOW_POOL = ("gpt_oss",)
WINDOW_SHARE = 0.8  # swa-full-tokens-ratio
LARGE_GIB = 160  # from here on steps and graphs are larger


def sglang_fraction(worker: Worker, gpu: Gpu, model: ModelShape) -> float:
    """mem-fraction-static as SGLang reckons it: the GPU without its reserve."""
    is_large = gpu.memory_gib >= LARGE_GIB
    batch = _decode_batch(worker) or (512 if is_large or worker.tp >= 4 else 256)
    tokens = chunk = _step(worker) or default_step(gpu)
    if worker.role is Role.DECODE:
        drafted = positive_int(worker.get("speculative-num-draft-tokens")) or 1
        tokens = (worker.count("max_sequences") or batch) * drafted
    reserve = 512 + 1.5 * max(tokens, 2048) + worker.tp * worker.pp / 8 * MIB
    has_deepep = worker.get("moe-a2a-backend") == "deepep"
    if worker.role is not Role.PREFILL:
        reserve += batch * 2 if _captures(worker, "decode") else 0
        if worker.has_attention_dp:
            reserve += batch * worker.attention_ranks * (4.5 if batch > 300 else 3)
    if worker.role is not Role.DECODE and _captures(worker, "prefill"):
        sizes = _prefill_sizes(positive_int(worker.get("cuda-graph-max-bs-prefill")) or chunk)
        reserve += 1.5 * MIB if model.is_mla else 8 * sizes
        reserve += MIB if has_deepep else 0
    reserve = max(reserve, 10 * MIB)
    if worker.role is not Role.PREFILL and has_deepep and _captures(worker, "decode"):
        reserve += 2 * MIB
    total = gpu.memory_gib * MIB
    return round((total - reserve) / total, 3)


def default_step(gpu: Gpu) -> int:
    """Tokens of a step where nobody says it."""
    return 16384 if gpu.memory_gib >= LARGE_GIB else 8192


def _step(worker: Worker) -> int | None:
    """Tokens of a prefill step; those of the longest batch where prompts are not chunked."""
    said = worker.value("max_batch_tokens")
    is_off = isinstance(said, int) and said <= 0
    return (
        (positive_int(worker.get("max-prefill-tokens")) or 16384) if is_off else positive_int(said)
    )


def _decode_batch(worker: Worker) -> int | None:
    """The largest batch that decode graphs are captured for, where it is set."""
    listed = worker.get("cuda-graph-bs-decode")
    sizes = [
        n for one in (listed if isinstance(listed, list) else [listed]) if (n := positive_int(one))
    ]
    return max(sizes, default=None) or positive_int(worker.get("cuda-graph-max-bs-decode"))


def _captures(worker: Worker, phase: str) -> bool:
    """Whether graphs of a phase are captured (arg_groups/cuda_graph_hook.py 0.5.21)."""
    backend = worker.get(f"cuda-graph-backend-{phase}")
    if backend is not None:
        return str(backend) != "disabled"
    off = (f"disable-{phase}-cuda-graph", "disable-cuda-graph")
    if any(worker.get(flag) is True for flag in off):
        return False
    is_odd = worker.pp > 1 or worker.dcp > 1 or worker.get("enable-two-batch-overlap") is True
    return phase == "decode" or not is_odd


def _prefill_sizes(most: int) -> int:
    """How many sizes prefill graphs have (`generate_prefill_cuda_graph_batch_sizes`)."""
    steps = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256))
    sizes = [size for step in (*steps, (4608, most + 1, 512)) for size in range(*step)]
    return sum(size <= most for size in sizes)


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
