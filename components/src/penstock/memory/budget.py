"""The memory of one GPU of one worker: its uses, and what is left for the KV cache.

Weights and KV cache follow from the model's shape. The other uses are estimates, each with its
source. Rules check the result; `penstock explain --memory` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import log2

from penstock.hardware import Gpu
from penstock.models import ModelShape
from penstock.text.numbers import limit_text

GIB = 2**30
# AISimulate's figures for TensorRT-LLM's memory outside of PyTorch (context, kernels, NCCL).
TRTLLM_RUNTIME_GIB, NCCL_GIB = 3.5, 0.4
# vLLM's logs, 0.11 to 0.31: 0.13 to 0.26 GiB outside of PyTorch on one GPU, in addition to 0.5 for
# the context; 0.5 more on two GPUs, 1.7 on eight. SGLang (sglang#11716): 1.8 to 2.0 GB on eight.
RUNTIME_GIB, GROUP_GIB_PER_DOUBLING = 0.6, 0.4
# CUDA graphs of all sizes together: 0.4 GiB for 24 layers, 1.0 for 36, 2.4 for 48 in logs.
GRAPH_GIB_PER_LAYER = 0.03
# Peak activations, in bytes per token and hidden value: TensorRT-LLM 1.1 logs 0.85 GiB for 8,192
# tokens of 2,880 values; vLLM 0.19 to 0.31 logs 1.1 to 1.6 GiB including logits (0.10 and 0.11 took
# 5 to 7).
ACTIVATION_BYTES = {"trtllm": 40, "vllm": 20, "sglang": 20}
LEAST_ACTIVATIONS_GIB = 1.0
LOGIT_BYTES = 4
# MXFP4 kernels pad gpt-oss's 2,880 to 3,072: vLLM logs 64.4 GiB for a checkpoint of 60.7 GiB.
GPT_OSS_PADDING = 3072 / 2880
# An EAGLE-3 head of gpt-oss-120b, estimated from one layer and two vocabularies; its size is not
# published.
DRAFT_GIB = 2.5


@dataclass(frozen=True, kw_only=True)
class MemoryInputs:
    """How one worker runs, as far as it decides the memory of one of its GPUs."""

    engine: str
    gpu: Gpu
    model: ModelShape
    tp: int
    pp: int
    ep: int
    # Share of GPU memory, as the engine defines it. `trtllm`: of the memory left after the
    # engine's start. `vllm`: of all memory. `sglang`: of the memory free before the weights load.
    fraction: float
    # `auto` is the type of the weights.
    kv_dtype: str
    block_size: int
    # Longest sequence, in tokens.
    context: int
    max_sequences: int
    max_batch_tokens: int
    # Tokens of one transfer buffer; 0 without one.
    buffer_tokens: int = 0
    graphs: bool = True
    has_windows: bool = False
    # Whether a draft model is loaded; its size is assumed when `draft_shape` is None.
    draft: bool = False
    draft_shape: ModelShape | None = None
    # Configured size of one GPU's cache. `vllm`: replaces the fraction. `trtllm`: the smaller wins.
    set_pool_gib: float | None = None
    # Configured limit of the cache, in tokens.
    max_kv_tokens: int | None = None
    # Groups of GPUs under attention DP, each with its own sequences; 1 without attention DP.
    attention_ranks: int = 1
    # Weights that stay in host memory.
    offload_gib: float = 0.0
    # Data-parallel ranks, each on its own GPUs.
    data_parallel: int = 1
    # GPUs that share one sequence's KV by position.
    decode_contexts: int = 1
    # Share of the tokens that the engine's pool for sliding layers holds.
    window_share: float = 1.0

    @property
    def attention_tp(self) -> int:
        """GPUs that share the attention of one sequence."""
        return max(1, self.tp // self.attention_ranks)


class Use(StrEnum):
    """What memory is used for."""

    WEIGHTS = "weights"
    DRAFT = "draft model"
    RUNTIME = "runtime"
    ACTIVATIONS = "activations"
    GRAPHS = "CUDA graphs"
    TRANSFER = "transfer buffers"


# Uses that SGLang's fraction of memory does not include.
OUTSIDE_FRACTION = (Use.ACTIVATIONS, Use.GRAPHS)


@dataclass(frozen=True)
class Line:
    use: Use
    gib: float
    # The arithmetic.
    how: str


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """The memory of one GPU."""

    inputs: MemoryInputs
    # Uses that come before the KV cache.
    lines: tuple[Line, ...]
    # Memory that the KV cache may take; negative if the other uses do not fit.
    pool_gib: float
    # The arithmetic of `pool_gib`.
    pool_how: str
    # Uses that must fit into the memory that the fraction leaves (`sglang`).
    beside: tuple[Line, ...] = ()

    @property
    def used_gib(self) -> float:
        return sum(line.gib for line in self.lines)

    @cached_property
    def token_bytes(self) -> float:
        """KV bytes of one token on one GPU, all layers counted."""
        return _token_bytes(self.inputs)

    @property
    def kv_tokens(self) -> int:
        """Tokens in the KV cache of one GPU, all layers counted."""
        tokens = int(max(0.0, self.pool_gib) * GIB / self.token_bytes) if self.token_bytes else 0
        limit = self.inputs.max_kv_tokens
        return min(tokens, limit) if limit else tokens

    @property
    def sequences(self) -> float:
        """Sequences of the full context length that fit the worker at once, all ranks together."""
        return self.rank_sequences * self.inputs.attention_ranks * self.inputs.data_parallel

    @property
    def rank_sequences(self) -> float:
        """Sequences of the full context length that fit one rank, which has its own cache."""
        inputs = self.inputs
        sequence = inputs.model.kv_bytes(inputs.context, inputs.block_size, inputs.kv_dtype) or 0
        if inputs.has_windows and sequence and not inputs.max_kv_tokens:
            return max(0.0, self.pool_gib) * GIB / (sequence / kv_split(inputs))
        return self.kv_tokens / inputs.context if inputs.context else 0.0


def kv_split(inputs: MemoryInputs) -> float:
    """The number of GPUs that share one token's KV: TP splits the heads, except under MLA."""
    heads = 1 if inputs.model.is_mla else min(inputs.attention_tp, inputs.model.kv_heads)
    return heads * inputs.pp * inputs.decode_contexts


