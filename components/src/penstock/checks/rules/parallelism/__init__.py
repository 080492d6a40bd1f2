"""Rules about parallelism and kernels."""

from penstock.checks.rules.parallelism import flag_limits, kernels, parallel, ranks

MODULES = (
    parallel,
    ranks,
    kernels,
    flag_limits,
)
