"""The memory of one GPU of one worker: its uses, and what is left for the KV cache.

Weights and KV cache follow from the model's shape. The other uses are estimates, each with its
source. Rules check the result; `penstock explain --memory` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from penstock.hardware import Gpu
from penstock.models import ModelShape
from penstock.text.numbers import limit_text

GIB = 2**30
Release = tuple[int, int]


@dataclass(frozen=True)
class VllmProfile:
    """What vLLM needs outside of the KV cache from a release on."""

    since: Release
    # Bytes for each sequence and vocabulary entry when the profile run samples.
    logit_bytes: int
    # GiB outside of PyTorch on one GPU, and in addition with TP over NVLink.
    runtime_gib: tuple[float, float]
    # Whether the CUDA graphs count in the fraction, or use the rest of the memory.
    counts_graphs: bool


# The constants are fitted on the logs of tests/memory/published.yaml that are not held out.
# vLLM 0.17 samples in less memory and has workspaces for FlashInfer's all-reduce; 0.20 counts an
# estimate of the graphs; 0.26 has a new model runner, which counts them from 0.28 on.
VLLM = (
    VllmProfile((0, 0), 38, (0.15, 0.4), counts_graphs=False),
    VllmProfile((0, 17), 14, (0.25, 1.85), counts_graphs=False),
    VllmProfile((0, 20), 14, (0.25, 1.85), counts_graphs=True),
    VllmProfile((0, 26), 8, (0.25, 1.85), counts_graphs=False),
    VllmProfile((0, 28), 8, (0.25, 1.85), counts_graphs=True),
)
# GiB outside of PyTorch on one GPU, and in addition on each of several.
RUNTIME_GIB = {"trtllm": (1.5, 5.0), "sglang": (0.6, 1.2)}
GRAPHS_GIB, GRAPH_GIB_PER_LAYER = 0.5, 0.01  # of all sizes together
# Peak activations, in bytes per token and hidden value. vLLM: and for each expert of a token.
ACTIVATION_BYTES = {"trtllm": 40, "vllm": 5, "sglang": 20}
EXPERT_BYTES = 4
LEAST_ACTIVATIONS_GIB = 1.0
LOGIT_BYTES = 4  # SGLang's
# The cache differs from a log's by at most 1 GiB and this share of the other uses, in so many of
# the held-out logs. Logs do not state all flags; this counts too.
ERROR_GIB = 1.0
ERROR_SHARE = {"vllm": 0.02, "trtllm": 0.05, "sglang": 0.1}
WITHIN = {"vllm": (21, 24), "trtllm": (11, 11), "sglang": (3, 3)}
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
    # The engine's release, such as (0, 31); the newest if None.
    release: Release | None = None

    @property
    def attention_tp(self) -> int:
        """GPUs that share the attention of one sequence."""
        return max(1, self.tp // self.attention_ranks)

    @property
    def vllm(self) -> VllmProfile:
        """What vLLM of this release needs."""
        return [p for p in VLLM if self.release is None or p.since <= self.release][-1]


class Use(StrEnum):
    """What memory is used for."""

    WEIGHTS = "weights"
    DRAFT = "draft model"
    RUNTIME = "runtime"
    ACTIVATIONS = "activations"
    GRAPHS = "CUDA graphs"
    TRANSFER = "transfer buffers"


def outside_fraction(inputs: MemoryInputs) -> tuple[Use, ...]:
    """Uses that the engine's fraction of memory does not include."""
    if inputs.engine == "sglang":
        return (Use.ACTIVATIONS, Use.GRAPHS)
    return (Use.GRAPHS,) if inputs.engine == "vllm" and not inputs.vllm.counts_graphs else ()


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
    # Uses that must fit into the memory that the fraction leaves (`outside_fraction`).
    beside: tuple[Line, ...] = ()

    @property
    def used_gib(self) -> float:
        return sum(line.gib for line in self.lines)

    @cached_property
    def token_bytes(self) -> float:
        """KV bytes of one token on one GPU, all layers counted."""
        return _token_bytes(self.inputs)

    @property
    def error_gib(self) -> float:
        """How much larger or smaller the KV cache may be; 0 if its size is configured and fits."""
        if self.pool_gib == self.inputs.set_pool_gib:
            return 0.0
        return ERROR_GIB + ERROR_SHARE[self.inputs.engine] * self.used_gib

    @property
    def kv_error(self) -> float:
        """Half of the width of the range of the KV cache, as a share of the cache; at most 1."""
        return min(1.0, self.error_gib / self.pool_gib) if self.pool_gib > 0 else 1.0

    @property
    def smallest(self) -> MemoryBudget:
        """The budget at the lower end of the range."""
        return replace(self, pool_gib=self.pool_gib - self.error_gib)

    @property
    def largest(self) -> MemoryBudget:
        """The budget at the upper end of the range."""
        return replace(self, pool_gib=self.pool_gib + self.error_gib)

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
    lines = [line for line in _lines(inputs) if line.gib]
    before = tuple(line for line in lines if line.use not in outside_fraction(inputs))
    beside = tuple(line for line in lines if line not in before)
    pool, how = (_sglang if inputs.engine == "sglang" else _pool)(inputs, before)
    return MemoryBudget(inputs=inputs, lines=before, pool_gib=pool, pool_how=how, beside=beside)


