"""TensorRT-LLM: its configuration, merged from the sources in the order of its worker.

Command line < YAML < override. `kv_cache_config` of the YAML merges by key over that of the command
line. `--override-engine-args` and `--trtllm.a.b` replace it entirely: it is an object by then, and
`deep_update` merges only mappings (dynamo/trtllm/workers/llm_worker.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engines.engine import (
    Effective,
    Mode,
    NoSimulation,
    Simulation,
    Switch,
    Unset,
    Value,
    given,
)
from penstock.engines.mocker_command import simulation
from penstock.engines.parsers import NotParsed, Parsed
from penstock.engines.worker_settings import explicit_endpoint, parser_lines, speculation_line
from penstock.manifests.deployment import Component, KnownConfig, Launch, UnknownConfig
from penstock.strict_yaml.loader import load_json
from penstock.text.values import as_mapping, positive_int

TOKENS_PER_BLOCK = 32  # KvCacheConfig's default; Dynamo's --kv-block-size is only its fallback
OVERRIDE = ("--override-engine-args", "DYN_TRTLLM_OVERRIDE_ENGINE_ARGS")
MODES = {"prefill_and_decode": Mode.AGG, "prefill": Mode.PREFILL, "decode": Mode.DECODE}
FLAGS = {
    "max_batch_size": ("--max-batch-size", "DYN_TRTLLM_MAX_BATCH_SIZE"),
    "max_num_tokens": ("--max-num-tokens", "DYN_TRTLLM_MAX_NUM_TOKENS"),
    "max_seq_len": ("--max-seq-len", "DYN_TRTLLM_MAX_SEQ_LEN"),
    "tensor_parallel_size": (
        "--tensor-parallel-size",
        "DYN_TRTLLM_TENSOR_PARALLEL_SIZE",
    ),
    "enable_attention_dp": ("--enable-attention-dp", "DYN_TRTLLM_ENABLE_ATTENTION_DP"),
}


@dataclass(frozen=True, kw_only=True)
class EngineArguments:
    """The merged arguments."""

    values: Mapping[str, Any]
    # Key → what sets it.
    sources: Mapping[str, str]
    # The source of keys that are not set.
    default: str

    @property
    def kv_cache(self) -> Mapping[str, Any]:
        return as_mapping(self.values.get("kv_cache_config"))


def engine_arguments(
    component: Component, launch: Launch, settings: Mapping[str, Any]
) -> EngineArguments:
    """Merge command line, YAML and override as the worker does."""
    config = component.engine_config
    default = "the default"
    if isinstance(config, UnknownConfig):
        default = "the default, unless the unread file sets it"
    values: dict[str, Any] = {name: settings[name] for name in FLAGS}
    values["kv_cache_config"] = {"free_gpu_memory_fraction": settings["free_gpu_memory_fraction"]}
    sources = {name: given(launch, *flags) or default for name, flags in FLAGS.items()}
    if isinstance(config, KnownConfig):
        kv_cache = values["kv_cache_config"] | as_mapping(config.values.get("kv_cache_config"))
        values |= {**config.values, "kv_cache_config": kv_cache}
        sources |= {key: key for key in config.values}
    if override := _override(settings):
        values |= {key: _overridden(key, values.get(key), override[key]) for key in override}
        word = "--override-engine-args" if given(launch, *OVERRIDE) else "--trtllm.*"
        sources |= {key: f"{key} of {word}" for key in override}
    return EngineArguments(values=values, sources=sources, default=default)


def _overridden(key: str, below: Any, above: Any) -> Any:
    """The override merges into mappings of the YAML, but replaces kv_cache_config, an object."""
    mappings = isinstance(below, Mapping) and isinstance(above, Mapping)
    return {**below, **above} if mappings and key != "kv_cache_config" else above


def _override(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_mapping(load_json(settings.get("override_engine_args") or "{}"))


def simulate(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Simulation | NoSimulation:
    """The mocker instead of TensorRT-LLM; needs the parser's settings."""
    return simulation(effective(component, launch, parsed))


