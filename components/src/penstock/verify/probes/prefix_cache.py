"""A repeated long prompt hits the prefix cache with all its full blocks."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

BLOCKS = 14
PART = 5  # tokens beyond full blocks, so that engines agree on the number of full ones
BLOCK_SIZE = "dynamo_frontend_model_kv_cache_block_size"


def probe(target: ProbeTarget) -> ProbeResult:
    size = target.metrics().gauge(BLOCK_SIZE, model=target.model)
    if not size:
        return cannot_tell("the frontend exports no block size")
    expected = BLOCKS * int(size)
    prompt = target.prompt(expected + PART)
    before = target.complete(prompt, 2)
    target.wait_for(lambda: False, 0.5)  # KV events reach the router
    after = target.complete(prompt, 2)
    by_kv = target.expected is not None and target.expected.router_mode == "kv"
    if before.workers != after.workers and (target.is_mocked or not by_kv):
        # No routing by prefix; or a decode mocker reports its own cache, not the prefill worker's.
        return cannot_tell("the two requests went to different workers, with separate caches")
    first, second = before.cached_tokens, after.cached_tokens
    if first is None or second is None:
        return cannot_tell("usage has no cached_tokens")
    observed = (
        f"{second} of {expected + PART} tokens cached the second time, {first} the first time"
    )
    if second != expected:
        return failed(
            f"{observed}; expected {expected} ({BLOCKS} blocks of {int(size)})",
            "Prefix caching is off in the workers that prefill, or another worker got the request.",
        )
    return passed(f"{observed}: {BLOCKS} blocks of {int(size)}")
