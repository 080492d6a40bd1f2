"""One GPU of one worker: what its memory goes to, in order, and what is left for KV cache.

Weights and KV come from the model's shape. The rest are estimates, each with its source; `checks`
judges the outcome and `penstock explain --memory` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log2

from penstock.hardware import Gpu
from penstock.models import ModelShape

GIB = 2**30
# AISimulate's figures for what TensorRT-LLM holds outside of PyTorch (context, kernels, NCCL).
TRTLLM_RUNTIME_GIB, NCCL_GIB = 3.5, 0.4
# vLLM's logs of 0.11 to 0.31: 0.13 to 0.26 GiB outside PyTorch on one GPU beside the context's 0.5,
# 0.5 more on two, 1.7 on eight; SGLang's (sglang#11716): 1.8 to 2.0 GB on eight.
RUNTIME_GIB, GROUP_GIB_PER_DOUBLING = 0.6, 0.4
# CUDA graphs, all sizes together: logs have 0.4 GiB for 24 layers, 1.0 for 36, 2.4 for 48.
GRAPH_GIB_PER_LAYER = 0.03
# Activations at their peak, in bytes for each token and hidden value: TensorRT-LLM 1.1 logs
# 0.85 GiB for 8,192 tokens of 2,880 values; vLLM 0.19 to 0.31 log 1.1 to 1.6 GiB, logits included
# (0.10 and 0.11 took 5 to 7).
ACTIVATION_BYTES = {"trtllm": 40, "vllm": 20, "sglang": 20}
LEAST_ACTIVATIONS_GIB = 1.0
LOGIT_BYTES = 4
BESIDE = ("activations", "CUDA graphs")
# Kernels for MXFP4 pad gpt-oss's 2,880 to 3,072: vLLM logs 64.4 GiB for a checkpoint of 60.7.
GPT_OSS_PADDING = 3072 / 2880
# An EAGLE-3 head of gpt-oss-120b: one layer and two vocabularies, as nobody published its size.
DRAFT_GIB = 2.5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How one worker runs. ``fraction`` is of the memory left after the engine's start with
    `trtllm`, of the whole with `vllm`, of what is free before the weights with `sglang`;
    ``kv_dtype`` auto is the weights' type; ``buffer_tokens`` those of one transfer buffer, 0
    without; ``context`` the longest sequence in tokens; ``draft``: with a draft model, of unknown
    shape where ``draft_shape`` is None; ``set_pool_gib``: what somebody set for one GPU, with
    `vllm` instead of the fraction, with `trtllm` the smaller of both; ``max_kv_tokens``: the
    cache's limit; ``attention_ranks``: the groups of attention DP, each with sequences of its own,
    1 without; ``offload_gib``: weights that stay in the host's memory; ``data_parallel``: such
    workers, each on GPUs of its own; ``decode_contexts``: GPUs that share a sequence's KV by
    position; ``window_share``: of a token's KV in sliding layers, the part for which the engine has
    room."""

    engine: str
    gpu: Gpu
    model: ModelShape
    tp: int
    pp: int
    ep: int
    fraction: float
    kv_dtype: str
    block_size: int
    context: int
    max_sequences: int
    max_batch_tokens: int
    buffer_tokens: int = 0
    graphs: bool = True
    has_windows: bool = False
    draft: bool = False
    draft_shape: ModelShape | None = None
    set_pool_gib: float | None = None
    max_kv_tokens: int | None = None
    attention_ranks: int = 1
    offload_gib: float = 0.0
    data_parallel: int = 1
    decode_contexts: int = 1
    window_share: float = 1.0

    @property
    def attention_tp(self) -> int:
        """GPUs that share the attention of one sequence."""
        return max(1, self.tp // self.attention_ranks)


@dataclass(frozen=True)
class Line:
    """One use of the GPU's memory: GiB, and how that was reckoned."""

    name: str
    gib: float
    how: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """``lines`` are what is used before the KV cache; ``beside`` what must fit into the memory that
    the fraction leaves (`sglang`). ``pool_gib`` is what the KV cache may take on one GPU; it is
    negative where the rest does not fit."""

    plan: Plan
    lines: tuple[Line, ...]
    pool_gib: float
    pool_how: str
    beside: tuple[Line, ...] = ()

    @property
    def used_gib(self) -> float:
        return sum(line.gib for line in self.lines)

    @cached_property
    def token_bytes(self) -> float:
        """KV bytes of one token on one GPU, all layers counted."""
        return _token_bytes(self.plan)

    @property
    def kv_tokens(self) -> int:
        """Tokens of KV that one GPU holds of the sequences it serves, all layers counted."""
        tokens = int(max(0.0, self.pool_gib) * GIB / self.token_bytes) if self.token_bytes else 0
        limit = self.plan.max_kv_tokens
        return min(tokens, limit) if limit else tokens

    @property
    def sequences(self) -> float:
        """Sequences of the full context length that the worker holds at once, all ranks."""
        return self.rank_sequences * self.plan.attention_ranks * self.plan.data_parallel

    @property
    def rank_sequences(self) -> float:
        """Those that share a cache: each data-parallel rank has its own."""
        plan = self.plan
        whole = plan.model.kv_bytes(plan.context, plan.block_size, plan.kv_dtype) or 0
        if plan.has_windows and whole and not plan.max_kv_tokens:
            return max(0.0, self.pool_gib) * GIB / (whole / kv_split(plan))
        return self.kv_tokens / plan.context if plan.context else 0.0


def kv_split(plan: Plan) -> float:
    """Over how many GPUs one token's KV is spread: its heads by TP, not under MLA."""
    heads = 1 if plan.model.is_mla else min(plan.attention_tp, plan.model.kv_heads)
    return heads * plan.pp * plan.decode_contexts


def _token_bytes(plan: Plan) -> float:
    per_token, layers = plan.model.kv_bytes_per_token(plan.kv_dtype) or 0, len(plan.model.windows)
    sliding = layers - plan.model.full_layers
    share = (plan.model.full_layers + plan.window_share * sliding) / layers if layers else 1.0
    return per_token * share / kv_split(plan)


def budget(plan: Plan) -> Budget:
    """The memory of one GPU under ``plan``."""
    lines = tuple(line for line in _lines(plan) if line.gib)
    if plan.engine == "sglang":
        return _sglang(plan, lines)
    used = sum(line.gib for line in lines)
    pool, how = _pool(plan, used)
    return Budget(plan=plan, lines=lines, pool_gib=pool, pool_how=how)


def _sglang(plan: Plan, lines: tuple[Line, ...]) -> Budget:
    """The fraction is of what is free before the weights, and holds weights and cache; activations
    and graphs have the rest (sglang/srt/mem_cache/kv_cache_configurator.py 0.5.21)."""
    before = tuple(line for line in lines if line.name not in BESIDE)
    beside = tuple(line for line in lines if line.name in BESIDE)
    runtime = sum(line.gib for line in before if line.name == "runtime")
    loaded = sum(line.gib for line in before) - runtime
    total = plan.gpu.memory_gib
    pool = plan.fraction * (total - runtime) - loaded
    how = f"{plan.fraction:g} × ({total:.1f} − {runtime:.1f}) − {loaded:.1f}"
    return Budget(plan=plan, lines=before, pool_gib=pool, pool_how=how, beside=beside)


def _pool(plan: Plan, used: float) -> tuple[float, str]:
    """GiB for KV cache and how that was reckoned."""
    fraction, limit, total = plan.fraction, plan.set_pool_gib, plan.gpu.memory_gib
    if plan.engine == "trtllm":
        pool = fraction * (total - used)
        if limit is None or pool <= limit:
            return pool, f"{fraction:g} × ({total:.1f} − {used:.1f})"
        return limit, f"{limit:.1f} set"
    if limit is None:
        return fraction * total - used, f"{fraction:g} × {total:.1f} − {used:.1f}"
    if limit <= total - used:
        return limit, f"{limit:.1f} set"
    return total - used - limit, f"{total:.1f} − {used:.1f} − {limit:.1f} set"


def _lines(plan: Plan) -> list[Line]:
    grouped = plan.tp * plan.pp > 1
    if plan.engine == "trtllm":
        runtime = TRTLLM_RUNTIME_GIB + (NCCL_GIB if grouped else 0)
        origin = "AISimulate's figures: context, kernels, NCCL"
    else:
        runtime = RUNTIME_GIB + GROUP_GIB_PER_DOUBLING * log2(plan.tp * plan.pp)
        origin = "as logged by vLLM and SGLang"
    return [
        weights(plan),
        _draft(plan),
        Line("runtime", runtime, origin),
        _activations(plan),
        _graphs(plan),
        _transfer(plan),
    ]


def weights(plan: Plan) -> Line:
    """The checkpoint's bytes on one GPU: attention by the GPUs that share it, experts by
    TP × EP, layers by PP, embeddings by TP."""
    model, parts = plan.model, plan.model.parts
    padding = GPT_OSS_PADDING if model.is_gpt_oss else 1.0
    shared = (parts.attention + parts.dense) / plan.attention_tp
    # moe_tp · ep = tp: an expert layer is spread over all of the TP group either way.
    experts = parts.experts * padding / max(plan.tp, plan.ep)
    tables = (parts.embedding + parts.head) / plan.attention_tp
    layers = (shared + experts + parts.norms) / plan.pp
    spread = f"/ TP {plan.tp}"
    if parts.experts and max(plan.tp, plan.ep) != plan.attention_tp:
        spread = f"experts / {max(plan.tp, plan.ep)}, the rest / {plan.attention_tp}"
    spread += f" / PP {plan.pp}" if plan.pp > 1 else ""
    padded = ", experts padded to 3,072" if padding > 1 else ""
    how = f"{parts.total / GIB:.1f} GiB of checkpoint ({model.quantization}) {spread}{padded}"
    gib = (layers + tables) / GIB
    if plan.offload_gib:
        how += f", {plan.offload_gib:g} GiB of them kept by the host"
    return Line("weights", max(0.0, gib - plan.offload_gib), how)


def _draft(plan: Plan) -> Line:
    if not plan.draft:
        return Line("draft model", 0.0, "")
    if plan.draft_shape is None:
        return Line("draft model", DRAFT_GIB, "assumed: its size is not known here")
    gib = plan.draft_shape.parts.total / plan.tp / GIB
    return Line("draft model", gib, f"its checkpoint / TP {plan.tp}")


def _activations(plan: Plan) -> Line:
    tokens, sequences = plan.max_batch_tokens, plan.max_sequences
    each = ACTIVATION_BYTES[plan.engine]
    gib = tokens * plan.model.hidden * each / GIB
    how = f"{tokens:,} tokens × {plan.model.hidden:,} × {each} B"
    if plan.engine != "trtllm":
        gib += sequences * plan.model.vocabulary * LOGIT_BYTES / GIB
        how += f" + {sequences:,} sequences × {plan.model.vocabulary:,} × {LOGIT_BYTES} B, ≥ 1 GiB"
        gib = max(gib, LEAST_ACTIVATIONS_GIB)
    return Line("activations", gib, how)


def _graphs(plan: Plan) -> Line:
    layers = plan.model.layers / plan.pp if plan.graphs else 0
    return Line("CUDA graphs", layers * GRAPH_GIB_PER_LAYER, f"{GRAPH_GIB_PER_LAYER} GiB a layer")


def _transfer(plan: Plan) -> Line:
    """One buffer to send and one to receive (TensorRT-LLM's cacheTransBuffer)."""
    per_token = _token_bytes(plan)
    gib = 2 * plan.buffer_tokens * per_token / GIB
    how = f"2 × {plan.buffer_tokens:,} tokens × {per_token / 1024:.1f} KiB"
    return Line("transfer buffers", gib, how)
