"""Rules about the KV transfer between prefill and decode workers."""

from penstock.checks.rules.kv_transfer import (
    agreement,
    connector_settings,
    connectors,
    hybrid_models,
    lmcache,
    lmcache_settings,
    nixl_parallelism,
    nixl_pools,
    offloading,
    sglang_exclusions,
    sglang_workers,
    transceiver,
    transfer,
    transports,
    vllm_exclusions,
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
    offloading,
    vllm_exclusions,
    sglang_exclusions,
    lmcache_settings,
)
