"""Rules about an engine's configuration file."""

from penstock.checks.rules.engine_config import (
    engine_file,
    engine_limits,
    llamacpp_file,
    vllm_flags,
)

MODULES = (
    engine_file,
    engine_limits,
    llamacpp_file,
    vllm_flags,
)
