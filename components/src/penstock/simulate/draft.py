"""What drafting costs in each step of speculative decoding, as a configuration of AISimulate.

AISimulate has a cost model for each method (aisimulate_core/sdk/speculation, 0.13.0 of 2026-10-13).
`timing.py` asks for the configuration, and `replay_child.py` passes it on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import Problem, SimulationError
from penstock.manifests.deployment import Engine
from penstock.serving.worker import Worker
from penstock.text.values import positive_int

SHAPE = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "draft_vocab_size"),
)
LAYER_TIME = "each draft token takes as long as one layer of the model"
_GPT_OSS_120B = dict(zip(SHAPE, (1, 2880, 17280, 64, 8, 64, 201_088, 201_088), strict=True))
# By a part of the draft model's id. NVIDIA's heads: as other repositories state their config.json;
# that they keep the model's vocabulary is assumed, as those of Model Optimizer's recipe do. LMSYS:
# configs/gpt-oss-120B-eagle3.json of SpecForge.
SHAPES: Mapping[str, Mapping[str, int]] = {
    "gpt-oss-120b-Eagle3": _GPT_OSS_120B,
    "EAGLE3-gpt-oss-120b-bf16": {**_GPT_OSS_120B, "draft_vocab_size": 32_000},
}


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """How a worker drafts tokens."""

    method: str  # in lower case, with the engine's name of it
    model: str  # id or path of the draft model; empty without one
    tokens: int | None  # per step; None: the engine's default


def drafting_of(worker: Worker) -> Drafting | None:
    """None if the worker decodes without speculation."""
    value = worker.value("speculation")
    if not value:
        return None
    if worker.engine is Engine.SGLANG:
        return Drafting(
            method=str(value).lower(),
            model=str(worker.get("speculative-draft-model-path") or ""),
            tokens=positive_int(worker.get("speculative-num-steps")),
        )
    section: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    names = ("speculative_model", "speculative_model_dir", "model")
    return Drafting(
        method=str(section.get("decoding_type") or section.get("method") or "").lower(),
        model=next((str(section[name]) for name in names if section.get(name)), ""),
        tokens=positive_int(section.get("max_draft_len") or section.get("num_speculative_tokens")),
    )


def draft_cost(drafting: Drafting, tokens: int) -> Mapping[str, Any] | None:
    """AISimulate's cost model with ``tokens`` draft tokens per step.

    None: its cost model of MTP, in which each draft token takes as long as one layer of the model.
    """
    parameters = {"num_speculative_tokens": tokens}
    if drafting.method.startswith("ngram"):
        return {"kind": "ngram", "params": parameters}
    shape = _shape(drafting.model) if drafting.method.startswith("eagle") else None
    if shape is None:
        return None
    return {"kind": "eagle3", "params": parameters, "draft_config": dict(shape)}


def cost_note(cost: Mapping[str, Any] | None) -> str | None:
    """What the step times assume about the draft model."""
    if cost is None:
        return LAYER_TIME
    if (shape := cost.get("draft_config")) is None:
        return None
    layers = int(shape["num_hidden_layers"])
    return (
        f"a draft model of {layers} layer{'s' if layers > 1 else ''}, hidden size "
        f"{shape['hidden_size']:,}, MLP size {shape['intermediate_size']:,} and a vocabulary of "
        f"{shape['draft_vocab_size']:,}"
    )


def _shape(model: str) -> Mapping[str, int] | None:
    """From the config.json of a folder on this machine, or of a known draft model."""
    file = Path(model) / "config.json"
    if model and file.is_file():
        return _read(file)
    return next((shape for part, shape in SHAPES.items() if part in model), None)


def _read(file: Path) -> Mapping[str, int] | None:
    """SimulationError if the file is not JSON; None if it lacks a part of the shape."""
    try:
        config = dict(json.loads(file.read_text("utf-8")))
    except ValueError as error:
        problem = Problem(
            place=str(file),
            message=f"the shape of the draft model cannot be read: {error}",
            fix="Download the file again.",
        )
        raise SimulationError(problem) from error
    # The Speculators library keeps the shape of the layer apart.
    found = config | dict(config.get("transformer_layer_config", {}))
    if not all(positive_int(found.get(name)) for name in SHAPE):
        return None
    return {name: int(found[name]) for name in SHAPE}
