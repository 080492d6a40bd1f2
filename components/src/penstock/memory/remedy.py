"""Find the smallest change that makes a worker fit its GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.hardware import Gpu
from penstock.memory.budget import MemoryBudget, MemoryInputs, memory_budget
from penstock.models import ModelShape

STEP = 1024  # a remedy's context length is a multiple of this many tokens
HIGHEST = 0.9  # memory fraction that leaves memory for later growth


@dataclass(frozen=True, kw_only=True)
class Remedy:
    # The change, as an instruction.
    text: str
    # Fields of `MemoryInputs` with their new values.
    changes: Mapping[str, Any] = field(default_factory=dict)


def remedy(inputs: MemoryInputs, fits: Callable[[MemoryBudget], bool]) -> Remedy | None:
    """The first change that ``fits`` accepts, from the cheapest to the most expensive."""
    for candidate in _candidates(inputs, fits):
        if fits(memory_budget(replace(inputs, **candidate.changes))):
            return candidate
    return None


def _candidates(inputs: MemoryInputs, fits: Callable[[MemoryBudget], bool]) -> Iterator[Remedy]:
    yield from _unset(inputs)
    yield from _fraction(inputs, fits)
    yield from _fp8(inputs)
    yield from _shorter(inputs, fits)
    yield from _more_gpus(inputs)


def _unset(inputs: MemoryInputs) -> Iterator[Remedy]:
    """Without the configured limits: the engine fills the free memory."""
    limits = ("max_kv_tokens", "set_pool_gib")
    changes = {name: None for name in limits if getattr(inputs, name) is not None}
    if changes:
        yield Remedy(text="Let the engine use all free memory.", changes=changes)


def _fraction(inputs: MemoryInputs, fits: Callable[[MemoryBudget], bool]) -> Iterator[Remedy]:
    """The lowest fraction, in hundredths, that ``fits`` accepts."""
    if inputs.set_pool_gib is not None:
        return  # the engine ignores the fraction, or uses the smaller limit
    for percent in range(int(inputs.fraction * 100) + 1, int(HIGHEST * 100) + 1):
        budget = memory_budget(replace(inputs, fraction=percent / 100))
        left = (1 - percent / 100) * inputs.gpu.memory_gib
        if sum(line.gib for line in budget.beside) > left:
            return  # activations and graphs need the rest
        if fits(budget):
            text = f"Raise the memory fraction to {percent / 100:g}."
            yield Remedy(text=text, changes={"fraction": percent / 100})
            return


def lacks_fp8_kv(engine: str, gpu: Gpu | None, model: ModelShape | None) -> bool:
    """Whether the engine has no fp8 KV kernels: TensorRT-LLM for gpt-oss on Hopper."""
    if engine != "trtllm" or gpu is None or model is None:
        return False
    return gpu.is_hopper and model.is_gpt_oss


def _fp8(inputs: MemoryInputs) -> Iterator[Remedy]:
    """An fp8 KV cache, which takes half the bytes."""
    if inputs.kv_dtype == "auto" and not lacks_fp8_kv(inputs.engine, inputs.gpu, inputs.model):
        name = "fp8_e4m3" if inputs.engine == "sglang" else "fp8"
        yield Remedy(text="Store the KV cache as fp8.", changes={"kv_dtype": name})


def _shorter(inputs: MemoryInputs, fits: Callable[[MemoryBudget], bool]) -> Iterator[Remedy]:
    """The longest context that ``fits`` accepts; transfer buffers shrink with it."""
    low, high = 1, inputs.context // STEP
    best = 0
    while low <= high:
        middle = (low + high) // 2
        if fits(memory_budget(replace(inputs, **_context(inputs, middle * STEP)))):
            best, low = middle, middle + 1
        else:
            high = middle - 1
    if best:
        text = f"Set the context length to {best * STEP:,} tokens."
        yield Remedy(text=text, changes=_context(inputs, best * STEP))


def _context(inputs: MemoryInputs, tokens: int) -> dict[str, Any]:
    return {"context": tokens, "buffer_tokens": min(inputs.buffer_tokens, tokens)}


def _more_gpus(inputs: MemoryInputs) -> Iterator[Remedy]:
    size = inputs.tp * 2
    while size <= inputs.gpu.gpus_per_node:
        if inputs.model.heads % size == 0:
            changes = {"tp": size, "ep": size if inputs.ep > 1 else inputs.ep}
            yield Remedy(text=f"Use tensor parallelism over {size} GPUs.", changes=changes)
        size *= 2
