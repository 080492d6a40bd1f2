"""A client that goes away frees its slot: nobody computes for it any more."""

from __future__ import annotations

import time

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT = 16
WAIT_S = 5.0
INFLIGHT = ("dynamo_component_inflight_requests",)
RUNNING = (
    "vllm:num_requests_running",
    "trtllm_num_requests_running",
    "trtllm:num_requests_running",
)
LIMIT = "dynamo_frontend_model_context_length"


def probe(target: ProbeTarget) -> ProbeResult:
    metrics = target.metrics()
    limit = int(metrics.gauge(LIMIT, model=target.model) or 0)
    before = metrics.total(INFLIGHT, dynamo_endpoint="generate")
    if before is None or not limit:
        return cannot_tell("no worker exports its requests in flight", "give --metrics")
    if before:
        return cannot_tell(f"{before:.0f} other requests are in flight", "ask when there are none")
    stream = target.stream(target.prompt(PROMPT), limit - PROMPT)
    started = time.monotonic()
    for _ in range(3):
        next(stream, None)
    a_token_s = (time.monotonic() - started) / 3
    during = _inflight(target)
    stream.close()
    if not during:
        return cannot_tell("the request was not seen in flight", "give every worker's metrics")
    left = time.monotonic()
    if not target.wait_for(lambda: _inflight(target) == 0, WAIT_S):
        return failed(
            f"{_inflight(target):.0f} requests in flight {WAIT_S:.0f} s after the client left",
            "something before the frontend keeps the connection open",
        )
    if a_token_s * (limit - PROMPT) < WAIT_S:
        return cannot_tell("the whole answer takes no longer than the cancellation may")
    running = target.metrics().total(RUNNING)
    engine = "" if running is None else f", {running:.0f} running in the engines"
    return passed(
        f"its slot was free {time.monotonic() - left:.1f} s after the client left{engine}"
    )


def _inflight(target: ProbeTarget) -> float:
    return target.metrics().total(INFLIGHT, dynamo_endpoint="generate") or 0.0
