"""Rules about the KV transfer between prefill and decode workers."""

from penstock.checks.rules.kv_transfer import (
    agreement,
    connector_settings,
    connectors,
    hybrid_models,
    lmcache,
    nixl_parallelism,
    nixl_pools,
    sglang_workers,
    transceiver,
    transfer,
    transports,
)

MODULES = (
    transfer,
    transceiver,
    agreement,
    connectors,
    connector_settings,
    nixl_pools,
    nixl_parallelism,
    hybrid_models,
    lmcache,
    transports,
    sglang_workers,
)
