"""The interface of an engine module, and the types that all of them share.

An engine module reads its own configuration into an `Effective`. `mocker.simulation` turns
that into the mocker's command line for `up`, and `penstock.simulate` into an engine of the replay.
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

    def effective(
        self, component: Component, launch: Launch, parsed: Parsed | NotParsed
    ) -> Effective | NoSimulation:
        """The configuration it runs with, as far as it is known. ``launch`` is one of the
        component's, ``parsed`` its result from `check_launches`."""
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


def first_set(launch: Launch, *names: str) -> str | None:
    """The first of the flags or variables ``names`` that the launch sets; `_` counts as `-`."""
    flags = {a.partition("=")[0].replace("_", "-") for a in launch.arguments if a.startswith("-")}
    return next((n for n in names if n in launch.env or n in flags), None)


def explicit_endpoint(launch: Launch, settings: Mapping[str, Any]) -> str | None:
    """The address under which the worker registers, if the launch sets it or its namespace.

    If it is unset, engine and mocker agree: `dyn://$DYN_NAMESPACE.prefill.generate` for prefill
    workers, else `.backend.generate`. The mocker has no --namespace and does not read DYN_ENDPOINT.
    """
    if first_set(launch, "--endpoint", "--namespace", "DYN_ENDPOINT") is None:
        return None
    return "dyn://{namespace}.{component}.{endpoint}".format_map(settings)


def speculation_line(kind: str, tokens: Any) -> str:
    """Why the mocker does not simulate speculative decoding."""
    drafted = f", {tokens} tokens" if tokens else ""
    return (
        f"speculative decoding ({kind}{drafted}): the mocker needs a measured acceptance rate,"
        " so it decodes one token per step"
    )


def parser_lines(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of Dynamo's worker settings have no effect on the mocker, and why."""
    lines = []
    names = (settings.get("dyn_reasoning_parser"), settings.get("dyn_tool_call_parser"))
    if parsers := [name for name in names if name]:
        lines.append(
            f"reasoning and tool parsers ({', '.join(parsers)}): the mocker's output is random"
            " tokens, so there is nothing to parse"
        )
    if settings.get("enable_multimodal"):
        lines.append("multimodal input: the mocker reads text only")
    advertised = settings.get("router_advertisement") or {}
    if mode := advertised.get("router_mode"):
        lines.append(
            f"--router-mode {mode} advertised by the worker: the frontend's own mode applies"
        )
    return tuple(lines)
