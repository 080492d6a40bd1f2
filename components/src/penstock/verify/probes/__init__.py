"""The probes: one module each, registered in `PROBES`.

To add one, write a module with `probe(target) -> ProbeResult`, add its name to `Probe` in
`graph/`, and a row to `PROBES`, to `NOT_COVERED` and to the table in `docs/verify.md`.
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

# Probe → what it does not cover, also if it passes.
NOT_COVERED: Mapping[str, str] = {
    "topology": "whether a registered worker computes correctly",
    "models": "the text of the responses, and other endpoints than `/v1/completions`",
    "unknown-model": "other endpoints than completions and chat completions",
    "disaggregation": "requests under load, and short prompts, which a decode worker may compute",
    "kv-transfer": "whether the transferred KV is correct, and requests under load",
    "transport": "bandwidth, and connections that are opened later",
    "kv-routing": "choices under load, and of several frontends",
    "kv-events": "events that are lost under load, and evicted blocks",
    "block-size": "engines that do not report it (TensorRT-LLM, SGLang)",
    "prefix-cache": "a full cache, and KV that is moved to the CPU or to disk",
    "context-length": "several long requests at once",
    "streaming": "chat completions, and streams of many clients",
    "greedy": "whether the output is the model's: a wrong output that repeats passes",
    "reasoning-parser": "streams, and other prompts",
    "tool-call-parser": "streams, several calls, and other tools",
    "cancel": "requests in a queue or in prefill, and requests without a stream",
    "migration": "whether a request survives the loss of its worker, which `penstock drill` tests",
}
