"""A repeated long prompt hits the prefix cache, by the number of whole blocks in it."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

BLOCKS = 14
PART = 5  # tokens beyond whole blocks, so that engines agree on how many are whole
BLOCK_SIZE = "dynamo_frontend_model_kv_cache_block_size"


def probe(target: ProbeTarget) -> ProbeResult:
    size = target.metrics().gauge(BLOCK_SIZE, model=target.model)
    if not size:
        return cannot_tell("the frontend exports no block size")
    wanted = BLOCKS * int(size)
    prompt = target.prompt(wanted + PART)
    before = target.complete(prompt, 2)
    target.wait_for(lambda: False, 0.5)  # KV events reach the router
    after = target.complete(prompt, 2)
    by_kv = target.expected is not None and target.expected.router_mode == "kv"
    if before.workers != after.workers and (target.is_mocked or not by_kv):
        # Nothing routes by prefix; or a decoding mocker reports its own cache, not the prefill's.
        return cannot_tell("the two requests met different workers, of which one had not read it")
    first, second = before.cached_tokens, after.cached_tokens
    if first is None or second is None:
        return cannot_tell("usage holds no cached_tokens")
    told = f"{second} of {wanted + PART} tokens cached at the second time, {first} at the first"
    if second != wanted:
        return failed(
            f"{told}; expected {wanted} ({BLOCKS} blocks of {int(size)})",
            "prefix caching is off in the workers that read prompts, or another worker read it",
        )
    return passed(f"{told}: {BLOCKS} blocks of {int(size)}")
