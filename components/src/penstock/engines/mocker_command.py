"""From an engine's effective configuration to a mocker that starts with it.

What the mocker refuses, or never answers with, is adapted and said. Its rules were found by
running `normalize_mocker_config` and the mocker of ai-dynamo 1.6.1; its tests repeat them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.engines.engine import (
    Effective,
    Mode,
    NoSimulation,
    Simulation,
    Switch,
    Unset,
    Value,
)

DEFAULT_KV_BLOCKS = 16384
DEFAULT_MAX_SEQUENCES = 256
DEFAULT_MAX_BATCH_TOKENS = 8192
SGLANG_CHUNK = 8192  # the mocker's chunked_prefill_size, a multiple of the block size
KV_DTYPES = ("auto", "bfloat16", "fp8", "fp8_ds_mla", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


@dataclass(frozen=True)
class _Words:
    """A part of the command line and what is said of it."""

    arguments: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    not_simulated: tuple[str, ...] = ()

    def __add__(self, other: _Words) -> _Words:
        return _Words(
            self.arguments + other.arguments,
            self.simulated + other.simulated,
            self.not_simulated + other.not_simulated,
        )


def simulation(engine: Effective | NoSimulation) -> Simulation | NoSimulation:
    """The mocker for one worker process of ``engine``."""
    if isinstance(engine, NoSimulation):
        return engine
    engine, adapted = _adapted(engine)
    words = (
        _Words(
            arguments=(
                "--engine-type",
                engine.backend,
                "--disaggregation-mode",
                engine.mode,
            )
        )
        + _numbers(engine)
        + _switches(engine)
        + _kv_events(engine)
        + _rest(engine)
        + _Words(not_simulated=(*adapted, *engine.not_simulated))
    )
    return Simulation(
        arguments=words.arguments,
        model=engine.model,
        served_names=engine.served_names or (engine.model,),
        simulated=words.simulated,
        not_simulated=words.not_simulated,
    )


def _adapted(engine: Effective) -> tuple[Effective, tuple[str, ...]]:
    """``engine`` with what the mocker cannot have replaced, and a line for each replacement."""
    notes: list[str] = []
    size = engine.block_size.value
    if size == 1 and engine.backend != "sglang":
        notes.append("block size 1: the mocker's smallest is 2")
        engine = replace(engine, block_size=Unset("", 2))
    if size and engine.backend == "sglang" and SGLANG_CHUNK % size:
        near = 1 << (size.bit_length() - 1)
        notes.append(f"block size {size}: the mocker's must divide {SGLANG_CHUNK}; it has {near}")
        engine = replace(engine, block_size=Unset("", near))
    engine, note = _fitted(engine)
    if note:
        notes.append(note)
    if not engine.chunked_prefill.on and (note := _chunking_kept(engine)):
        notes.append(note)
        engine = replace(engine, chunked_prefill=Switch(True, ""))
    return engine, tuple(notes)


def _fitted(engine: Effective) -> tuple[Effective, str]:
    """One request of full length must fit into the KV cache.

    Measured: a longer one waits for ever with vLLM's scheduler; real vLLM does not start like that.
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
        f"context length {length}: the KV cache holds {capacity} tokens; the mocker has {capacity}"
    )
    return replace(engine, max_length=Unset("", capacity)), note


def _chunking_kept(engine: Effective) -> str:
    """Why the mocker chunks although the engine does not; "" when it need not."""
    if engine.backend == "sglang":
        return "chunked prefill off: the mocker cannot switch it off for SGLang"
    batch, longest = engine.max_batch_tokens, engine.max_length.value
    if longest is not None and longest <= (batch.value or DEFAULT_MAX_BATCH_TOKENS):
        return ""
    # Measured: such a request waits for ever, without an error.
    limit = f"{batch.value} tokens" if isinstance(batch, Value) else "its batch"
    engine_too = "" if engine.mode is Mode.DECODE else " (the engine refuses such a prompt)"
    return (
        "chunked prefill off: the mocker chunks all the same, for else it would never answer"
        f" a prompt over {limit}{engine_too}"
    )


@dataclass(frozen=True)
class _Number:
    """One number of the mocker's command line; ``default`` is the mocker's own, None no limit."""

    name: str
    flag: str
    setting: Value | Unset
    default: int | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        return () if self.setting.value is None else (self.flag, str(self.setting.value))

    @property
    def in_the_mocker(self) -> str:
        value = self.default if self.setting.value is None else self.setting.value
        return "no limit" if value is None else str(value)


def _numbers(engine: Effective) -> _Words:
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
    shown = [n for n in numbers if n.setting is not engine.ranks or engine.ranks.value > 1]
    arguments = tuple(word for number in shown for word in number.arguments)
    return _Words(arguments, _set_lines(shown), _unset_lines(shown))


def _set_lines(numbers: list[_Number]) -> tuple[str, ...]:
    return tuple(
        f"{n.name} {n.setting.value} ({n.setting.source})"
        for n in numbers
        if isinstance(n.setting, Value)
    )


def _unset_lines(numbers: list[_Number]) -> tuple[str, ...]:
    """One line for each reason; an adaptation has none, it is said elsewhere."""
    groups: dict[str, list[_Number]] = {}
    for number in numbers:
        if isinstance(number.setting, Unset) and number.setting.reason:
            groups.setdefault(number.setting.reason, []).append(number)
    return tuple(
        f"{', '.join(n.name for n in group)}: {reason}; the mocker has "
        + ", ".join(n.in_the_mocker for n in group)
        for reason, group in groups.items()
    )


def _switches(engine: Effective) -> _Words:
    caching, chunking = engine.prefix_caching, engine.chunked_prefill
    words = _Words(simulated=(f"prefix caching {_on(caching)} ({caching.source})",))
    if not caching.on:
        words += _Words(("--no-enable-prefix-caching",))
    if chunking.source:
        words += _Words(simulated=(f"chunked prefill {_on(chunking)} ({chunking.source})",))
    if not chunking.on:
        words += _Words(("--no-enable-chunked-prefill",))
    return words


def _on(switch: Switch) -> str:
    return "on" if switch.on else "off"


def _kv_events(engine: Effective) -> _Words:
    """The mocker publishes them whenever it caches, decode workers excepted; no flag does that."""
    if engine.mode is Mode.DECODE or not engine.prefix_caching.on:
        return _Words()
    if engine.kv_events.on:
        return _Words(simulated=(f"KV events published ({engine.kv_events.source})",))
    line = (
        f"KV events: the engine publishes none ({engine.kv_events.source}), the mocker always does:"
        " the router sees cache hits here that it will not see on the cluster"
    )
    return _Words(not_simulated=(line,))


def _rest(engine: Effective) -> _Words:
    words = _Words()
    if engine.kv_dtype != "auto" and engine.kv_dtype in KV_DTYPES:
        words += _Words(
            ("--kv-cache-dtype", engine.kv_dtype), (f"KV cache type {engine.kv_dtype}",)
        )
    if engine.endpoint is not None:
        words += _Words(("--endpoint", engine.endpoint))
    return words
