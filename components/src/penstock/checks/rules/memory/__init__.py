"""Rules about GPU memory."""

from penstock.checks.rules.memory import memory_fit

MODULES = (memory_fit,)
