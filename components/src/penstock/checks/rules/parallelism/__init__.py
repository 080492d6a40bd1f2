"""Rules about parallelism and kernels."""

from penstock.checks.rules.parallelism import (
    attention_backends,
    engine_kernels,
    experts,
    flag_limits,
    kernels,
    parallel,
    ranks,
    sglang_backends,
    shards,
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
)
