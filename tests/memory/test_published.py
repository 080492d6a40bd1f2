"""The memory model against what engines logged: published.yaml, each with its source.

`pytest tests/memory/test_published.py -s` prints the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.hardware import GPUS, Gpu
from penstock.memory import MemoryInputs, memory_budget
from penstock.models import ModelShape
from penstock.models.config import shape_of

GIB = 2**30
LOGS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("published.yaml").read_text("utf-8")
)


def shape(log: dict[str, Any]) -> ModelShape:
    logged = log["config"]
    gpt_oss = "gpt-oss" in log["model"]
    kind = "gpt_oss" if gpt_oss else "qwen3_moe" if "experts" in logged else "llama"
    return shape_of(
        {
            "model_type": kind,
            "num_hidden_layers": logged["layers"],
            "hidden_size": logged["hidden"],
            "intermediate_size": logged["intermediate"],
            "num_attention_heads": logged["heads"],
            "num_key_value_heads": logged["kv_heads"],
            "head_dim": logged["head_dim"],
            "vocab_size": logged["vocab"],
            "num_experts": logged.get("experts"),
            "moe_intermediate_size": logged.get("moe_intermediate"),
            "tie_word_embeddings": logged.get("tied", False),
            "sliding_window": 128 if gpt_oss else None,
            "layer_types": ["sliding_attention", "full_attention"] * (logged["layers"] // 2)
            if gpt_oss
            else None,
            "quantization_config": {"quant_method": log["quantization"]},
        },
        log["model"],
    )


def inputs(log: dict[str, Any], gpu: Gpu, fraction: float = 0.9) -> MemoryInputs:
    pool = log.get("pool", {})
    return MemoryInputs(
        engine="trtllm" if log["engine"].startswith("tensorrt") else log["engine"].split()[0],
        gpu=gpu,
        model=shape(log),
        tp=log["tp"],
        pp=log["pp"],
        ep=1,
        fraction=fraction,
        kv_dtype=log["kv_dtype"],
        block_size=16,
        context=8192,
        max_sequences=pool.get("sequences", 256),
        max_batch_tokens=pool.get("tokens", 2048),
    )


def named(log: dict[str, Any]) -> str:
    return f"{log['model']} on {log['gpu']} TP{log['tp']} PP{log['pp']} ({log['engine']})"


WITH_TOKENS = [log for log in LOGS if "kv_tokens" in log]
WITH_WEIGHTS = [log for log in LOGS if "weights_gib" in log]
WITH_POOL = [log for log in LOGS if "pool" in log]


@pytest.mark.parametrize("log", WITH_TOKENS, ids=named)
def test_kv_tokens_match_the_log(log: dict[str, Any]) -> None:
    budget = memory_budget(inputs(log, GPUS["h100"]))
    predicted = log["kv_gib"] * GIB / budget.token_bytes
    print(f"\n{named(log)}: {log['kv_tokens']:,} tokens logged, {predicted:,.0f} computed")
    assert predicted == pytest.approx(log["kv_tokens"], rel=0.015)


@pytest.mark.parametrize("log", WITH_WEIGHTS, ids=named)
def test_weights_match_the_log(log: dict[str, Any]) -> None:
    weights = memory_budget(inputs(log, GPUS["h100"])).lines[0]
    print(f"\n{named(log)}: {log['weights_gib']:.2f} GiB logged, {weights.gib:.2f} computed")
    assert weights.gib == pytest.approx(log["weights_gib"], rel=0.05)


@pytest.mark.parametrize("log", WITH_POOL, ids=named)
def test_the_memory_left_for_kv_is_close_to_the_log(log: dict[str, Any]) -> None:
    """The estimates (runtime, activations, graphs) of current vLLM, as a share of the GPU."""
    pool = log["pool"]
    gpu = Gpu(**{**vars(GPUS["h100"]), "memory_gib": pool["total_gib"]})
    budget = memory_budget(inputs(log, gpu, pool["fraction"]))
    print(f"\n{named(log)}: {pool['kv_gib']:.1f} GiB of KV logged, {budget.pool_gib:.1f} computed")
    assert budget.pool_gib == pytest.approx(pool["kv_gib"], abs=0.05 * pool["total_gib"])


def test_there_are_enough_sources() -> None:
    assert len(WITH_TOKENS) >= 15
    assert len({log["source"] for log in WITH_TOKENS}) >= 10
    assert {log["engine"].split()[0] for log in LOGS} == {"vllm", "sglang", "tensorrt-llm"}
