"""Rules about the network."""

from penstock.checks.rules.network import efa, fabric, ucx

MODULES = (
    fabric,
    efa,
    ucx,
)
