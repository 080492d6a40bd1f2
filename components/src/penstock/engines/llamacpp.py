"""llama.cpp: the configuration of penstock's own worker (`penstock.llamacpp`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engines.engine import (
    Effective,
    Mode,
    NoSimulation,
    Switch,
    Unset,
    Value,
    explicit_endpoint,
    parser_lines,
)
from penstock.engines.parsers import NotParsed, Parsed
from penstock.manifests.deployment import Component, Launch

MODES = {"agg": Mode.AGG, "prefill": Mode.PREFILL, "decode": Mode.DECODE}


def effective(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Effective | NoSimulation:
    """Its configuration, which the worker's own parser reads."""
    if isinstance(parsed, NotParsed):
        return NoSimulation(reason=f"its command line could not be parsed: {parsed.reason}")
    settings = parsed.settings
    options = settings["engine_args"]
    length = options["n_ctx_seq"]
    name = settings["served_model_name"]
    unset = "llama.cpp takes it from the model"
    return Effective(
        backend="vllm",
        mode=MODES[settings["disaggregation_mode"]],
        model=str(settings["model"]),
        served_names=(name,) if name else (),
        block_size=Value(options["block_size"], "block_size"),
        max_sequences=Value(options["n_parallel"], "n_parallel"),
        max_batch_tokens=Value(options["n_batch"], "n_batch"),
        max_length=Unset(unset) if length is None else Value(length, "n_ctx_seq"),
        kv_blocks=_kv_blocks(options),
        ranks=Value(1, "llama.cpp has one rank"),
        prefix_caching=Switch(True, "cache_prompt"),
        chunked_prefill=Switch(True, "n_batch"),
        kv_events=Switch(settings["disaggregation_mode"] != "decode", "the worker publishes them"),
        endpoint=explicit_endpoint(launch, settings),
        not_simulated=parser_lines(settings),
    )


def _kv_blocks(options: Mapping[str, Any]) -> Value | Unset:
    """The slots' contexts in blocks."""
    length = options["n_ctx_seq"]
    if length is None:
        return Unset("llama.cpp takes it from the model")
    blocks = options["n_parallel"] * length // options["block_size"]
    return Value(max(1, blocks), "n_parallel × n_ctx_seq")
