"""The router chooses workers as the graph says: by cached prefix and load, or not."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT = 300  # tokens
REPEATS = 4


def probe(target: ProbeTarget) -> ProbeResult:
    prompt = target.prompt(PROMPT)
    answers = [target.complete(prompt, 2)]
    target.wait_for(lambda: False, 0.5)  # KV events reach the router
    answers += [target.complete(prompt, 2) for _ in range(REPEATS - 1)]
    rates = [answer.timing.get("kv_hit_rate") for answer in answers]
    readers = {
        a.workers.get("prefill_worker_id") or a.workers.get("decode_worker_id") for a in answers
    }
    by_kv = any(rate is not None for rate in rates)
    told = "the router reports KV hit rates" if by_kv else "the router reports no KV hit rate"
    if target.expected is None:
        return cannot_tell(f"no graph was given; {told}")
    wanted = target.expected.router_mode
    if by_kv != (wanted == "kv"):
        return failed(
            f"the graph says router mode {wanted}, and {told}",
            "the frontend runs with other flags than the graph's: see its log's first line",
        )
    if not by_kv:
        return cannot_tell(f"{told}, as with {wanted}; which other mode it is, nothing tells")
    if len(readers) > 1:
        return failed(
            f"{REPEATS} equal prompts were read by {len(readers)} workers; hit rates {rates}",
            "the router does not learn of cached prefixes: see kv-events",
        )
    return passed(f"{REPEATS} equal prompts were read by one worker; hit rate {rates[-1]:.2f}")
