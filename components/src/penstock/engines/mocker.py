"""Dynamo's mocker: in place of an engine, and as the engine of a graph.

`simulation` turns an engine's effective configuration into the command line of a mocker.
Values with which the mocker does not start, or never responds, are replaced and reported. Its rules
were found by running `normalize_mocker_config` and the mocker of ai-dynamo 1.6.1; the tests repeat
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.engines.engine import Effective, Mode, NoSimulation, Simulation, Switch, Unset, Value
from penstock.engines.parsers import NotParsed, Parsed
from penstock.manifests.deployment import Component, Launch
from penstock.manifests.flags import without_flags

# Planes and discovery on a laptop differ from the cluster's; environment variables set them.
MODEL_FLAGS = ("--model-path", "--model-name")
PLANE_FLAGS = ("--discovery-backend", "--request-plane", "--response-plane", "--event-plane")
DEFAULT_KV_BLOCKS = 16384
DEFAULT_MAX_SEQUENCES = 256
DEFAULT_MAX_BATCH_TOKENS = 8192
SGLANG_CHUNK = 8192  # the mocker's chunked_prefill_size, a multiple of the block size
KV_DTYPES = ("auto", "bfloat16", "fp8", "fp8_ds_mla", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


@dataclass(frozen=True)
class _Part:
    """A part of the command line, with the lines that describe it."""

    arguments: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    not_simulated: tuple[str, ...] = ()

    def __add__(self, other: _Part) -> _Part:
        return _Part(
            self.arguments + other.arguments,
            self.simulated + other.simulated,
            self.not_simulated + other.not_simulated,
        )


def simulation(engine: Effective | NoSimulation) -> Simulation | NoSimulation:
    """The mocker that replaces one worker process of ``engine``."""
    if isinstance(engine, NoSimulation):
        return engine
    engine, adapted = _adapted(engine)
    part = (
        _Part(arguments=("--engine-type", engine.backend, "--disaggregation-mode", engine.mode))
        + _numeric_arguments(engine)
        + _switches(engine)
        + _kv_events(engine)
        + _rest(engine)
        + _Part(not_simulated=(*adapted, *engine.not_simulated))
    )
    return Simulation(
        arguments=part.arguments,
        model=engine.model,
        served_names=engine.served_names or (engine.model,),
        simulated=part.simulated,
        not_simulated=part.not_simulated,
    )


def _adapted(engine: Effective) -> tuple[Effective, tuple[str, ...]]:
    """``engine`` with supported values for those that the mocker rejects, and a line for each."""
    notes: list[str] = []
    size = engine.block_size.value
    if size == 1 and engine.backend != "sglang":
        notes.append("block size 1: the mocker's smallest is 2")
        engine = replace(engine, block_size=Unset("", 2))
    if size and engine.backend == "sglang" and SGLANG_CHUNK % size:
        near = 1 << (size.bit_length() - 1)
        notes.append(f"block size {size}: the mocker's must divide {SGLANG_CHUNK}; it uses {near}")
        engine = replace(engine, block_size=Unset("", near))
    engine, note = _fitted(engine)
    if note:
        notes.append(note)
    if not engine.chunked_prefill.on and (note := _chunking_kept(engine)):
        notes.append(note)
        engine = replace(engine, chunked_prefill=Switch(True, ""))
    return engine, tuple(notes)


def _fitted(engine: Effective) -> tuple[Effective, str]:
    """Make the KV cache large enough for one request of full length.

    Measured: a longer request waits forever with vLLM's scheduler; real vLLM does not start.
    """
    size, length = engine.block_size.value or 1, engine.max_length.value
    capacity = size * (engine.kv_blocks.value or DEFAULT_KV_BLOCKS)
    if isinstance(engine.kv_blocks, Unset):
        if length is None or length <= capacity:
            return engine, ""
        enough = Unset(engine.kv_blocks.reason, -(-length // size))
        return replace(engine, kv_blocks=enough), ""
    if length is None and isinstance(engine.max_length, Unset):
        return replace(engine, max_length=Unset(engine.max_length.reason, capacity)), ""
    if length is None or length <= capacity:
        return engine, ""
    note = (
        f"context length {length}: the KV cache has {capacity} tokens; the mocker uses {capacity}"
    )
    return replace(engine, max_length=Unset("", capacity)), note


def _chunking_kept(engine: Effective) -> str:
    """Why the mocker chunks prefill although the engine does not; empty if it does not either."""
    if engine.backend == "sglang":
        return "chunked prefill off: the mocker cannot disable it for SGLang"
    batch, longest = engine.max_batch_tokens, engine.max_length.value
    if longest is not None and longest <= (batch.value or DEFAULT_MAX_BATCH_TOKENS):
        return ""
    # Measured: such a request waits forever, without an error.
    limit = f"{batch.value} tokens" if isinstance(batch, Value) else "its batch"
    engine_too = "" if engine.mode is Mode.DECODE else " (the engine rejects such a prompt)"
    return (
        "chunked prefill off: the mocker chunks nevertheless, because it would never respond to"
        f" a prompt over {limit}{engine_too}"
    )


@dataclass(frozen=True)
class _Number:
    """One number of the mocker's command line."""

    name: str
    flag: str
    setting: Value | Unset
    # The mocker's default; None is no limit.
    default: int | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        return () if self.setting.value is None else (self.flag, str(self.setting.value))

    @property
    def in_the_mocker(self) -> str:
        limit = self.default if self.setting.value is None else self.setting.value
        return "no limit" if limit is None else str(limit)