def effective(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Effective | NoSimulation:
    """Its configuration; NoSimulation if the mocker has no such worker."""
    if isinstance(parsed, NotParsed):
        return NoSimulation(reason=f"its command line could not be parsed: {parsed.reason}")
    settings = parsed.settings
    mode = MODES.get(settings["disaggregation_mode"])
    if mode is None or "diffusion" in settings["modality"]:
        kind = settings["disaggregation_mode"] if mode is None else settings["modality"]
        return NoSimulation(reason=f"the mocker has no {kind} worker")
    arguments = engine_arguments(component, launch, settings)
    return _effective(component, launch, settings, mode, arguments)


def _effective(
    component: Component,
    launch: Launch,
    settings: Mapping[str, Any],
    mode: Mode,
    arguments: EngineArguments,
) -> Effective:
    block_size = _block_size(arguments)
    name = settings["served_model_name"]
    return Effective(
        backend="trtllm",
        mode=mode,
        model=settings["model"],
        served_names=(name,) if name else (),
        block_size=block_size,
        max_sequences=_count(arguments, "max_batch_size", "the engine has its own default"),
        max_batch_tokens=_count(arguments, "max_num_tokens", "the engine has its own default"),
        max_length=_count(arguments, "max_seq_len", "the engine takes it from the model"),
        kv_blocks=_kv_blocks(arguments, block_size.value),
        ranks=_ranks(arguments),
        prefix_caching=_prefix_caching(arguments),
        chunked_prefill=_chunked_prefill(arguments),
        kv_events=_kv_events(launch, settings),
        kv_dtype=str(arguments.kv_cache.get("dtype") or "auto"),
        endpoint=explicit_endpoint(launch, settings),
        not_simulated=_not_simulated(component, launch, settings, arguments),
    )


def _count(arguments: EngineArguments, key: str, reason: str) -> Value | Unset:
    value = positive_int(arguments.values.get(key))
    return Unset(reason) if value is None else Value(value, arguments.sources[key])


def _block_size(arguments: EngineArguments) -> Value:
    value = positive_int(arguments.kv_cache.get("tokens_per_block"))
    if value is None:
        return Value(TOKENS_PER_BLOCK, arguments.default)
    return Value(value, "kv_cache_config.tokens_per_block")


def _kv_blocks(arguments: EngineArguments, block_size: int) -> Value | Unset:
    tokens = positive_int(arguments.kv_cache.get("max_tokens"))
    if tokens is None:
        return Unset("the engine measures it on the GPU at start")
    source = f"kv_cache_config.max_tokens {tokens}, if the GPU has the memory"
    return Value(max(1, tokens // block_size), source)


def _ranks(arguments: EngineArguments) -> Value:
    """With attention DP, each tensor-parallel rank schedules its own sequences."""
    ranks = positive_int(arguments.values.get("tensor_parallel_size"))
    attention_dp = arguments.values.get("enable_attention_dp") is True
    return Value(ranks if attention_dp and ranks else 1, "enable_attention_dp, one each TP rank")


def _prefix_caching(arguments: EngineArguments) -> Switch:
    reuse = arguments.kv_cache.get("enable_block_reuse")
    if reuse is None:
        return Switch(True, arguments.default)
    return Switch(reuse is True, "kv_cache_config.enable_block_reuse")


def _chunked_prefill(arguments: EngineArguments) -> Switch:
    if "enable_chunked_prefill" not in arguments.values:
        return Switch(False, arguments.default)
    return Switch(arguments.values["enable_chunked_prefill"] is True, "enable_chunked_prefill")


def _kv_events(launch: Launch, settings: Mapping[str, Any]) -> Switch:
    flag = given(launch, "--publish-kv-events", "--publish-events-and-metrics")
    if settings["publish_kv_events"]:
        return Switch(True, flag or "DYN_TRTLLM_PUBLISH_KV_EVENTS")
    return Switch(False, "no --publish-kv-events")


def _not_simulated(
    component: Component,
    launch: Launch,
    settings: Mapping[str, Any],
    arguments: EngineArguments,
) -> tuple[str, ...]:
    lines = []
    if isinstance(config := component.engine_config, UnknownConfig):
        lines.append(
            f"{config.path}: {config.reason}, so only the command line is simulated;"
            " the file may change any setting"
        )
    if _kv_cache_replaced(component, settings):
        lines.append("the override replaces the entire kv_cache_config of the YAML")
    fallback = settings["kv_block_size"]
    if given(launch, "--kv-block-size") and fallback != _block_size(arguments).value:
        lines.append(f"--kv-block-size {fallback}: the engine's own block size takes precedence")
    speculative = as_mapping(arguments.values.get("speculative_config"))
    if speculative:
        kind = speculative.get("decoding_type", "configured")
        lines.append(speculation_line(str(kind), speculative.get("max_draft_len")))
    return (*lines, *parser_lines(settings))


def _kv_cache_replaced(component: Component, settings: Mapping[str, Any]) -> bool:
    config = component.engine_config
    in_yaml = isinstance(config, KnownConfig) and "kv_cache_config" in config.values
    return in_yaml and "kv_cache_config" in _override(settings)
