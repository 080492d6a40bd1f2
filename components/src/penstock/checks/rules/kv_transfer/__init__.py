"""Rules about the KV transfer between prefill and decode workers."""

from penstock.checks.rules.kv_transfer import agreement, connectors, transceiver, transfer

MODULES = (
    transfer,
    transceiver,
    agreement,
    connectors,
)