def _token_bytes(inputs: MemoryInputs) -> float:
    per_token, layers = (
        inputs.model.kv_bytes_per_token(inputs.kv_dtype) or 0,
        len(inputs.model.windows),
    )
    sliding = layers - inputs.model.full_layers
    share = (inputs.model.full_layers + inputs.window_share * sliding) / layers if layers else 1.0
    return per_token * share / kv_split(inputs)


def memory_budget(inputs: MemoryInputs) -> MemoryBudget:
    """The memory of one GPU with ``inputs``."""
    lines = tuple(line for line in _lines(inputs) if line.gib)
    if inputs.engine == "sglang":
        return _sglang(inputs, lines)
    used = sum(line.gib for line in lines)
    pool, how = _pool(inputs, used)
    return MemoryBudget(inputs=inputs, lines=lines, pool_gib=pool, pool_how=how)


def _sglang(inputs: MemoryInputs, lines: tuple[Line, ...]) -> MemoryBudget:
    """The fraction is of the memory free before the weights load, and includes weights and cache;
    activations and graphs use the rest (sglang/srt/mem_cache/kv_cache_configurator.py 0.5.21)."""
    before = tuple(line for line in lines if line.use not in OUTSIDE_FRACTION)
    beside = tuple(line for line in lines if line.use in OUTSIDE_FRACTION)
    runtime = sum(line.gib for line in before if line.use is Use.RUNTIME)
    loaded = sum(line.gib for line in before) - runtime
    total = inputs.gpu.memory_gib
    pool = inputs.fraction * (total - runtime) - loaded
    how = f"{inputs.fraction:g} × ({total:.1f} − {runtime:.1f}) − {loaded:.1f}"
    return MemoryBudget(inputs=inputs, lines=before, pool_gib=pool, pool_how=how, beside=beside)


def _pool(inputs: MemoryInputs, used: float) -> tuple[float, str]:
    """GiB for the KV cache, and the arithmetic."""
    fraction, limit, total = inputs.fraction, inputs.set_pool_gib, inputs.gpu.memory_gib
    if inputs.engine == "trtllm":
        pool = fraction * (total - used)
        if limit is None or pool <= limit:
            return pool, f"{fraction:g} × ({total:.1f} − {used:.1f})"
        return limit, f"{limit:.1f} set"
    if limit is None:
        return fraction * total - used, f"{fraction:g} × {total:.1f} − {used:.1f}"
    if limit <= total - used:
        return limit, f"{limit:.1f} set"
    return total - used - limit, f"{total:.1f} − {used:.1f} − {limit:.1f} set"


