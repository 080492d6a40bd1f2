"""Memory budgets of gpt-oss on supported GPUs, and the remedy if a worker does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.hardware import GPUS
from penstock.memory import MemoryBudget, MemoryInputs, Use, memory_budget
from penstock.memory.remedy import Remedy, remedy
from penstock.memory.table import as_text
from penstock.models import find_model

H100 = MemoryInputs(
    engine="trtllm",
    gpu=GPUS["h100"],
    model=find_model("openai/gpt-oss-120b"),
    tp=1,
    pp=1,
    ep=1,
    fraction=0.9,
    kv_dtype="auto",
    block_size=32,
    context=32768,
    max_sequences=64,
    max_batch_tokens=8192,
)


def budget(**changes: Any) -> MemoryBudget:
    return memory_budget(replace(H100, **changes))


def least(inputs: MemoryInputs, sequences: int = 1) -> Remedy | None:
    """The remedy with which that many sequences fit."""
    return remedy(inputs, lambda changed: changed.sequences >= sequences)


def test_120b_barely_fits_one_h100() -> None:
    assert 0 < budget().pool_gib < 0.2 * 79.6
    assert 1 <= budget().sequences < 6


@pytest.mark.parametrize(
    ("changes", "before", "factor"),
    [
        ({"tp": 2}, {}, 1 / 2),
        ({"tp": 16}, {"tp": 8}, 1),  # there are 8 KV heads
        ({"tp": 4, "attention_ranks": 4}, {"tp": 4}, 4),  # each rank has its own sequences
        ({"tp": 4, "attention_ranks": 2}, {"tp": 4}, 2),
        ({"kv_dtype": "fp8"}, {}, 1 / 2),
    ],
)
def test_kv_bytes_of_a_token_on_one_gpu(
    changes: dict[str, Any], before: dict[str, Any], factor: float
) -> None:
    assert budget(**changes).token_bytes == budget(**before).token_bytes * factor


def test_weights_on_one_gpu() -> None:
    full = budget().lines[0].gib
    assert budget(tp=2).lines[0].gib == pytest.approx(full / 2, rel=0.01)
    attention_on_each = budget(tp=4, attention_ranks=4).lines[0].gib
    assert attention_on_each > budget(tp=4).lines[0].gib
    assert full - budget(offload_gib=10).lines[0].gib == pytest.approx(10)
    assert budget(offload_gib=1000).used_gib > 0


def test_ranks_of_two_gpus_share_a_sequence_between_them() -> None:
    ranks = budget(tp=4, attention_ranks=2)
    assert ranks.sequences == 2 * ranks.rank_sequences


def test_sliding_layers_need_little_memory_if_the_engine_frees_them() -> None:
    changes = {"engine": "vllm", "fraction": 0.95}
    windows = budget(**changes, has_windows=True).sequences
    assert windows == pytest.approx(2 * budget(**changes).sequences, rel=0.02)


def test_there_are_two_transfer_buffers() -> None:
    (line,) = (line for line in budget(buffer_tokens=32768).lines if line.use is Use.TRANSFER)
    assert line.gib == pytest.approx(2 * 32768 * 73728 / 2**30)


def test_max_tokens_caps_what_fits() -> None:
    assert budget(max_kv_tokens=1000).kv_tokens == 1000


def test_the_remedy_of_a_long_context_is_the_longest_that_fits() -> None:
    change = least(replace(H100, context=262144))
    assert change is not None
    assert budget(**change.changes).sequences >= 1
    longer = {**change.changes, "context": change.changes["context"] + 1024}
    assert budget(**longer).sequences < 1
    assert "kv_dtype" not in change.changes, "gpt-oss has no fp8 KV kernels on Hopper"


def test_the_smallest_change_comes_first() -> None:
    """A configured limit goes, then an fp8 KV cache, then the lowest sufficient fraction."""
    limited = least(replace(H100, max_kv_tokens=1000))
    assert limited is not None
    assert limited.changes == {"max_kv_tokens": None}
    blackwell = replace(H100, gpu=GPUS["b200"])
    long = least(replace(blackwell, context=2_000_000))
    assert long is not None
    assert long.changes == {"kv_dtype": "fp8"}
    small = replace(blackwell, fraction=0.02)
    raised = least(small, 2)
    assert raised is not None
    (fraction,) = raised.changes.values()
    assert memory_budget(replace(small, fraction=fraction)).sequences >= 2
    assert memory_budget(replace(small, fraction=fraction - 0.01)).sequences < 2


@pytest.mark.parametrize(
    ("engine", "fraction", "pool"), [("vllm", 0.1, 4.0), ("trtllm", 0.9, 4.0), ("trtllm", 0.01, 1)]
)
def test_a_configured_pool_replaces_vllms_fraction_and_limits_tensorrt_llms(
    engine: str, fraction: float, pool: float
) -> None:
    changes = {"gpu": GPUS["b200"], "engine": engine, "fraction": fraction, "set_pool_gib": 4.0}
    assert budget(**changes).pool_gib == pytest.approx(pool, rel=0.2)


def test_a_configured_pool_that_is_too_large_does_not_fit() -> None:
    assert budget(engine="vllm", set_pool_gib=60.0).pool_gib < 0


def test_weights_that_fit_nowhere_have_no_remedy() -> None:
    huge = replace(H100.model.parts, experts=1e13)
    assert least(replace(H100, model=replace(H100.model, parts=huge))) is None


def test_the_kv_cache_is_a_range() -> None:
    memory = budget()
    low, high = memory.smallest.kv_tokens, memory.largest.kv_tokens
    assert low < memory.kv_tokens < high
    assert memory.kv_error == pytest.approx((high - low) / 2 / memory.kv_tokens, rel=0.01)
    assert budget(fraction=0.01).kv_error == 1
    text = as_text("worker", memory)
    assert f"{low:,} to {high:,} tokens" in text
    assert "11 of 11 published logs" in text


def test_a_configured_kv_cache_that_fits_has_no_range() -> None:
    memory = budget(gpu=GPUS["b200"], set_pool_gib=4.0)
    assert (memory.error_gib, memory.kv_error) == (0, 0)
    assert "as configured" in as_text("worker", memory)


@pytest.mark.parametrize(
    ("old", "new", "least", "most"),
    [
        ((0, 16), (0, 17), 2, 5),  # samples in less memory
        ((0, 17), (0, 20), -1, -0.5),  # counts the graphs
        ((0, 20), None, 0.5, 2),
    ],
)
def test_the_memory_outside_the_kv_cache_depends_on_vllms_release(
    old: tuple[int, int], new: tuple[int, int] | None, least: float, most: float
) -> None:
    changes = {"engine": "vllm", "max_sequences": 1024}
    before = budget(**changes, release=old)
    after = budget(**changes, release=new)
    assert least < after.pool_gib - before.pool_gib < most
    graphs = [line.use for line in before.beside]
    assert graphs == ([] if old == (0, 20) else [Use.GRAPHS])
