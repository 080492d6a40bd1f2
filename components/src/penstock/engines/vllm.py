"""vLLM: its parsed arguments; what it decides at startup by GPU and model is unknown."""

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
    speculation_line,
)
from penstock.engines.parsers import NotParsed, Parsed
from penstock.manifests.deployment import Component, Launch
from penstock.text.values import as_mapping, positive_int

DEFAULT_BLOCK_SIZE = 16  # CacheConfig.DEFAULT_BLOCK_SIZE; an attention backend may prefer another
MODES = {"agg": Mode.AGG, "prefill": Mode.PREFILL, "decode": Mode.DECODE}
# Workers that register no chat model; a mocker instead of them would respond to chat requests.
OTHER_WORKERS = ("embedding_worker", "classify_worker", "realtime", "headless")


def effective(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Effective | NoSimulation:
    """Its configuration; NoSimulation if the mocker has no such worker."""
    if isinstance(parsed, NotParsed):
        return NoSimulation(reason=f"its command line could not be parsed: {parsed.reason}")
    settings = parsed.settings
    mode = MODES.get(settings["disaggregation_mode"])
    if mode is None:
        return NoSimulation(reason=f"the mocker has no {settings['disaggregation_mode']} worker")
    if other := next((name for name in OTHER_WORKERS if settings.get(name)), None):
        return NoSimulation(reason=f"the mocker has no --{other.replace('_', '-')} worker")
    return _effective(launch, settings, mode)


def _effective(launch: Launch, settings: Mapping[str, Any], mode: Mode) -> Effective:
    engine = as_mapping(settings["engine_args"])
    name = settings["served_model_name"]
    by_gpu = "the engine chooses by GPU"
    return Effective(
        backend="vllm",
        mode=mode,
        model=settings["model"],
        served_names=(name, *(settings.get("served_model_aliases") or ())) if name else (),
        block_size=_count(
            engine, "block_size", "the engine chooses by model and GPU", DEFAULT_BLOCK_SIZE
        ),
        max_sequences=_count(engine, "max_num_seqs", by_gpu),
        max_batch_tokens=_count(engine, "max_num_batched_tokens", by_gpu),
        max_length=_count(engine, "max_model_len", "the engine takes it from the model"),
        kv_blocks=_count(
            engine, "num_gpu_blocks_override", "the engine measures it on the GPU at start"
        ),
        ranks=_ranks(engine),
        prefix_caching=_switch(engine, "enable_prefix_caching"),
        chunked_prefill=_switch(engine, "enable_chunked_prefill"),
        kv_events=_kv_events(settings),
        kv_dtype=str(engine.get("kv_cache_dtype") or "auto"),
        endpoint=explicit_endpoint(launch, settings),
        not_simulated=(*_speculation(engine), *parser_lines(settings)),
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _count(
    engine: Mapping[str, Any], name: str, reason: str, assumed: int | None = None
) -> Value | Unset:
    value = positive_int(engine.get(name))
    return Unset(reason, assumed) if value is None else Value(value, _flag(name))


def _switch(engine: Mapping[str, Any], name: str) -> Switch:
    """A switch that is on if unset, vLLM's default for models that generate text."""
    if engine.get(name) is False:
        return Switch(False, _flag("no_" + name))
    return Switch(True, "the engine's default or its flag")


def _ranks(engine: Mapping[str, Any]) -> Value:
    """The ranks of this process (dynamo/vllm/dp_topology.py)."""
    if engine.get("data_parallel_external_lb") or engine.get("data_parallel_rank") is not None:
        return Value(1, "--data-parallel-rank")
    local = positive_int(engine.get("data_parallel_size_local"))
    if engine.get("data_parallel_hybrid_lb") and local:
        return Value(local, "--data-parallel-size-local")
    return Value(positive_int(engine.get("data_parallel_size")) or 1, "--data-parallel-size")


def _kv_events(settings: Mapping[str, Any]) -> Switch:
    if settings.get("use_kv_events"):
        return Switch(True, "--kv-events-config")
    return Switch(False, "--kv-events-config does not enable them")


def _speculation(engine: Mapping[str, Any]) -> tuple[str, ...]:
    config = as_mapping(engine.get("speculative_config"))
    if not config:
        return ()
    kind = str(config.get("method") or config.get("model") or "configured")
    return (speculation_line(kind, config.get("num_speculative_tokens")),)
