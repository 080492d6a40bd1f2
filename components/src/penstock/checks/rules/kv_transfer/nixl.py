"""What vLLM's NIXL handshake compares between prefill and decode workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.checks.rules.kv_transfer.vllm_connectors import (
    ATTENTION_BACKENDS,
    connector_of,
    connectors_of,
    hma_flag,
)
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker


def nixl_pairs(deployment: ServingDeployment) -> Iterator[tuple[Worker, Worker]]:
    """(prefill, decode) workers that transfer KV with NIXL and compare the handshake's hash."""
    for pair in deployment.pairs:
        if all(_compares_hash(worker) for worker in pair):
            yield pair


def _compares_hash(worker: Worker) -> bool:
    connector = connector_of(worker)
    return (
        connector is not None
        and connector.has_nixl
        and all(c.extra.get("enforce_handshake_compat") is not False for c in connectors_of(worker))
    )


def has_hybrid_manager(worker: Worker) -> bool | None:
    """Whether the hybrid KV cache manager is on since vLLM 0.23; None if unknown."""
    flag, connector = hma_flag(worker), connector_of(worker)
    if flag is not None:
        return not flag
    return connector.supports_hma if connector is not None else None


def model_differences(prefill: Worker, decode: Worker) -> Iterator[tuple[str, Any, Any]]:
    """(key, prefill's setting, decode's) of what the pools load differently."""
    for name in ("model", "dtype"):
        first, second = prefill.value(name), decode.value(name)
        is_set = first is not None and second is not None and "auto" not in (first, second)
        if is_set and _canonical(first) != _canonical(second):
            yield name, first, second
    backends = _attention_backend(prefill), _attention_backend(decode)
    if None not in backends and backends[0] != backends[1]:
        yield ATTENTION_BACKENDS[0], *backends


def _canonical(name: Any) -> str:
    text = str(name)
    return {"half": "float16", "float": "float32"}.get(text, text)


def _attention_backend(worker: Worker) -> str | None:
    names = (str(worker.get(key) or "auto").upper() for key in ATTENTION_BACKENDS)
    return next((name for name in names if name != "AUTO"), None)
