"""The probes: functions of the modules of this package, registered in `PROBES`; runs them.

To add one, write a function `(target) -> ProbeResult`, add its name to `Probe` in `graph/`, and a
row to `PROBES`, to `NOT_COVERED` and to the table in `docs/verify.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.verify.expected import Expectations
from penstock.verify.probes import kv, responses, workers
from penstock.verify.result import ProbeResult, Verdict, cannot_tell, failed
from penstock.verify.target import NoResponseError, NotReportedError, ProbeTarget, UnreachableError

# Ordered: the failure of an earlier probe often explains that of a later one.
PROBES: Mapping[str, Callable[[ProbeTarget], ProbeResult]] = {
    "topology": workers.topology,
    "workers": workers.workers,
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
    "workers": "the text of the responses, and requests under load",
    "models": "the text of the responses, and other endpoints than `/v1/completions`",
    "unknown-model": "other endpoints than completions and chat completions",
    "disaggregation": "requests under load, and short prompts, which a decode worker may compute",
    "kv-transfer": "whether the transferred KV is correct, and requests under load",
    "transport": "connections that are opened later",
    "kv-routing": "choices under load, and of several frontends",
    "kv-events": "events that are lost under load, and evicted blocks",
    "block-size": "engines that do not report it (TensorRT-LLM, SGLang)",
    "prefix-cache": "a full cache, and KV that is moved to the CPU or to disk",
    "context-length": "several long requests at once",
    "streaming": "chat completions, and streams of many clients",
    "greedy": "whether the output is the model's: a wrong output that repeats passes",
    "reasoning-parser": "streams, and other prompts",
    "tool-call-parser": "streams, several calls, and other tools",
    "cancel": "requests without a stream, and prefills of over 16 workers",
    "migration": "whether a request survives the loss of its worker, which `penstock drill` tests",
}


@dataclass(frozen=True, kw_only=True)
class ProbeRun:
    """One probe and its result."""

    name: str
    result: ProbeResult
    seconds: float
    required: bool
    """The graph lists it in `verify.must_pass`: "cannot tell" is a failure."""

    @property
    def ok(self) -> bool:
        verdict = self.result.verdict
        return verdict is Verdict.PASS or (verdict is Verdict.CANNOT_TELL and not self.required)


def run_probes(target: ProbeTarget, only: Collection[str] = ()) -> Iterator[ProbeRun]:
    """Yield one result per probe as each ends; ``only``: names of probes, empty for all."""
    must_pass = target.expected.must_pass if target.expected is not None else frozenset()
    unreachable: UnreachableError | None = None
    for name, probe in PROBES.items():
        if only and name not in only:
            continue
        started = time.monotonic()
        try:
            if unreachable is not None:
                raise unreachable
            result = probe(target)
        except UnreachableError as error:
            unreachable = error if not target.has_responded else None
            result = failed(str(error))
        except NotReportedError as error:
            result = cannot_tell(str(error))
        except NoResponseError as error:
            result = failed(str(error))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # Everything read here is JSON from another program.
            result = failed(f"a response is not that of a Dynamo frontend: {error!r}")
        yield ProbeRun(
            name=name,
            result=_with_hint(result, target.expected),
            seconds=time.monotonic() - started,
            required=name in must_pass,
        )


def _with_hint(result: ProbeResult, expected: Expectations | None) -> ProbeResult:
    """With the likely cause of a failure: pools that the graph declares without replicas."""
    empty = expected.empty_pools if expected is not None else ()
    if not empty or result.verdict is not Verdict.FAIL:
        return result
    pools, sets = ", ".join(empty), " ".join(f"{pool}=1" for pool in empty)
    hint = f"The graph declares 0 replicas of {pools}. Start one: `penstock scale GRAPH {sets}`."
    return replace(result, hint=hint)
