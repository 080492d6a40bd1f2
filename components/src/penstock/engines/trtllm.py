"""TensorRT-LLM: its settings as `read_settings` merges them, and the parser's defaults.

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
    Switch,
    Unset,
    Value,
    explicit_endpoint,
    first_set,
    parser_lines,
    speculation_line,
)
from penstock.engines.parsers import NotParsed, Parsed
from penstock.engines.settings import Settings, overrides, read_settings
from penstock.manifests.deployment import Component, KnownConfig, Launch, UnknownConfig
from penstock.text.values import as_mapping, positive_int

TOKENS_PER_BLOCK = 32  # KvCacheConfig's default; Dynamo's --kv-block-size is only its fallback
MODES = {"prefill_and_decode": Mode.AGG, "prefill": Mode.PREFILL, "decode": Mode.DECODE}


@dataclass(frozen=True, kw_only=True)
class EngineArguments:
    """The settings of a worker, and what applies if one is not set."""

    settings: Settings
    # What the parser makes of the command line and of its variables.
    parsed: Mapping[str, Any]
    # The source of keys that are not set.
    default: str

    def get(self, key: str) -> Any:
        """The value of a dotted key of the engine's file; the parser's default if it is unset."""
        setting = self.settings.get(key)
        return self.parsed.get(key) if setting is None else setting.value

    def source(self, key: str) -> str:
        setting = self.settings.get(key)
        if setting is None:
            return self.default
        name = str(setting.location.path[0])
        if setting.location.what == "config":
            return key
        return f"{key} of {name}" if "override" in name.lower() or "." in name else name


def engine_arguments(
    component: Component, launch: Launch, parsed: Mapping[str, Any]
) -> EngineArguments:
    """The merged arguments of a worker."""
    is_unread = isinstance(component.engine_config, UnknownConfig)
    return EngineArguments(
        settings=read_settings(component, launch),
        parsed=parsed,
        default=f"the default{', unless the unread file sets it' if is_unread else ''}",
    )


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
        kv_dtype=str(arguments.get("kv_cache_config.dtype") or "auto"),
        endpoint=explicit_endpoint(launch, settings),
        not_simulated=_not_simulated(component, launch, settings, arguments),
    )


def _count(arguments: EngineArguments, key: str, reason: str) -> Value | Unset:
    count = positive_int(arguments.get(key))
    return Unset(reason) if count is None else Value(count, arguments.source(key))


def _block_size(arguments: EngineArguments) -> Value:
    tokens = positive_int(arguments.get("kv_cache_config.tokens_per_block"))
    if tokens is None:
        return Value(TOKENS_PER_BLOCK, arguments.default)
    return Value(tokens, "kv_cache_config.tokens_per_block")


def _kv_blocks(arguments: EngineArguments, block_size: int) -> Value | Unset:
    tokens = positive_int(arguments.get("kv_cache_config.max_tokens"))
    if tokens is None:
        return Unset("the engine measures it on the GPU at start")
    source = f"kv_cache_config.max_tokens {tokens}, if the GPU has the memory"
    return Value(max(1, tokens // block_size), source)


def _ranks(arguments: EngineArguments) -> Value:
    """With attention DP, each tensor-parallel rank schedules its own sequences."""
    ranks = positive_int(arguments.get("tensor_parallel_size"))
    attention_dp = arguments.get("enable_attention_dp") is True
    return Value(ranks if attention_dp and ranks else 1, "enable_attention_dp, one each TP rank")


def _prefix_caching(arguments: EngineArguments) -> Switch:
    reuse = arguments.get("kv_cache_config.enable_block_reuse")
    if reuse is None:
        return Switch(True, arguments.default)
    return Switch(reuse is True, "kv_cache_config.enable_block_reuse")


def _chunked_prefill(arguments: EngineArguments) -> Switch:
    chunked = arguments.get("enable_chunked_prefill")
    source = arguments.default if chunked is None else "enable_chunked_prefill"
    return Switch(chunked is True, source)


def _kv_events(launch: Launch, settings: Mapping[str, Any]) -> Switch:
    flag = first_set(launch, "--publish-kv-events", "--publish-events-and-metrics")
    if settings["publish_kv_events"]:
        return Switch(True, flag or "DYN_TRTLLM_PUBLISH_KV_EVENTS")
    return Switch(False, "no --publish-kv-events")


def _not_simulated(
    component: Component, launch: Launch, settings: Mapping[str, Any], arguments: EngineArguments
) -> tuple[str, ...]:
    lines = []
    if isinstance(config := component.engine_config, UnknownConfig):
        lines.append(
            f"{config.path}: {config.reason}, so only the command line is simulated;"
            " the file may change any setting"
        )
    if _kv_cache_replaced(component, launch, arguments):
        lines.append("the override replaces the entire kv_cache_config of the YAML")
    fallback = settings["kv_block_size"]
    if first_set(launch, "--kv-block-size") and fallback != _block_size(arguments).value:
        lines.append(f"--kv-block-size {fallback}: the engine's own block size takes precedence")
    speculative = as_mapping(arguments.get("speculative_config"))
    if speculative:
        kind = speculative.get("decoding_type", "configured")
        lines.append(speculation_line(str(kind), speculative.get("max_draft_len")))
    return (*lines, *parser_lines(settings))


def _kv_cache_replaced(component: Component, launch: Launch, arguments: EngineArguments) -> bool:
    config = component.engine_config
    in_file = isinstance(config, KnownConfig) and "kv_cache_config" in config.values
    replacing = overrides(component.name, arguments.settings.flags, launch.env)
    return in_file and any("kv_cache_config" in values for _, values in replacing)
