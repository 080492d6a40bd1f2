"""The router chooses workers by cached prefix if and only if the graph's router mode is kv."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT = 300  # tokens
REPEATS = 4


def probe(target: ProbeTarget) -> ProbeResult:
    prompt = target.prompt(PROMPT)
    responses = [target.complete(prompt, 2)]
    target.wait_for(lambda: False, 0.5)  # KV events reach the router
    responses += [target.complete(prompt, 2) for _ in range(REPEATS - 1)]
    rates = [response.timing.get("kv_hit_rate") for response in responses]
    workers = {
        r.workers.get("prefill_worker_id") or r.workers.get("decode_worker_id") for r in responses
    }
    by_kv = any(rate is not None for rate in rates)
    observed = "the router reports KV hit rates" if by_kv else "the router reports no KV hit rate"
    if target.expected is None:
        return cannot_tell(f"no graph was given; {observed}")
    mode = target.expected.router_mode
    if by_kv != (mode == "kv"):
        return failed(
            f"the graph's router mode is {mode}, but {observed}",
            "Restart the frontend with the graph's flags; the first line of its log shows them.",
        )
    if not by_kv:
        return cannot_tell(f"{observed}, as in mode {mode}; no metric shows which mode it is")
    if len(workers) > 1:
        return failed(
            f"{REPEATS} equal prompts went to {len(workers)} workers; hit rates {rates}",
            "The router does not see cached prefixes: see `kv-events`.",
        )
    return passed(f"{REPEATS} equal prompts went to one worker; hit rate {rates[-1]:.2f}")
