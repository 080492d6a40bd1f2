"""Memory budgets of gpt-oss on supported GPUs, and the remedy if a worker does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.hardware import GPUS
from penstock.memory import MemoryInputs, Use, memory_budget
from penstock.memory.remedy import remedy
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


def test_120b_barely_fits_one_h100() -> None:
    found = memory_budget(H100)
    assert 0 < found.pool_gib < 0.2 * 79.6
    assert 1 <= found.sequences < 6


def test_tensor_parallelism_divides_weights_and_kv() -> None:
    one, two = memory_budget(H100), memory_budget(replace(H100, tp=2))
    assert two.lines[0].gib == pytest.approx(one.lines[0].gib / 2, rel=0.01)
    assert two.token_bytes == one.token_bytes / 2


def test_kv_heads_are_not_divided_beyond_their_number() -> None:
    assert (
        memory_budget(replace(H100, tp=16)).token_bytes
        == memory_budget(replace(H100, tp=8)).token_bytes
    )


def test_under_attention_dp_each_rank_has_its_own_sequences() -> None:
    shared, own = (
        memory_budget(replace(H100, tp=4)),
        memory_budget(replace(H100, tp=4, attention_ranks=4)),
    )
    assert own.token_bytes == shared.token_bytes * 4
    assert own.lines[0].gib > shared.lines[0].gib  # attention is on every rank


def test_ranks_of_two_gpus_share_a_sequence_between_them() -> None:
    shared, two = (
        memory_budget(replace(H100, tp=4)),
        memory_budget(replace(H100, tp=4, attention_ranks=2)),
    )
    assert two.token_bytes == shared.token_bytes * 2
    assert two.sequences == 2 * two.rank_sequences


def test_offloaded_weights_are_not_on_the_gpu() -> None:
    full, part = memory_budget(H100), memory_budget(replace(H100, offload_gib=10))
    assert full.lines[0].gib - part.lines[0].gib == pytest.approx(10)
    assert memory_budget(replace(H100, offload_gib=1000)).used_gib > 0


def test_fp8_halves_kv_bytes() -> None:
    assert (
        memory_budget(replace(H100, kv_dtype="fp8")).token_bytes
        == memory_budget(H100).token_bytes / 2
    )


def test_sliding_layers_need_little_memory_if_the_engine_frees_them() -> None:
    inputs = replace(H100, engine="vllm", fraction=0.95)
    windows = memory_budget(replace(inputs, has_windows=True)).sequences
    assert windows == pytest.approx(2 * memory_budget(inputs).sequences, rel=0.02)


def test_there_are_two_transfer_buffers() -> None:
    with_buffer = memory_budget(replace(H100, buffer_tokens=32768))
    line = next(line for line in with_buffer.lines if line.use is Use.TRANSFER)
    assert line.gib == pytest.approx(2 * 32768 * 73728 / 2**30)


def test_max_tokens_caps_what_fits() -> None:
    assert memory_budget(replace(H100, max_kv_tokens=1000)).kv_tokens == 1000


def test_the_remedy_of_a_long_context_is_the_longest_that_fits() -> None:
    inputs = replace(H100, context=131072)
    found = remedy(inputs, lambda b: b.sequences >= 1)
    assert found is not None
    changed = memory_budget(replace(inputs, **found.changes))
    assert changed.sequences >= 1
    longer = {**found.changes, "context": found.changes["context"] + 1024}
    assert memory_budget(replace(inputs, **longer)).sequences < 1


def test_fp8_kv_is_not_a_remedy_for_gpt_oss_on_hopper() -> None:
    found = remedy(replace(H100, context=131072), lambda b: b.sequences >= 1)
    assert found is not None
    assert "kv_dtype" not in found.changes
    blackwell = replace(H100, gpu=GPUS["b200"], context=2_000_000)
    other = remedy(blackwell, lambda b: b.sequences >= 1)
    assert other is not None
    assert other.changes == {"kv_dtype": "fp8"}


def test_the_smallest_change_is_to_remove_a_configured_limit() -> None:
    limited = replace(H100, max_kv_tokens=1000)
    found = remedy(limited, lambda b: b.sequences >= 1)
    assert found is not None
    assert found.changes == {"max_kv_tokens": None}


def test_the_next_change_is_the_lowest_sufficient_fraction() -> None:
    inputs = replace(H100, gpu=GPUS["b200"], fraction=0.02)
    found = remedy(inputs, lambda b: b.sequences >= 2)
    assert found is not None
    (fraction,) = found.changes.values()
    assert memory_budget(replace(inputs, fraction=fraction)).sequences >= 2
    assert memory_budget(replace(inputs, fraction=fraction - 0.01)).sequences < 2


def test_a_configured_pool_replaces_vllms_fraction_and_limits_tensorrt_llms() -> None:
    for engine, fraction, pool in (("vllm", 0.1, 4.0), ("trtllm", 0.9, 4.0), ("trtllm", 0.01, 1)):
        inputs = replace(H100, gpu=GPUS["b200"], engine=engine, fraction=fraction, set_pool_gib=4.0)
        assert memory_budget(inputs).pool_gib == pytest.approx(pool, rel=0.2)


def test_a_configured_pool_that_is_too_large_does_not_fit() -> None:
    assert memory_budget(replace(H100, engine="vllm", set_pool_gib=60.0)).pool_gib < 0


def test_weights_that_fit_nowhere_have_no_remedy() -> None:
    huge = replace(H100.model.parts, experts=1e13)
    inputs = replace(H100, model=replace(H100.model, parts=huge))
    assert remedy(inputs, lambda b: b.sequences >= 1) is None
