"""Rules about an engine's configuration file."""

from penstock.checks.rules.engine_config import (
    accepted_values,
    engine_dry_run,
    engine_file,
    engine_limits,
    llamacpp_file,
    mamba_state,
    trtllm_exclusions,
    vllm_flags,
)

MODULES = (
    engine_file,
    engine_limits,
    llamacpp_file,
    vllm_flags,
    accepted_values,
    mamba_state,
    trtllm_exclusions,
    engine_dry_run,
)
