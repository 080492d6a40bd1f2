"""SGLang: its settings as `read_settings` reads them, because its parser needs SGLang itself.

Nothing is checked, as `check_launches` reports; SGLang itself rejects a wrong value.
"""

from __future__ import annotations

from penstock.engines.engine import (
    Effective,
    Mode,
    NoSimulation,
    Switch,
    Unset,
    Value,
    speculation_line,
)
from penstock.engines.parsers import NotParsed, Parsed
from penstock.engines.settings import Settings, read_settings
from penstock.manifests.deployment import Component, Launch, UnknownConfig
from penstock.text.values import as_mapping, positive_int

# Workers that register no chat model.
OTHER_WORKERS = ("embedding-worker", "multimodal-encode-worker")
# The mocker's 16384 blocks would be 16384 tokens at SGLang's page size of 1.
ASSUMED_KV_TOKENS = 524_288
MODES = {"null": Mode.AGG, "prefill": Mode.PREFILL, "decode": Mode.DECODE}


def effective(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Effective | NoSimulation:
    """Its configuration; NoSimulation if the mocker has no such worker."""
    settings = read_settings(component, launch)
    kind = _text(settings, "disaggregation-mode", "null")
    if (mode := MODES.get(kind)) is None:
        return NoSimulation(reason=f"the mocker has no {kind} worker")
    if other := next((flag for flag in OTHER_WORKERS if settings.value(flag)), None):
        return NoSimulation(reason=f"the mocker has no --{other} worker")
    if not (model := _text(settings, "model-path")):
        reason = _unread(component) or "no --model-path"
        return NoSimulation(reason=f"its model is unknown: {reason}")
    page = _count(settings, "page-size", "the engine chooses by attention backend", 1)
    name = _text(settings, "served-model-name")
    return Effective(
        backend="sglang",
        mode=mode,
        model=model,
        served_names=(name,) if name else (),
        block_size=page,
        max_sequences=_count(settings, "max-running-requests", "the engine chooses by GPU"),
        max_batch_tokens=_batch_tokens(settings),
        max_length=_count(settings, "context-length", "the engine takes it from the model"),
        kv_blocks=_kv_blocks(settings, page.value or 1),
        ranks=Value(
            positive_int(settings.value("data-parallel-size")) or 1, "--data-parallel-size"
        ),
        prefix_caching=_prefix_caching(settings),
        chunked_prefill=_chunked_prefill(settings),
        kv_events=_kv_events(settings),
        kv_dtype=_text(settings, "kv-cache-dtype", "auto"),
        endpoint=_text(settings, "endpoint") or None,
        not_simulated=_not_simulated(component, settings),
    )


def _text(settings: Settings, flag: str, default: str = "") -> str:
    """The value of a flag; the default without one."""
    argument = settings.value(flag)
    return default if argument is None or isinstance(argument, bool) else str(argument)


def _count(settings: Settings, flag: str, reason: str, assumed: int | None = None) -> Value | Unset:
    count = positive_int(settings.value(flag))
    return Unset(reason, assumed) if count is None else Value(count, f"--{flag}")


def _batch_tokens(settings: Settings) -> Value | Unset:
    chunk = _count(settings, "chunked-prefill-size", "the engine chooses by GPU")
    if isinstance(chunk, Value):
        return chunk
    return _count(settings, "max-prefill-tokens", chunk.reason)


def _kv_blocks(settings: Settings, page: int) -> Value | Unset:
    tokens = positive_int(settings.value("max-total-tokens"))
    if tokens is None:
        return Unset("the engine measures it on the GPU at start", ASSUMED_KV_TOKENS // page)
    return Value(max(1, tokens // page), f"--max-total-tokens {tokens}")


def _prefix_caching(settings: Settings) -> Switch:
    if settings.value("disable-radix-cache"):
        return Switch(False, "--disable-radix-cache")
    return Switch(True, "the engine's default")


def _chunked_prefill(settings: Settings) -> Switch:
    if _text(settings, "chunked-prefill-size") == "-1":
        return Switch(False, "--chunked-prefill-size -1")
    return Switch(True, "the engine's default or its flag")


def _kv_events(settings: Settings) -> Switch:
    """SGLang publishes if a publisher is configured (dynamo/sglang/args.py)."""
    config = as_mapping(settings.value("kv-events-config"))
    on = config.get("publisher") not in (None, "null")
    return Switch(on, "--kv-events-config" if on else "no --kv-events-config")


def _not_simulated(component: Component, settings: Settings) -> tuple[str, ...]:
    lines = ["SGLang's flags are not checked: its parser needs SGLang itself"]
    if unread := _unread(component):
        lines.append(f"{unread}, so only the command line is simulated")
    if algorithm := _text(settings, "speculative-algorithm"):
        lines.append(speculation_line(algorithm, None))
    return tuple(lines)


def _unread(component: Component) -> str:
    config = component.engine_config
    return f"{config.path}: {config.reason}" if isinstance(config, UnknownConfig) else ""
