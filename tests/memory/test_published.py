"""The memory model against what engines logged: published.yaml, each with its source.

`pytest tests/memory/test_published.py -s` prints the table.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

from penstock.hardware import GPUS, Gpu
from penstock.memory import MemoryInputs, memory_budget
from penstock.memory.budget import WITHIN
from penstock.models import ModelShape
from penstock.models.config import shape_of
from penstock.models.known import layers_config

GIB = 2**30
LOGS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("published.yaml").read_text("utf-8")
)


# How a log's GPU is called; A100 is in no table of penstock.
NAMES = {"B200": "b200", "B300": "b300", "H200": "h200", "RTX": "rtx-pro-6000"}
# Share of the cache by which most of the held-out logs differ at most: GPUs with 80 GB, and larger.
GOAL_80, GOAL_LARGE = 0.12, 0.06


def shape(log: dict[str, Any]) -> ModelShape:
    section = {"quant_method": log["quantization"]}
    if log["quantization"] == "nvfp4":
        section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["self_attn"]}
    logged = log.get("config")
    if logged is None:
        quantized_of = {"nvidia/DeepSeek-R1-0528-NVFP4-v2": "deepseek-ai/DeepSeek-R1"}
        config = layers_config(quantized_of.get(log["model"], log["model"]))
        assert config is not None
        return shape_of({**config, "quantization_config": section}, log["model"])
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
            "num_experts_per_tok": logged.get("top"),
            "moe_intermediate_size": logged.get("moe_intermediate"),
            "tie_word_embeddings": logged.get("tied", False),
            "sliding_window": 128 if gpt_oss else None,
            "layer_types": ["sliding_attention", "full_attention"] * (logged["layers"] // 2)
            if gpt_oss
            else None,
            "quantization_config": section,
        },
        log["model"],
    )


def gpu_of(log: dict[str, Any]) -> Gpu:
    gpu = GPUS[NAMES.get(log["gpu"].split()[0], "h100")]
    links = 0 if log["gpu"].startswith("A100") else gpu.nvlink_gbs
    total = log["pool"]["total_gib"] if "pool" in log else gpu.memory_gib
    return replace(gpu, memory_gib=total, nvlink_gbs=links)


def inputs(log: dict[str, Any]) -> MemoryInputs:
    pool = log.get("pool", {})
    engine, *version = log["engine"].split()
    numbers = [int(n) for n in re.findall(r"\d+", " ".join(version))[:2]]
    return MemoryInputs(
        engine="trtllm" if engine.startswith("tensorrt") else engine,
        gpu=gpu_of(log),
        model=shape(log),
        tp=log["tp"],
        pp=log["pp"],
        ep=pool.get("ep", 1),
        fraction=pool.get("fraction", 0.9),
        kv_dtype=log["kv_dtype"],
        block_size=16,
        context=8192,
        max_sequences=pool.get("sequences", 256),
        max_batch_tokens=pool.get("tokens", 2048),
        attention_ranks=pool.get("attention_ranks", 1),
        release=(numbers[0], numbers[1]) if numbers else None,
    )


def named(log: dict[str, Any]) -> str:
    return f"{log['model']} on {log['gpu']} TP{log['tp']} PP{log['pp']} ({log['engine']})"


WITH_TOKENS = [log for log in LOGS if "kv_tokens" in log]
WITH_WEIGHTS = [log for log in LOGS if "weights_gib" in log]
WITH_POOL = [log for log in LOGS if "pool" in log]


HELD_OUT = [log for log in WITH_POOL if sha256(f"46:{log['source']}".encode()).digest()[0] % 2]
LARGE = [log for log in HELD_OUT if log["gpu"] in ("H200", "B200", "B300")]
H100 = [log for log in HELD_OUT if log["gpu"].startswith("H100")]


def error(log: dict[str, Any]) -> float:
    """The share of the logged cache by which the computed cache differs."""
    logged, budget = log["pool"]["kv_gib"], memory_budget(inputs(log))
    share = budget.pool_gib / logged - 1
    print(f"{named(log)}: {logged:.1f} GiB of KV logged, {budget.pool_gib:.1f} ({share:+.1%})")
    return abs(share)


@pytest.mark.parametrize("log", WITH_TOKENS, ids=named)
def test_kv_tokens_match_the_log(log: dict[str, Any]) -> None:
    budget = memory_budget(inputs(log))
    predicted = log["kv_gib"] * GIB / budget.token_bytes
    print(f"\n{named(log)}: {log['kv_tokens']:,} tokens logged, {predicted:,.0f} computed")
    assert predicted == pytest.approx(log["kv_tokens"], rel=0.015)


def test_weights_match_the_log() -> None:
    """SGLang's figures of DeepSeek-R1 include symmetric memory."""
    errors = []
    for log in WITH_WEIGHTS:
        gib = memory_budget(inputs(log)).lines[0].gib
        print(f"{named(log)}: {log['weights_gib']:.2f} GiB logged, {gib:.2f} computed")
        errors.append(abs(gib / log["weights_gib"] - 1))
    assert sum(share <= 0.05 for share in errors) >= 65
    assert max(errors) < 0.12


@pytest.mark.parametrize(
    ("logs", "median_error", "goal", "within"),
    [(H100, 0.01, GOAL_80, 17), (LARGE, 0.04, GOAL_LARGE, 11)],
    ids=["H100", "H200, B200 and B300"],
)
def test_the_kv_cache_of_logs_that_are_held_out(
    logs: list[dict[str, Any]], median_error: float, goal: float, within: int
) -> None:
    errors = [error(log) for log in logs]
    assert median(errors) <= median_error
    assert sum(share <= goal for share in errors) >= within


def test_the_range_has_the_stated_share_of_the_logs() -> None:
    counts: dict[str, tuple[int, int]] = {}
    for log in HELD_OUT:
        budget = memory_budget(inputs(log))
        is_within = abs(budget.pool_gib - log["pool"]["kv_gib"]) <= budget.error_gib
        within, logs = counts.get(budget.inputs.engine, (0, 0))
        counts[budget.inputs.engine] = (within + is_within, logs + 1)
    assert counts == WITHIN


def test_there_are_enough_sources() -> None:
    assert len(WITH_POOL) >= 60
    assert len({log["source"] for log in WITH_TOKENS}) >= 10
    assert {log["engine"].split()[0] for log in WITH_POOL} == {"vllm", "sglang", "tensorrt-llm"}
