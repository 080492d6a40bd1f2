"""SGLang's memory defaults.

From sglang/srt/arg_groups/memory_hook.py and model_executor/pool_configurator.py 0.5.21.
"""

from __future__ import annotations

from penstock.hardware import Gpu
from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelShape
from penstock.serving.worker import Worker
from penstock.text.values import positive_int

MIB = 1024  # in one GiB
# Model types whose sliding layers have a separate pool (`is_hybrid_swa_model`).
WITH_WINDOW_POOL = ("gpt_oss",)
WINDOW_SHARE = 0.8  # swa-full-tokens-ratio
LARGE_GIB = 160  # with this much memory, SGLang uses larger steps and graphs


def sglang_fraction(worker: Worker, gpu: Gpu, model: ModelShape) -> float:
    """SGLang's default of mem-fraction-static: the GPU without its reserve."""
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
    """Default tokens of a step."""
    return 16384 if gpu.memory_gib >= LARGE_GIB else 8192


def _step(worker: Worker) -> int | None:
    """Tokens of a prefill step; without chunked prefill, tokens of the longest batch."""
    tokens = worker.value("max_batch_tokens")
    is_off = isinstance(tokens, int) and tokens <= 0
    if is_off:
        return positive_int(worker.get("max-prefill-tokens")) or 16384
    return positive_int(tokens)


def _decode_batch(worker: Worker) -> int | None:
    """The configured largest batch of decode graphs."""
    listed = worker.get("cuda-graph-bs-decode")
    sizes = [
        n for one in (listed if isinstance(listed, list) else [listed]) if (n := positive_int(one))
    ]
    return max(sizes, default=None) or positive_int(worker.get("cuda-graph-max-bs-decode"))


def _captures(worker: Worker, phase: str) -> bool:
    """Whether CUDA graphs of a phase are captured (arg_groups/cuda_graph_hook.py 0.5.21)."""
    backend = worker.get(f"cuda-graph-backend-{phase}")
    if backend is not None:
        return str(backend) != "disabled"
    off = (f"disable-{phase}-cuda-graph", "disable-cuda-graph")
    if any(worker.get(flag) is True for flag in off):
        return False
    is_odd = worker.pp > 1 or worker.dcp > 1 or worker.get("enable-two-batch-overlap") is True
    return phase == "decode" or not is_odd


def _prefill_sizes(most: int) -> int:
    """Number of prefill graph sizes (`generate_prefill_cuda_graph_batch_sizes`)."""
    steps = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256))
    sizes = [size for step in (*steps, (4608, most + 1, 512)) for size in range(*step)]
    return sum(size <= most for size in sizes)


def has_window_pool(worker: Worker, model: ModelShape) -> bool:
    """Whether sliding layers keep only their window, in a separate pool."""
    is_kind = model.kind in WITH_WINDOW_POOL and worker.engine is Engine.SGLANG
    return is_kind and worker.get("disable-hybrid-swa-memory") is not True


def window_share(worker: Worker, model: ModelShape) -> float:
    """Tokens in the sliding layers' pool for each token in the full layers' pool."""
    if not has_window_pool(worker, model):
        return 1.0
    ratio = worker.get("swa-full-tokens-ratio")
    is_share = isinstance(ratio, (int, float)) and not isinstance(ratio, bool) and 0 < ratio <= 1
    return float(ratio) if is_share else WINDOW_SHARE
