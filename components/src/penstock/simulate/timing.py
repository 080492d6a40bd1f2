"""How long a worker's steps take: the worker's configuration for AISimulate.

Sources: aisimulate_core/systems, sdk/common.py and, for the cost of drafting in speculative
decoding, sdk/speculation, 0.13.0 of 2026-10-13. `replay_child.py` passes that cost on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.environments import environments_root
from penstock.errors import Problem, SimulationError
from penstock.manifests.deployment import Engine
from penstock.memory import MemoryInputs
from penstock.models.known import known_id
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.simulate.acceptance import Acceptance
from penstock.text.numbers import count_of
from penstock.text.values import positive_int

DRAFT_SHAPE = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "draft_vocab_size"),
)
LAYER_TIME = "each draft token takes as long as one layer of the model"
_GPT_OSS_120B = dict(zip(DRAFT_SHAPE, (1, 2880, 17280, 64, 8, 64, 201_088, 201_088), strict=True))
# By a part of the draft model's id. NVIDIA's heads: as other repositories state their config.json;
# that they keep the model's vocabulary is assumed, as those of Model Optimizer's recipe do. LMSYS:
# configs/gpt-oss-120B-eagle3.json of SpecForge.
DRAFT_SHAPES: Mapping[str, Mapping[str, int]] = {
    "gpt-oss-120b-Eagle3": _GPT_OSS_120B,
    "EAGLE3-gpt-oss-120b-bf16": {**_GPT_OSS_120B, "draft_vocab_size": 32_000},
}
SYSTEMS: Mapping[str, str] = {
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
}
# gpt-oss's experts in TensorRT-LLM: MXFP4 weights, with 8-bit activations on Blackwell.
# AISimulate's default, 16-bit activations, is 2.8 times as slow there at a batch of 8.
OVERRIDE = "OVERRIDE_QUANT_ALGO"
EXPERTS: Mapping[str, str] = {
    "W4A8_MXFP4_MXFP8": "w4a8_mxfp4_mxfp8",
    "W4A16_MXFP4": "w4a16_mxfp4",
}
CONFIG, MODEL_FILE = "_config.json", "config.json"
FP8_KV = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """How a worker drafts tokens."""

    method: str  # in lower case, with the engine's name of it
    model: str  # id or path of the draft model; empty without one
    tokens: int | None  # per step; None: the engine's default


def drafting_of(worker: Worker) -> Drafting | None:
    """How the worker drafts tokens; None if it decodes without speculation."""
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
    shape = _draft_shape(drafting.model) if drafting.method.startswith("eagle") else None
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
        f"a draft model of {count_of(layers, 'layer')}, hidden size "
        f"{shape['hidden_size']:,}, MLP size {shape['intermediate_size']:,} and a vocabulary of "
        f"{shape['draft_vocab_size']:,}"
    )


def _draft_shape(model: str) -> Mapping[str, int] | None:
    """The shape from the config.json of a folder on this machine, or of a known draft model."""
    file = Path(model) / "config.json"
    if model and file.is_file():
        return _read_draft_shape(file)
    return next((shape for part, shape in DRAFT_SHAPES.items() if part in model), None)


def _read_draft_shape(file: Path) -> Mapping[str, int] | None:
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
    sizes = config | dict(config.get("transformer_layer_config", {}))
    if not all(positive_int(sizes.get(name)) for name in DRAFT_SHAPE):
        return None
    return {name: int(sizes[name]) for name in DRAFT_SHAPE}


@dataclass(frozen=True, kw_only=True)
class Timing:
    config: Mapping[str, Any]  # of the `ais` provider
    speculation: Mapping[str, Any]  # further fields of the engine
    not_simulated: tuple[str, ...]
    assumed: tuple[str, ...]


def timing_of(
    serving: ServingDeployment,
    worker: Worker,
    inputs: MemoryInputs,
    worker_type: str,
    acceptance: Acceptance | None,
) -> Timing:
    """SimulationError if there are no measurements of the GPU."""
    if inputs.gpu.name not in SYSTEMS:
        message = f"no kernels were measured on {inputs.gpu.name}"
        fix = f"Set one of {', '.join(SYSTEMS)}."
        raise SimulationError(message, place="hardware.gpu", fix=fix)
    ranks = inputs.attention_ranks
    not_simulated: list[str] = []
    assumed: list[str] = []
    config: dict[str, Any] = {
        "model": _model_name(serving, inputs),
        "system": SYSTEMS[inputs.gpu.name],
        "backend": str(worker.engine),
        "worker_type": worker_type,
        "tp": max(1, inputs.tp // ranks),
        "attention_dp": ranks,
        "kvcache_quant_mode": "fp8" if inputs.kv_dtype in FP8_KV else "bfloat16",
    }
    if inputs.pp > 1:
        config["pp"] = inputs.pp
    if inputs.model.parts.experts:
        config |= _experts(worker, inputs, not_simulated)
    return Timing(
        config=config,
        speculation=_speculation(worker, config, acceptance, not_simulated, assumed),
        not_simulated=tuple(not_simulated),
        assumed=tuple(assumed),
    )


def measured_models() -> dict[str, Path]:
    """The files with the configurations of the measured models, by their id on the model hub."""
    site = (environments_root() / "sim" / "lib").glob("python3.*/site-packages/aisimulate_core")
    files = [file for package in site for file in (package / "model_configs").glob(f"*{CONFIG}")]
    plain = [file for file in files if not file.name.endswith(f"_hf_quant{CONFIG}")]
    return {file.name.removesuffix(CONFIG).replace("--", "/", 1): file for file in plain}


def _model_name(serving: ServingDeployment, inputs: MemoryInputs) -> str:
    """What AISimulate takes: the id of a measured model, or a folder on this machine.

    The path of a folder on a cluster's volume is neither. SimulationError if nothing else is known.
    """
    setting = next((w.settings.common("model") for w in serving.workers), None)
    name = str(setting.value) if setting else inputs.model.name
    if (Path(name) / MODEL_FILE).is_file():
        return name
    requested = serving.model_name if serving.is_graph else name
    if requested in measured_models():
        return str(requested)
    if serving.model_folder is not None:
        return str(serving.model_folder)
    if (known := known_id(requested or name)) is not None:
        return known
    if not name.startswith(("/", ".", "~")):
        return name  # an id, which AISimulate may download
    message = f"there is no {name}/{MODEL_FILE} on this machine, and {requested} was not measured"
    fix = "Add --model DIR, a folder on this machine with the model's config.json."
    raise SimulationError(message, place="model", fix=fix)


def _experts(worker: Worker, inputs: MemoryInputs, not_simulated: list[str]) -> Mapping[str, Any]:
    world = inputs.tp * inputs.data_parallel
    ep = max(1, inputs.ep)
    sizes: dict[str, Any] = {"moe_ep_size": ep, "moe_tp_size": max(1, world // ep)}
    if worker.is_trtllm and inputs.model.is_gpt_oss:
        default = "W4A8_MXFP4_MXFP8" if inputs.gpu.is_blackwell else ""
        mode = worker.env(OVERRIDE) or default
        if mode in EXPERTS:
            sizes["moe_quant_mode"] = EXPERTS[mode]
        elif mode:
            used = "using MXFP4 with 16-bit activations, which were measured, instead"
            not_simulated.append(f"{OVERRIDE}={mode}: {used}")
    return sizes


def _speculation(
    worker: Worker,
    config: dict[str, Any],
    acceptance: Acceptance | None,
    not_simulated: list[str],
    assumed: list[str],
) -> Mapping[str, Any]:
    drafting = drafting_of(worker)
    if drafting is None:
        return {}
    if acceptance is None:
        not_simulated.append("speculative decoding, as --acceptance is not set")
        return {}
    rates = acceptance.rates[: drafting.tokens]
    if drafting.tokens and len(rates) < drafting.tokens:
        missing = f"using {count_of(len(rates), 'draft token')}, as --acceptance has no more rates"
        not_simulated.append(f"{drafting.tokens} draft tokens: {missing}")
    config["nextn"] = len(rates)
    cost = draft_cost(drafting, len(rates)) if acceptance.prices_draft else None
    if cost is not None:
        config["speculation"] = cost
    if (note := cost_note(cost)) is not None:
        assumed.append(note)
    not_simulated.append("the CPU time of drafting and verifying tokens")
    written = ",".join(f"{rate:g}" for rate in rates)
    return {"aic_nextn": len(rates), "aic_nextn_accept_rates": written}
