"""The probes: one module each, registered in `PROBES`.

To add one, write a module with `probe(target) -> ProbeResult`, add its name to `Probe` in
`graph/`, a row to `PROBES`, and a section to the reference in `docs/verify.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.verify.probes import (
    block_size,
    cancel,
    context_length,
    disaggregation,
    greedy,
    kv_events,
    kv_routing,
    kv_transfer,
    migration,
    models,
    prefix_cache,
    reasoning_parser,
    streaming,
    tool_call_parser,
    topology,
    transport,
    unknown_model,
)
from penstock.verify.result import ProbeResult
from penstock.verify.target import ProbeTarget

# Ordered: the failure of an earlier probe often explains that of a later one.
PROBES: Mapping[str, Callable[[ProbeTarget], ProbeResult]] = {
    "topology": topology.probe,
    "models": models.probe,
    "unknown-model": unknown_model.probe,
    "disaggregation": disaggregation.probe,
    "kv-transfer": kv_transfer.probe,
    "transport": transport.probe,
    "kv-routing": kv_routing.probe,
    "kv-events": kv_events.probe,
    "block-size": block_size.probe,
    "prefix-cache": prefix_cache.probe,
    "context-length": context_length.probe,
    "streaming": streaming.probe,
    "greedy": greedy.probe,
    "reasoning-parser": reasoning_parser.probe,
    "tool-call-parser": tool_call_parser.probe,
    "cancel": cancel.probe,
    "migration": migration.probe,
}
