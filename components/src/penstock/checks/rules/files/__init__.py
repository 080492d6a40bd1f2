"""Rules about the files themselves."""

from penstock.checks.rules.files import inputs, repeated_keys, units

MODULES = (inputs, repeated_keys, units)
