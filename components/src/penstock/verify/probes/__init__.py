"""The probes: functions of the modules of this package, registered in `PROBES`.

To add one, write a function `(target) -> ProbeResult`, add its name to `Probe` in `graph/`, and a
row to `PROBES`, to `NOT_COVERED` and to the table in `docs/verify.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.verify.probes import kv, responses, workers
from penstock.verify.result import ProbeResult
from penstock.verify.target import ProbeTarget

# Ordered: the failure of an earlier probe often explains that of a later one.
PROBES: Mapping[str, Callable[[ProbeTarget], ProbeResult]] = {
    "topology": workers.topology,
    "models": workers.models,
    "unknown-model": workers.unknown_model,
    "disaggregation": workers.disaggregation,
    "kv-transfer": kv.kv_transfer,
    "transport": kv.transport,
    "kv-routing": kv.kv_routing,
    "kv-events": kv.kv_events,
    "block-size": kv.block_size,
    "prefix-cache": kv.prefix_cache,
    "context-length": responses.context_length,
    "streaming": responses.streaming,
    "greedy": responses.greedy,
    "reasoning-parser": responses.reasoning_parser,
    "tool-call-parser": responses.tool_call_parser,
    "cancel": responses.cancel,
    "migration": workers.migration,
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
