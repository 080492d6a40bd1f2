"""Rules about an engine's configuration file."""

from penstock.checks.rules.engine_config import engine_file, engine_limits

MODULES = (
    engine_file,
    engine_limits,
)
