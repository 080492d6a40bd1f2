"""Rules about parallelism and kernels."""

from penstock.checks.rules.parallelism import (
    attention_backends,
    engine_kernels,
    experts,
    flag_limits,
    kernels,
    kv_cache_types,
    parallel,
    quantized_kernels,
    ranks,
    sglang_backends,
    sglang_layout,
    shards,
    vllm_layout,
)

MODULES = (
    parallel,
    experts,
    ranks,
    kernels,
    flag_limits,
    attention_backends,
    engine_kernels,
    shards,
    sglang_backends,
    sglang_layout,
    vllm_layout,
    quantized_kernels,
    kv_cache_types,
)
