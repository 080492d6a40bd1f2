"""Rules about KV connectors with models of several kinds of layers (vLLM)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.kv_transfer.vllm_connectors import (
    HMA_FLAG,
    SECTION,
    Connector,
    connector_of,
    hma_flag,
)
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

LAYOUT = "VLLM_SSM_CONV_STATE_LAYOUT"
# Before 0.23, vLLM disabled the manager with every connector.
OFF_BY_DEFAULT = Versions(vllm=">=0.14,<0.23")
# Before 0.14, no flag enabled it again.
ALWAYS_OFF = Versions(vllm="<0.14")
OFF_IF_UNSUPPORTED = Versions(vllm=">=0.23")
EVENTS = "kv-events-config"
OFF_WITH_EVENTS = Versions(vllm="<0.20")


def unsupported_layers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts = deployment.facts_of(worker)
        connector = connector_of(worker)
        if connector is not None and hma_flag(worker) is False:
            yield from _enabled_without_support(worker, connector)
        elif worker.engine is Engine.VLLM and facts is not None and facts.is_hybrid:
            yield from _recurrent_layers(worker, connector)
        elif connector is not None and facts is not None and facts.has_windows:
            yield from _sliding_windows(worker, connector)


def _enabled_without_support(worker: Worker, connector: Connector) -> Iterator[RuleResult]:
    if connector.supports_hma is False:
        yield RuleResult(
            location=worker.config_location(HMA_FLAG),
            message=f"{HMA_FLAG} is false, but {_without_support(connector)} does not support the "
            "hybrid KV cache manager",
            fix=Fix(text=f"Remove {HMA_FLAG}.", config={HMA_FLAG: None}),
            why="vLLM raises ValueError at startup.",
            versions=OFF_IF_UNSUPPORTED,
        )


def _without_support(connector: Connector) -> str:
    return next(
        (one.name for one in connector.walk() if one.supports_hma is False and not one.children),
        connector.name,
    )


def _recurrent_layers(worker: Worker, connector: Connector | None) -> Iterator[RuleResult]:
    flag = hma_flag(worker)
    why = "The layers need different KV layouts, and vLLM raises ValueError at startup."
    if flag is True:
        yield RuleResult(
            location=worker.config_location(HMA_FLAG),
            message=f"{HMA_FLAG} is set, but {worker.value('model')} has recurrent layers",
            fix=Fix(text=f"Remove {HMA_FLAG}.", config={HMA_FLAG: None}),
            why=why,
        )
    elif connector is not None:
        yield RuleResult(
            location=worker.config_location(SECTION),
            message=f"{connector.name} disables the hybrid KV cache manager, which "
            f"{worker.value('model')} requires for its recurrent layers",
            fix=Fix(text=f"Add --no-{HMA_FLAG}.", config={HMA_FLAG: False}),
            why=why,
            versions=OFF_BY_DEFAULT,
        )
        yield RuleResult(
            location=worker.config_location(SECTION),
            message=f"{connector.name} disables the hybrid KV cache manager, which "
            f"{worker.value('model')} requires for its recurrent layers",
            fix=Fix(text=f"Remove {SECTION}, or use a newer image."),
            why=why,
            versions=ALWAYS_OFF,
        )
        if connector.supports_hma is False:
            yield RuleResult(
                location=worker.config_location(SECTION),
                message=f"{_without_support(connector)} does not support the hybrid KV cache "
                f"manager, which {worker.value('model')} requires for its recurrent layers",
                fix=Fix(text="Use OffloadingConnector, NixlConnector or no connector."),
                why=why,
                versions=OFF_IF_UNSUPPORTED,
            )
    elif _publishes_events(worker):
        yield RuleResult(
            location=worker.config_location(EVENTS),
            message=f"{EVENTS} disables the hybrid KV cache manager, which "
            f"{worker.value('model')} requires for its recurrent layers",
            fix=Fix(text=f"Remove {EVENTS}.", config={EVENTS: None}),
            why=why,
            versions=OFF_WITH_EVENTS,
        )


def _publishes_events(worker: Worker) -> bool:
    """Whether Dynamo hands the events' configuration to vLLM (create_kv_events_config)."""
    has_section = isinstance(worker.get(EVENTS), Mapping)
    is_off = worker.role is Role.DECODE or worker.get("enable-prefix-caching") is False
    return has_section and not is_off


def _sliding_windows(worker: Worker, connector: Connector) -> Iterator[RuleResult]:
    if hma_flag(worker) is None and connector.supports_hma is False:
        yield RuleResult(
            location=worker.config_location(SECTION),
            message=f"{_without_support(connector)} does not support the hybrid KV cache manager, "
            f"so all layers of {worker.value('model')} keep the KV of all tokens",
            fix=Fix(
                text="Use a connector that supports it, such as OffloadingConnector, or set "
                f"{HMA_FLAG} to state that this is intended.",
                config={HMA_FLAG: True},
            ),
            why="The sliding-window layers keep as much KV as the others: the cache holds fewer "
            "sequences, or one of the full length does not fit. With some models vLLM does not "
            "start until the flag is set.",
            level=Level.WARNING,
            versions=OFF_IF_UNSUPPORTED,
        )


def convolution_layout(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        connector, facts = connector_of(worker), deployment.facts_of(worker)
        if connector is None or not connector.has_nixl or facts is None or not facts.is_hybrid:
            continue
        value = worker.env(LAYOUT)
        launch = worker.launch
        if value == "DS" or LAYOUT in launch.unknown_variables or launch.has_unread_variables:
            continue
        yield RuleResult(
            location=worker.location("env", LAYOUT),
            message=f"{LAYOUT} is {value or 'not set'}, but {connector.name} requires DS for the "
            f"recurrent layers of {worker.value('model')}",
            fix=Fix(text=f"Set {LAYOUT}=DS.", env={LAYOUT: "DS"}),
        )
