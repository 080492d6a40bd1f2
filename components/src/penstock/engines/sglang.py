"""SGLang: only the flags that the mocker can use are read, because its parser needs SGLang itself.

Nothing is checked, as `parse_launches` reports; SGLang itself rejects a wrong value.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from penstock.engines.engine import (
    Effective,
    Mode,
    NoSimulation,
    Simulation,
    Switch,
    Unset,
    Value,
)
from penstock.engines.mocker_command import simulation
from penstock.engines.parsers import NotParsed, Parsed
from penstock.engines.worker_settings import speculation_line
from penstock.manifests.deployment import (
    Component,
    EngineConfig,
    KnownConfig,
    Launch,
    UnknownConfig,
)
from penstock.strict_yaml.loader import load_json
from penstock.text.values import as_mapping, positive_int

# The spellings of each flag, from sglang/srt/server_args.py and dynamo/sglang/args.py.
TEXT_FLAGS: tuple[tuple[str, ...], ...] = (
    ("--model-path", "--model"),
    ("--served-model-name",),
    ("--page-size",),
    ("--max-running-requests",),
    ("--context-length",),
    ("--max-total-tokens",),
    ("--max-prefill-tokens",),
    ("--chunked-prefill-size",),
    ("--data-parallel-size", "--dp-size", "--dp"),
    ("--disaggregation-mode",),
    ("--kv-cache-dtype",),
    ("--kv-events-config",),
    ("--speculative-algorithm",),
    ("--endpoint",),
)
BARE_FLAGS = (
    "--disable-radix-cache",
    "--embedding-worker",
    "--multimodal-encode-worker",
)
# The mocker's 16384 blocks would be 16384 tokens at SGLang's page size of 1.
ASSUMED_KV_TOKENS = 524_288
MODES = {
    None: Mode.AGG,
    "null": Mode.AGG,
    "prefill": Mode.PREFILL,
    "decode": Mode.DECODE,
}
Flags = Mapping[str, Any]


class _QuietParser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(message)


def simulate(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Simulation | NoSimulation:
    """The mocker instead of SGLang, from the flags read here."""
    return simulation(effective(component, launch, parsed))


def effective(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Effective | NoSimulation:
    """Its configuration; NoSimulation if the mocker has no such worker."""
    try:
        flags = read_flags(component.engine_config, launch)
    except ValueError as error:
        return NoSimulation(reason=f"its command line cannot be read: {error}")
    mode = MODES.get(flags["disaggregation_mode"])
    if mode is None:
        return NoSimulation(reason=f"the mocker has no {flags['disaggregation_mode']} worker")
    if other := next((f for f in BARE_FLAGS[1:] if flags[_name(f)]), None):
        return NoSimulation(reason=f"the mocker has no {other} worker")
    if not flags["model_path"]:
        return NoSimulation(
            reason=f"its model is unknown: {_unread(component) or 'no --model-path'}"
        )
    return _effective(flags, mode, _not_simulated(component, flags))


def read_flags(config: EngineConfig, launch: Launch) -> Flags:
    """The flags above by their first spelling; ValueError if one has no value.

    The file of `--config FILE` contains flags too; the command line takes precedence.
    """
    parser = _QuietParser(add_help=False, allow_abbrev=False)
    for spellings in TEXT_FLAGS:
        parser.add_argument(*spellings)
    for flag in BARE_FLAGS:
        parser.add_argument(flag, action="store_true")
    from_file = config.values if isinstance(config, KnownConfig) else {}
    words = [word for key, value in from_file.items() for word in _words(f"--{key}", value)]
    known, _ = parser.parse_known_args([*words, *launch.arguments])
    return vars(known)


def _words(flag: str, value: Any) -> list[str]:
    """A key of the YAML file as command-line arguments."""
    flag = flag.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else []
    return [flag, json.dumps(value) if isinstance(value, (dict, list)) else str(value)]


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _effective(flags: Flags, mode: Mode, not_simulated: tuple[str, ...]) -> Effective:
    page = _count(flags, "--page-size", "the engine chooses by attention backend", 1)
    return Effective(
        backend="sglang",
        mode=mode,
        model=flags["model_path"],
        served_names=(flags["served_model_name"],) if flags["served_model_name"] else (),
        block_size=page,
        max_sequences=_count(flags, "--max-running-requests", "the engine chooses by GPU"),
        max_batch_tokens=_batch_tokens(flags),
        max_length=_count(flags, "--context-length", "the engine takes it from the model"),
        kv_blocks=_kv_blocks(flags, page.value or 1),
        ranks=Value(_integer(flags, "--data-parallel-size") or 1, "--data-parallel-size"),
        prefix_caching=_prefix_caching(flags),
        chunked_prefill=_chunked_prefill(flags),
        kv_events=_kv_events(flags),
        kv_dtype=flags["kv_cache_dtype"] or "auto",
        endpoint=flags["endpoint"],
        not_simulated=not_simulated,
    )


def _integer(flags: Flags, flag: str) -> int | None:
    text = flags[_name(flag)] or ""
    return positive_int(text)


def _count(flags: Flags, flag: str, reason: str, assumed: int | None = None) -> Value | Unset:
    value = _integer(flags, flag)
    return Unset(reason, assumed) if value is None else Value(value, flag)


def _batch_tokens(flags: Flags) -> Value | Unset:
    chunk = _count(flags, "--chunked-prefill-size", "the engine chooses by GPU")
    return (
        chunk if isinstance(chunk, Value) else _count(flags, "--max-prefill-tokens", chunk.reason)
    )


def _kv_blocks(flags: Flags, page: int) -> Value | Unset:
    tokens = _integer(flags, "--max-total-tokens")
    if tokens is None:
        return Unset("the engine measures it on the GPU at start", ASSUMED_KV_TOKENS // page)
    return Value(max(1, tokens // page), f"--max-total-tokens {tokens}")


def _prefix_caching(flags: Flags) -> Switch:
    if flags["disable_radix_cache"]:
        return Switch(False, "--disable-radix-cache")
    return Switch(True, "the engine's default")


def _chunked_prefill(flags: Flags) -> Switch:
    if flags["chunked_prefill_size"] == "-1":
        return Switch(False, "--chunked-prefill-size -1")
    return Switch(True, "the engine's default or its flag")


def _kv_events(flags: Flags) -> Switch:
    """SGLang publishes if a publisher is configured (dynamo/sglang/args.py)."""
    try:
        config = as_mapping(load_json(flags["kv_events_config"] or "{}"))
    except ValueError:
        config = {}
    on = config.get("publisher") not in (None, "null")
    return Switch(on, "--kv-events-config" if on else "no --kv-events-config")


def _not_simulated(component: Component, flags: Flags) -> tuple[str, ...]:
    lines = ["SGLang's flags are not checked: its parser needs SGLang itself"]
    if unread := _unread(component):
        lines.append(f"{unread}, so only the command line is simulated")
    if algorithm := flags["speculative_algorithm"]:
        lines.append(speculation_line(algorithm, None))
    return tuple(lines)


def _unread(component: Component) -> str:
    config = component.engine_config
    return f"{config.path}: {config.reason}" if isinstance(config, UnknownConfig) else ""
