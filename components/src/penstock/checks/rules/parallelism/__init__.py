"""Rules about parallelism and kernels."""

from penstock.checks.rules.parallelism import (
    attention_backends,
    engine_kernels,
    experts,
    flag_limits,
    kernels,
    parallel,
    ranks,
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
)
