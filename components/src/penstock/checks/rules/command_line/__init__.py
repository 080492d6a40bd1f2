"""Rules about command-line flags and environment variables."""

from penstock.checks.rules.command_line import (
    engine_variables,
    flags,
    paired_flags,
    unknown_flags,
    variables,
)

MODULES = (
    unknown_flags,
    flags,
    variables,
    engine_variables,
    paired_flags,
)
