"""The smallest change that makes a worker fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.hardware import Gpu
from penstock.memory.budget import Budget, Plan, budget
from penstock.models import ModelShape

STEP = 1024  # tokens of context that a remedy is rounded down to
HIGHEST = 0.9  # memory fraction that leaves room for what grows later


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """``text`` says the change; ``changes`` are `Plan` fields with their new values."""

    text: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def remedy(plan: Plan, fits: Callable[[Budget], bool]) -> Remedy | None:
    """The first change that ``fits`` accepts, from the one that costs least to the dearest."""
    for candidate in _candidates(plan, fits):
        if fits(budget(replace(plan, **candidate.changes))):
            return candidate
    return None


def _candidates(plan: Plan, fits: Callable[[Budget], bool]) -> Iterator[Remedy]:
    yield from _unset(plan)
    yield from _fraction(plan, fits)
    yield from _fp8(plan)
    yield from _shorter(plan, fits)
    yield from _more_gpus(plan)


def _unset(plan: Plan) -> Iterator[Remedy]:
    """Without the limits that somebody set: the engine fills what is free."""
    limits = ("max_kv_tokens", "set_pool_gib")
    changes = {name: None for name in limits if getattr(plan, name) is not None}
    if changes:
        yield Remedy(text="let the engine fill what is free", changes=changes)


def _fraction(plan: Plan, fits: Callable[[Budget], bool]) -> Iterator[Remedy]:
    """The lowest fraction, in hundredths, that ``fits`` accepts."""
    if plan.set_pool_gib is not None:
        return  # it counts for nothing, or for less
    for percent in range(int(plan.fraction * 100) + 1, int(HIGHEST * 100) + 1):
        found = budget(replace(plan, fraction=percent / 100))
        left = (1 - percent / 100) * plan.gpu.memory_gib
        if sum(line.gib for line in found.beside) > left:
            return  # activations and graphs need it
        if fits(found):
            text = f"give the cache a memory fraction of {percent / 100:g}"
            yield Remedy(text=text, changes={"fraction": percent / 100})
            return


def lacks_fp8_kv(engine: str, gpu: Gpu | None, model: ModelShape | None) -> bool:
    """Whether the engine refuses fp8 KV: TensorRT-LLM for gpt-oss on Hopper (its kernels)."""
    if engine != "trtllm" or gpu is None or model is None:
        return False
    return gpu.is_hopper and model.is_gpt_oss


def _fp8(plan: Plan) -> Iterator[Remedy]:
    """fp8 KV halves its bytes."""
    if plan.kv_dtype == "auto" and not lacks_fp8_kv(plan.engine, plan.gpu, plan.model):
        name = "fp8_e4m3" if plan.engine == "sglang" else "fp8"
        yield Remedy(text="keep the KV cache in fp8", changes={"kv_dtype": name})


def _shorter(plan: Plan, fits: Callable[[Budget], bool]) -> Iterator[Remedy]:
    """The longest context that ``fits`` accepts; transfer buffers shrink with it."""
    low, high = 1, plan.context // STEP
    best = 0
    while low <= high:
        middle = (low + high) // 2
        if fits(budget(replace(plan, **_context(plan, middle * STEP)))):
            best, low = middle, middle + 1
        else:
            high = middle - 1
    if best:
        text = f"set the context length to {best * STEP:,} tokens"
        yield Remedy(text=text, changes=_context(plan, best * STEP))


def _context(plan: Plan, tokens: int) -> dict[str, Any]:
    return {"context": tokens, "buffer_tokens": min(plan.buffer_tokens, tokens)}


def _more_gpus(plan: Plan) -> Iterator[Remedy]:
    size = plan.tp * 2
    while size <= plan.gpu.gpus_per_node:
        if plan.model.heads % size == 0:
            changes = {"tp": size, "ep": size if plan.ep > 1 else plan.ep}
            yield Remedy(text=f"spread it over {size} GPUs (tensor parallelism)", changes=changes)
        size *= 2
