"""One module a probe, one table. A probe takes the target and answers pass, fail or cannot tell.

To add one: a module here with `probe(target) -> Outcome`, its name in `graph.model.Probe`, its line
in the table, a section in the reference of `components/verify.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.verify.outcome import Outcome
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
from penstock.verify.target import Target

# In this order: what stands first explains best why what stands below fails too.
PROBES: Mapping[str, Callable[[Target], Outcome]] = {
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