def _sglang(inputs: MemoryInputs, lines: tuple[Line, ...]) -> tuple[float, str]:
    """The fraction is of the memory free before the weights load, and includes weights and cache
    (sglang/srt/mem_cache/kv_cache_configurator.py 0.5.21)."""
    runtime = sum(line.gib for line in lines if line.use is Use.RUNTIME)
    loaded = sum(line.gib for line in lines) - runtime
    fraction, total = inputs.fraction, inputs.gpu.memory_gib
    how = f"{fraction:g} × ({total:.1f} − {runtime:.1f}) − {loaded:.1f}"
    return fraction * (total - runtime) - loaded, how


def _pool(inputs: MemoryInputs, lines: tuple[Line, ...]) -> tuple[float, str]:
    """GiB for the KV cache, and the arithmetic."""
    used = sum(line.gib for line in lines)
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
    return [
        weights(inputs),
        _draft(inputs),
        _runtime(inputs),
        _activations(inputs),
        _graphs(inputs),
        _transfer(inputs),
    ]


def _runtime(inputs: MemoryInputs) -> Line:
    is_vllm = inputs.engine == "vllm"
    gib, group = inputs.vllm.runtime_gib if is_vllm else RUNTIME_GIB[inputs.engine]
    if is_vllm and not inputs.gpu.nvlink_gbs:
        group = VLLM[0].runtime_gib[1]  # without FlashInfer's workspaces
    gib += group if inputs.tp > 1 or (inputs.pp > 1 and not is_vllm) else 0
    return Line(Use.RUNTIME, gib, "outside of PyTorch, from logs")


def weights(inputs: MemoryInputs) -> Line:
    """The checkpoint's bytes on one GPU: attention and embeddings are split over the GPUs that
    share a sequence, experts over TP × EP, layers over PP."""
    model, parts = inputs.model, inputs.model.parts
    padding = GPT_OSS_PADDING if model.is_gpt_oss else 1.0
    shared = (parts.attention + parts.dense) / inputs.attention_tp
    # moe_tp · ep = tp: an expert layer is split over all of the TP group either way.
    experts = parts.experts * padding / max(inputs.tp, inputs.ep)
    # TensorRT-LLM's DeepSeek has all embeddings on each GPU.
    copies = inputs.attention_tp if model.is_mla and inputs.engine == "trtllm" else 1
    tables = (parts.embedding * copies + parts.head) / inputs.attention_tp
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
    tokens, sequences, model = inputs.max_batch_tokens, inputs.max_sequences, inputs.model
    each = ACTIVATION_BYTES[inputs.engine]
    if inputs.engine == "vllm":
        each += EXPERT_BYTES * model.experts_per_token
    gib = tokens * model.hidden * each / GIB
    how = f"{tokens:,} tokens × {model.hidden:,} × {each} B"
    if inputs.engine != "trtllm":
        logit = inputs.vllm.logit_bytes if inputs.engine == "vllm" else LOGIT_BYTES
        gib += sequences * model.vocabulary * logit / GIB
        how += f" + {sequences:,} sequences × {model.vocabulary:,} × {logit} B, ≥ 1 GiB"
        gib = max(gib, LEAST_ACTIVATIONS_GIB)
    return Line(Use.ACTIVATIONS, gib, how)


def _graphs(inputs: MemoryInputs) -> Line:
    gib = GRAPHS_GIB + inputs.model.layers / inputs.pp * GRAPH_GIB_PER_LAYER
    how = f"{GRAPHS_GIB} GiB + {GRAPH_GIB_PER_LAYER} GiB per layer"
    return Line(Use.GRAPHS, gib * inputs.graphs, how)


def _transfer(inputs: MemoryInputs) -> Line:
    """One send and one receive buffer (TensorRT-LLM's cacheTransBuffer)."""
    per_token = _token_bytes(inputs)
    gib = 2 * inputs.buffer_tokens * per_token / GIB
    how = f"2 × {inputs.buffer_tokens:,} tokens × {per_token / 1024:.1f} KiB"
    return Line(Use.TRANSFER, gib, how)