def _lines(inputs: MemoryInputs) -> list[Line]:
    grouped = inputs.tp * inputs.pp > 1
    if inputs.engine == "trtllm":
        runtime = TRTLLM_RUNTIME_GIB + (NCCL_GIB if grouped else 0)
        origin = "context, kernels, NCCL (figures from AISimulate)"
    else:
        runtime = RUNTIME_GIB + GROUP_GIB_PER_DOUBLING * log2(inputs.tp * inputs.pp)
        origin = "from logs of vLLM and SGLang"
    return [
        weights(inputs),
        _draft(inputs),
        Line(Use.RUNTIME, runtime, origin),
        _activations(inputs),
        _graphs(inputs),
        _transfer(inputs),
    ]


def weights(inputs: MemoryInputs) -> Line:
    """The checkpoint's bytes on one GPU: attention and embeddings are split over the GPUs that
    share a sequence, experts over TP × EP, layers over PP."""
    model, parts = inputs.model, inputs.model.parts
    padding = GPT_OSS_PADDING if model.is_gpt_oss else 1.0
    shared = (parts.attention + parts.dense) / inputs.attention_tp
    # moe_tp · ep = tp: an expert layer is split over all of the TP group either way.
    experts = parts.experts * padding / max(inputs.tp, inputs.ep)
    tables = (parts.embedding + parts.head) / inputs.attention_tp
    layers = (shared + experts + parts.norms) / inputs.pp
    spread = f"/ TP {inputs.tp}"
    if parts.experts and max(inputs.tp, inputs.ep) != inputs.attention_tp:
        spread = f"experts / {max(inputs.tp, inputs.ep)}, the rest / {inputs.attention_tp}"
    spread += f" / PP {inputs.pp}" if inputs.pp > 1 else ""
    padded = ", experts padded to 3,072" if padding > 1 else ""
    how = f"{parts.total / GIB:.1f} GiB of checkpoint ({model.quantization}) {spread}{padded}"
    gib = (layers + tables) / GIB
    if inputs.offload_gib:
        how += f", {limit_text(inputs.offload_gib)} GiB of them in host memory"
    return Line(Use.WEIGHTS, max(0.0, gib - inputs.offload_gib), how)


def _draft(inputs: MemoryInputs) -> Line:
    if not inputs.draft:
        return Line(Use.DRAFT, 0.0, "")
    if inputs.draft_shape is None:
        return Line(Use.DRAFT, DRAFT_GIB, "assumed, its size is not known")
    gib = inputs.draft_shape.parts.total / inputs.tp / GIB
    return Line(Use.DRAFT, gib, f"its checkpoint / TP {inputs.tp}")


def _activations(inputs: MemoryInputs) -> Line:
    tokens, sequences = inputs.max_batch_tokens, inputs.max_sequences
    each = ACTIVATION_BYTES[inputs.engine]
    gib = tokens * inputs.model.hidden * each / GIB
    how = f"{tokens:,} tokens × {inputs.model.hidden:,} × {each} B"
    if inputs.engine != "trtllm":
        gib += sequences * inputs.model.vocabulary * LOGIT_BYTES / GIB
        how += (
            f" + {sequences:,} sequences × {inputs.model.vocabulary:,} × {LOGIT_BYTES} B, ≥ 1 GiB"
        )
        gib = max(gib, LEAST_ACTIVATIONS_GIB)
    return Line(Use.ACTIVATIONS, gib, how)


def _graphs(inputs: MemoryInputs) -> Line:
    layers = inputs.model.layers / inputs.pp if inputs.graphs else 0
    return Line(Use.GRAPHS, layers * GRAPH_GIB_PER_LAYER, f"{GRAPH_GIB_PER_LAYER} GiB per layer")


def _transfer(inputs: MemoryInputs) -> Line:
    """One send and one receive buffer (TensorRT-LLM's cacheTransBuffer)."""
    per_token = _token_bytes(inputs)
    gib = 2 * inputs.buffer_tokens * per_token / GIB
    how = f"2 × {inputs.buffer_tokens:,} tokens × {per_token / 1024:.1f} KiB"
    return Line(Use.TRANSFER, gib, how)
