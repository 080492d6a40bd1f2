"""Rules about command-line flags and environment variables."""

from penstock.checks.rules.command_line import (
    engine_variables,
    flags,
    joined_arguments,
    misspelled_variables,
    paired_flags,
    unknown_flags,
    variables,
)

MODULES = (
    unknown_flags,
    flags,
    variables,
    engine_variables,
    misspelled_variables,
    paired_flags,
    joined_arguments,
)
