"""Rules about parallelism and kernels."""

from penstock.checks.rules.parallelism import experts, flag_limits, kernels, parallel, ranks

MODULES = (
    parallel,
    experts,
    ranks,
    kernels,
    flag_limits,
)
