"""Rules about what vLLM's NIXL handshake compares between prefill and decode workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.kv_transfer.vllm_connectors import (
    HMA_FLAG,
    PULL_CONNECTORS,
    SECTION,
    Connector,
    connector_of,
    hma_flag,
)
from penstock.checks.version_range import Versions
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

Pair = tuple[Worker, Worker]
# Before 0.23, vLLM turned the hybrid KV cache manager off with every connector.
OFF_BY_DEFAULT = Versions(vllm=">=0.19,<0.23")
OFF_IF_UNSUPPORTED = Versions(vllm=">=0.23")
EFFECT = (
    "The decode worker rejects the handshake with a compatibility hash mismatch, and requests fail."
)


def nixl_pairs(deployment: ServingDeployment) -> Iterator[tuple[Pair, Connector, Connector]]:
    """(prefill, decode) workers that transfer KV with NIXL, and their connectors."""
    for prefill, decode in deployment.pairs:
        first, second = connector_of(prefill), connector_of(decode)
        if first is not None and second is not None and first.has_nixl and second.has_nixl:
            if _enforces(first) and _enforces(second):
                yield (prefill, decode), first, second


def _enforces(connector: Connector) -> bool:
    """Whether the hash is compared; `enforce_handshake_compat` turns that off."""
    return not any(one.extra.get("enforce_handshake_compat") is False for one in connector.walk())


def hybrid_manager_differs(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for (prefill, decode), first, second in nixl_pairs(deployment):
        flags = hma_flag(prefill), hma_flag(decode)
        by_default = [flag is False for flag in flags]
        if by_default[0] != by_default[1]:
            yield _manager_differs(prefill, decode, by_default, OFF_BY_DEFAULT)
        by_support = [_is_on(flag, c) for flag, c in zip(flags, (first, second), strict=True)]
        if None not in by_support and by_support[0] != by_support[1]:
            yield _manager_differs(prefill, decode, by_support, OFF_IF_UNSUPPORTED)


def _is_on(flag: bool | None, connector: Connector) -> bool | None:
    return connector.supports_hma if flag is None else not flag


def _manager_differs(
    prefill: Worker, decode: Worker, is_on: list[Any], versions: Versions
) -> RuleResult:
    states = ["enabled" if on else "disabled" for on in is_on]
    flagged = next((w for w in (decode, prefill) if hma_flag(w) is not None), None)
    on = prefill if is_on[0] else decode
    return RuleResult(
        location=(flagged or on).config_location(HMA_FLAG if flagged else SECTION),
        message=f"the hybrid KV cache manager is {states[0]} on {prefill.name} and {states[1]} on "
        f"{decode.name}",
        fix=Fix(text=f"Remove {HMA_FLAG} from {flagged.name}.", config={HMA_FLAG: None})
        if flagged
        else Fix(text=f"Set {HMA_FLAG} on {on.name} too.", config={HMA_FLAG: True}),
        versions=versions,
    )


def model_differs(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for (prefill, decode), _, _ in nixl_pairs(deployment):
        for name, what in (("model", "model"), ("dtype", "dtype")):
            first, second = prefill.value(name), decode.value(name)
            is_set = first is not None and second is not None and "auto" not in (first, second)
            if is_set and _canonical(first) != _canonical(second):
                yield _differs(decode, what, decode.name, second, prefill.name, first)
        backends = _backend(prefill), _backend(decode)
        if None not in backends and backends[0] != backends[1]:
            yield _differs(
                decode, "attention-backend", decode.name, backends[1], prefill.name, backends[0]
            )


def _canonical(value: Any) -> str:
    text = str(value)
    return {"half": "float16", "float": "float32"}.get(text, text)


def _backend(worker: Worker) -> str | None:
    for key in ("attention-backend", "attention-config.backend"):
        if (value := worker.get(key)) is not None and str(value).lower() != "auto":
            return str(value).upper()
    return None


def _differs(
    decode: Worker, key: str, name: str, value: Any, other: str, other_value: Any
) -> RuleResult:
    return RuleResult(
        location=decode.config_location(key),
        message=f"{name} has {key} {value}, but {other} has {other_value}",
        fix=Fix(text=f"Set {key} to {other_value} on both pools.", config={key: other_value}),
    )


def cross_layer_blocks_differ(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for (prefill, decode), first, second in nixl_pairs(deployment):
        facts = deployment.facts_of(decode)
        # Models with several kinds of layers, and MLA, never use this layout.
        if facts is None or facts.is_mla or facts.has_several_kv_layouts:
            continue
        states = _crosses_layers(first), _crosses_layers(second)
        if None in states or states[0] == states[1]:
            continue
        worker = prefill if states[0] else decode
        off = decode if states[0] else prefill
        yield RuleResult(
            location=worker.config_location(SECTION),
            message=f"{worker.name} stores the KV of all layers together "
            f"(enable_cross_layers_blocks), but {off.name} does not",
            fix=Fix(text="Remove enable_cross_layers_blocks from both pools."),
        )


def _crosses_layers(connector: Connector) -> bool | None:
    """None if unknown."""
    if connector.name in PULL_CONNECTORS:
        return str(connector.extra.get("enable_cross_layers_blocks", False)).lower() == "true"
    if connector.name in ("DynamoConnector", "LMCacheConnectorV1"):
        return False
    found = [_crosses_layers(child) for child in connector.children]
    if False in found:
        return False
    return None if None in found or not found else True