def _numeric_arguments(engine: Effective) -> _Part:
    """The flags for sizes and limits, and lines that say which of them the engine sets."""
    numbers = (
        _Number("block size", "--block-size", engine.block_size),
        _Number(
            "KV capacity in blocks",
            "--num-gpu-blocks-override",
            engine.kv_blocks,
            DEFAULT_KV_BLOCKS,
        ),
        _Number(
            "concurrent sequences", "--max-num-seqs", engine.max_sequences, DEFAULT_MAX_SEQUENCES
        ),
        _Number(
            "tokens per batch",
            "--max-num-batched-tokens",
            engine.max_batch_tokens,
            DEFAULT_MAX_BATCH_TOKENS,
        ),
        _Number("context length", "--max-model-len", engine.max_length),
        _Number("data-parallel ranks", "--data-parallel-size", engine.ranks),
    )
    relevant = [n for n in numbers if n.setting is not engine.ranks or engine.ranks.value > 1]
    arguments = tuple(word for number in relevant for word in number.arguments)
    return _Part(arguments, _set_lines(relevant), _unset_lines(relevant))


def _set_lines(numbers: list[_Number]) -> tuple[str, ...]:
    return tuple(
        f"{n.name} {n.setting.value} ({n.setting.source})"
        for n in numbers
        if isinstance(n.setting, Value)
    )


def _unset_lines(numbers: list[_Number]) -> tuple[str, ...]:
    """One line for each reason; values that `_adapted` replaced have no reason."""
    groups: dict[str, list[_Number]] = {}
    for number in numbers:
        if isinstance(number.setting, Unset) and number.setting.reason:
            groups.setdefault(number.setting.reason, []).append(number)
    return tuple(
        f"{', '.join(n.name for n in group)}: {reason}; the mocker uses "
        + ", ".join(n.in_the_mocker for n in group)
        for reason, group in groups.items()
    )


def _switches(engine: Effective) -> _Part:
    caching, chunking = engine.prefix_caching, engine.chunked_prefill
    part = _Part(simulated=(f"prefix caching {_on(caching)} ({caching.source})",))
    if not caching.on:
        part += _Part(("--no-enable-prefix-caching",))
    if chunking.source:
        part += _Part(simulated=(f"chunked prefill {_on(chunking)} ({chunking.source})",))
    if not chunking.on:
        part += _Part(("--no-enable-chunked-prefill",))
    return part


def _on(switch: Switch) -> str:
    return "on" if switch.on else "off"


def _kv_events(engine: Effective) -> _Part:
    """The mocker always publishes them if it caches, except in decode workers; it has no flag."""
    if engine.mode is Mode.DECODE or not engine.prefix_caching.on:
        return _Part()
    if engine.kv_events.on:
        return _Part(simulated=(f"KV events published ({engine.kv_events.source})",))
    line = (
        f"KV events: the engine publishes none ({engine.kv_events.source}), the mocker always does:"
        " the router sees cache hits here that it will not see on the cluster"
    )
    return _Part(not_simulated=(line,))


def _rest(engine: Effective) -> _Part:
    part = _Part()
    if engine.kv_dtype != "auto" and engine.kv_dtype in KV_DTYPES:
        part += _Part(("--kv-cache-dtype", engine.kv_dtype), (f"KV cache type {engine.kv_dtype}",))
    if engine.endpoint is not None:
        part += _Part(("--endpoint", engine.endpoint))
    return part


def simulate(launch: Launch, parsed: Parsed | NotParsed) -> Simulation | NoSimulation:
    """The launch's own arguments, without model and planes."""
    if isinstance(parsed, NotParsed):
        return NoSimulation(reason=f"its command line could not be parsed: {parsed.reason}")
    model = str(parsed.settings["model_path"] or "")
    kept = without_flags(launch.arguments, *MODEL_FLAGS, *PLANE_FLAGS)
    return Simulation(
        arguments=kept,
        model=model,
        served_names=(str(parsed.settings["model_name"] or model),),
        simulated=("the mocker's own arguments",),
        not_simulated=(),
    )


def effective(component: Component, launch: Launch, parsed: Parsed | NotParsed) -> NoSimulation:
    """No configuration: the mocker is not an engine."""
    return NoSimulation(reason=f"{component.name} runs the mocker, which is not an engine")
