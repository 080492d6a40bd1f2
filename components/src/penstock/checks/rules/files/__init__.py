"""Rules about the files themselves."""

from penstock.checks.rules.files import inputs, units

MODULES = (inputs, units)
