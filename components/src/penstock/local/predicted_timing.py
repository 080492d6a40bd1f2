"""Mockers that run with the predicted timing of real hardware: `up --timing model`.

A `TimingSource` returns a `PredictedTiming` each time the graph is read; `adapt` makes programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engines.engine import Mode
from penstock.manifests.source import Source

FILE = "/penstock/timed-engine.json"


@dataclass(frozen=True, kw_only=True)
class PredictedTiming:
    """Mocker configurations with the step times of the graph's hardware."""

    python: str
    """Python of the environment with the measured kernels."""
    engines: Mapping[str, Mapping[str, Any]]
    """Component → its engine as JSON for `dynamo.mocker --extra-engine-args`."""
    notes: tuple[str, ...] = ()
    """Lines for the operator."""


TimingSource = Callable[[Source], PredictedTiming]


def mode(engine: Mapping[str, Any]) -> str:
    kind = str(engine["engine"]["worker_type"])
    return Mode.AGG if kind == "aggregated" else kind


def arguments(engine: Mapping[str, Any]) -> tuple[str, ...]:
    """The mocker's arguments except the model's."""
    token_bytes = engine["engine"].get("kv_transfer_bytes_per_token")
    # By default the mocker computes it from its tokenizer's folder, which may be another model's.
    kv_bytes = () if token_bytes is None else ("--kv-bytes-per-token", str(token_bytes))
    return ("--disaggregation-mode", mode(engine), "--extra-engine-args", FILE, *kv_bytes)


def files(engine: Mapping[str, Any]) -> Mapping[str, str]:
    return {FILE: json.dumps(engine, indent=1, sort_keys=True)}


def describe(engine: Mapping[str, Any]) -> str:
    """`openai/gpt-oss-120b on b200_sxm, tp 1; 78852 KV blocks of 32 tokens, …`."""
    rank = engine["engine"]
    config = rank["timing_model"]["config"]
    ranks = engine["dp_size"]
    several = f"{ranks} data-parallel ranks, each with " if ranks > 1 else ""
    return (
        f"{config['model']} on {config['system']}, tp {config['tp']}; {several}"
        f"{rank['num_gpu_blocks']} KV blocks of {rank['block_size']} tokens, "
        f"{rank['max_num_seqs']} sequences, {rank['max_num_batched_tokens']} tokens per step"
    )
