"""Rules about the network."""

from penstock.checks.rules.network import fabric, ucx

MODULES = (
    fabric,
    ucx,
)
