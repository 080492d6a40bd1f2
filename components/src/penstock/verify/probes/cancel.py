"""A client that disconnects frees its slot: its request is canceled."""

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
        return cannot_tell(
            "no worker exports its requests in flight", "Give the workers' metrics (--metrics)."
        )
    if before:
        return cannot_tell(f"{before:.0f} other requests are in flight", "Stop other traffic.")
    stream = target.stream(target.prompt(PROMPT), limit - PROMPT)
    started = time.monotonic()
    for _ in range(3):
        next(stream, None)
    seconds_per_token = (time.monotonic() - started) / 3
    during = _inflight(target)
    stream.close()
    if not during:
        return cannot_tell("no worker showed the request in flight", "Give every worker's metrics.")
    client_left = time.monotonic()
    if not target.wait_for(lambda: _inflight(target) == 0, WAIT_S):
        return failed(
            f"{_inflight(target):.0f} requests in flight {WAIT_S:.0f} s after the client left",
            "A proxy in front of the frontend keeps the connection open.",
        )
    if seconds_per_token * (limit - PROMPT) < WAIT_S:
        return cannot_tell(
            "the complete output takes no longer than the time limit of the cancellation"
        )
    running = target.metrics().total(RUNNING)
    engine = "" if running is None else f", {running:.0f} running in the engines"
    return passed(
        f"the slot was free {time.monotonic() - client_left:.1f} s after the client left{engine}"
    )


def _inflight(target: ProbeTarget) -> float:
    return target.metrics().total(INFLIGHT, dynamo_endpoint="generate") or 0.0
