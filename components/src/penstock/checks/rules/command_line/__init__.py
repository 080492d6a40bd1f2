"""Rules about command-line flags and environment variables."""

from penstock.checks.rules.command_line import flags, variables

MODULES = (
    flags,
    variables,
)
