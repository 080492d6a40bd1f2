"""Rules about the network."""

from penstock.checks.rules.network import fabric, mnnvl, ucx

MODULES = (
    fabric,
    ucx,
    mnnvl,
)
