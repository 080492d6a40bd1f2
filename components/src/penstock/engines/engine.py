"""The interface of an engine module, and the types that all of them share.

An engine module reads its own configuration into an `Effective`. `mocker_command.simulation` turns
that into the mocker's command line for `up`, and `penstock.simulate` into an engine of the replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from penstock.engines.parsers import NotParsed, Parsed
from penstock.manifests.deployment import Component, Launch


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A mocker that runs instead of an engine."""

    # All arguments of `dynamo.mocker` except --model-path and --model-name. Planes and discovery
    # are set by environment variables.
    arguments: tuple[str, ...]
    model: str
    served_names: tuple[str, ...]
    # One line for each setting of the engine that the mocker has too.
    simulated: tuple[str, ...]
    # One line for each setting of the engine that the mocker does not have.
    not_simulated: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NoSimulation:
    """The mocker has no such worker (image encoder, embeddings)."""

    # A clause.
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
        """The configuration it runs with, as far as it is known; arguments as for `simulate`."""
        ...


class Mode(StrEnum):
    """The mocker's worker types."""

    AGG = "agg"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True)
class Value:
    """A value that is set."""

    value: int
    # The engine's name of what sets it: `kv_cache_config.tokens_per_block`.
    source: str


@dataclass(frozen=True)
class Unset:
    """A value that is not set."""

    # Completes "context length: …".
    reason: str
    # What the mocker gets instead.
    value: int | None = None


@dataclass(frozen=True)
class Switch:
    on: bool
    # The engine's name of what sets it.
    source: str


@dataclass(frozen=True, kw_only=True)
class Effective:
    """The configuration that an engine runs with, as far as the mocker has such settings."""

    # The mocker's --engine-type.
    backend: str
    mode: Mode
    model: str
    served_names: tuple[str, ...]
    block_size: Value | Unset
    max_sequences: Value | Unset
    max_batch_tokens: Value | Unset
    max_length: Value | Unset
    # Per data-parallel rank.
    kv_blocks: Value | Unset
    # Data-parallel ranks of one worker process.
    ranks: Value
    prefix_caching: Switch
    chunked_prefill: Switch
    kv_events: Switch
    kv_dtype: str = "auto"
    endpoint: str | None = None
    not_simulated: tuple[str, ...] = ()


def given(launch: Launch, *names: str) -> str | None:
    """The first of the flags or variables ``names`` that the launch sets; `_` counts as `-`."""
    flags = {a.partition("=")[0].replace("_", "-") for a in launch.arguments if a.startswith("-")}
    return next((n for n in names if n in launch.env or n in flags), None)
