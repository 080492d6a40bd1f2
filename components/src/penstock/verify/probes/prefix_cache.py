"""A repeated long prompt hits the prefix cache with all its full blocks.

llama.cpp also finds the tokens after them, all but the last one.
"""

from __future__ import annotations

from penstock.manifests.deployment import Role
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ApiResponse, ProbeTarget

BLOCKS = 14
PART = 5  # tokens beyond full blocks, so that engines agree on the number of full ones
MOST_WORKERS = 16  # with more, the probe may not find a cache that is used twice
BLOCK_SIZE = "dynamo_frontend_model_kv_cache_block_size"


def probe(target: ProbeTarget) -> ProbeResult:
    size = target.metrics().gauge(BLOCK_SIZE, model=target.model)
    if not size:
        return cannot_tell("the frontend exports no block size")
    expected = BLOCKS * int(size)
    pair = _two_of_one_cache(target, target.prompt(expected + PART))
    if pair is None:
        return cannot_tell("equal requests went to different workers, with separate caches")
    before, after = pair
    first, second = before.cached_tokens, after.cached_tokens
    if first is None or second is None:
        return cannot_tell("usage has no cached_tokens")
    observed = (
        f"{second} of {expected + PART} tokens cached the second time, {first} the first time"
    )
    # Without a graph, the engine is not known.
    beyond = PART - 1 if target.caches_single_tokens or target.expected is None else 0
    if not expected <= second <= expected + beyond:
        most = f" to {expected + beyond}" if beyond else ""
        return failed(
            f"{observed}; expected {expected}{most} ({BLOCKS} blocks of {int(size)})",
            "Prefix caching is off in the workers that prefill, or another worker got the request.",
        )
    more = f" and {second - expected} more tokens" if second > expected else ""
    return passed(f"{observed}: {BLOCKS} blocks of {int(size)}{more}")


def _two_of_one_cache(
    target: ProbeTarget, prompt: list[int]
) -> tuple[ApiResponse, ApiResponse] | None:
    """The first and a later response to equal requests, both of the same cache.

    The router chooses the worker by prefix in mode kv. In the other modes the worker that
    prefills, and with a mocker the decode worker, which reports its own cache, may be any: one
    request more than there are workers uses a cache twice.
    """
    by_kv = target.expected is not None and target.expected.router_mode == "kv"
    role = Role.DECODE if target.is_mocked else Role.PREFILL
    is_routed = by_kv and not target.is_mocked
    first: dict[object, ApiResponse] = {}
    for _ in range(MOST_WORKERS + 1):
        response = target.complete(prompt, 2)
        cache = None if is_routed else _worker(response, role)
        if cache in first:
            return first[cache], response
        first[cache] = response
        target.wait_for(lambda: False, 0.5)  # KV events reach the router
    return None


def _worker(response: ApiResponse, role: Role) -> object:
    decode = response.workers.get("decode_worker_id")
    prefill = response.workers.get("prefill_worker_id")
    return decode if role is Role.DECODE else prefill or decode
