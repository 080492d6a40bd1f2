"""Rules about the network."""

from penstock.checks.rules.network import efa, fabric, mnnvl, ucx

MODULES = (
    fabric,
    efa,
    ucx,
    mnnvl,
)
