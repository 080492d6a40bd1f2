"""What every engine module offers, and the words they share.

An engine module reads its own configuration into an `Effective`; `mocker_command.simulation` turns
that into the mocker's command line for `up`, and `penstock.simulate` into replay's engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from penstock.engines.parsers import NotParsed, Parsed
from penstock.manifests.deployment import Component, Launch


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A mocker in an engine's place.

    ``arguments`` is the whole `dynamo.mocker` argument list but for --model-path and --model-name,
    and without planes and discovery, which come by environment. ``taken_over`` and ``left_out`` are
    lines for the reader: what the mocker does as the engine would, and what it does not.
    """

    arguments: tuple[str, ...]
    model: str
    served_names: tuple[str, ...]
    taken_over: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NoSimulation:
    """The mocker has no such worker (image encoder, embeddings); ``reason`` is a clause."""

    reason: str


class EngineModule(Protocol):
    """One inference engine: a module of this package."""

    def simulate(
        self, component: Component, launch: Launch, parsed: Parsed | NotParsed
    ) -> Simulation | NoSimulation:
        """``launch`` is one of the component's, ``parsed`` its result from `parse_launches`."""
        ...

    def effective(
        self, component: Component, launch: Launch, parsed: Parsed | NotParsed
    ) -> Effective | NoSimulation:
        """What it runs with, as far as a simulation can know; arguments as `simulate`'s."""
        ...


class Mode(StrEnum):
    """The mocker's worker types."""

    AGG = "agg"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True)
class Value:
    """A value, with the engine's own word for its source: `kv_cache_config.tokens_per_block`."""

    value: int
    source: str


@dataclass(frozen=True)
class Unset:
    """Nobody set it; ``reason`` completes "context length: …" and ``value`` is what is assumed."""

    reason: str
    value: int | None = None


@dataclass(frozen=True)
class Switch:
    on: bool
    source: str


@dataclass(frozen=True, kw_only=True)
class Effective:
    """The configuration an engine runs with, as far as the mocker knows such things.

    ``kv_blocks`` counts for one data-parallel rank; ``ranks`` are those of one worker process.
    """

    backend: str  # the mocker's --engine-type
    mode: Mode
    model: str
    served_names: tuple[str, ...]
    block_size: Value | Unset
    max_sequences: Value | Unset
    max_batch_tokens: Value | Unset
    max_length: Value | Unset
    kv_blocks: Value | Unset
    ranks: Value
    prefix_caching: Switch
    chunked_prefill: Switch
    kv_events: Switch
    kv_dtype: str = "auto"
    endpoint: str | None = None
    left_out: tuple[str, ...] = ()


def given(launch: Launch, *names: str) -> str | None:
    """Which of the flags or variables ``names`` the launch sets; underscores count as dashes."""
    flags = {a.partition("=")[0].replace("_", "-") for a in launch.arguments if a.startswith("-")}
    return next((n for n in names if n in launch.env or n in flags), None)


def as_mapping(value: Any) -> Mapping[str, Any]:
    """``value`` when it is a mapping, else an empty one: a check elsewhere refuses wrong types."""
    return value if isinstance(value, Mapping) else {}
