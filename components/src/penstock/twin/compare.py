"""A short load, live and in replay, and in one line how far the two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.simulate.metrics import ServedRequest, percentile
from penstock.workload import Request, Workload, sample
from penstock.workload.model import Arrival, Lengths

REQUESTS, RATE = 24, 3.0  # 8 s, some 200 tokens a second: two cores stream several times as many
INPUT, OUTPUT = 4000, 64
SEED = 1
TOLERANCE = 0.15


@dataclass(frozen=True, kw_only=True)
class LatencyPercentiles:
    """Milliseconds of the model's time."""

    ttft_p50: float
    ttft_p90: float
    itl_p50: float
    itl_p90: float


def latency_percentiles(requests: Sequence[ServedRequest]) -> LatencyPercentiles:
    ttft = [one.ttft_ms for one in requests]
    itl = [one.itl_ms for one in requests if one.itl_ms is not None]
    return LatencyPercentiles(
        ttft_p50=percentile(ttft, 0.5),
        ttft_p90=percentile(ttft, 0.9),
        itl_p50=percentile(itl, 0.5),
        itl_p90=percentile(itl, 0.9),
    )


def comparison_requests(context: int, speed: float) -> tuple[Request, ...]:
    """The same for every graph that takes prompts of 4,000 tokens; a clock that runs faster than
    real does not bring more requests a second to this machine."""
    prompt = min(INPUT, context // 4)
    workload = Workload(
        requests=REQUESTS,
        input=Lengths(mean=prompt, cv=0.5, max=2 * prompt),
        output=Lengths(mean=min(OUTPUT, max(1, context // 8))),
        arrival=Arrival(poisson=RATE / max(1.0, speed)),
    )
    return sample(workload, SEED)


def comparison_line(
    live: Sequence[ServedRequest], simulated: Sequence[ServedRequest], speed: float
) -> str:
    """`twin: 24 requests of its own, live / simulated: TTFT p50 22.1 / 17.5 ms, …`."""
    here, there = latency_percentiles(live), latency_percentiles(simulated)
    pairs = {"TTFT": (here.ttft_p50, there.ttft_p50), "ITL": (here.itl_p50, there.itl_p50)}
    said = ", ".join(f"{name} p50 {a:.3g} / {b:.3g} ms" for name, (a, b) in pairs.items())
    clock = "" if speed == 1 else f" in the model's time, at {speed:g} × speed"
    why = "more is the frontend's and this machine's own work"
    if any(a > b * (1 + TOLERANCE) for a, b in pairs.values()):
        why += f"; at --speed {speed / 2:g} it weighs half"
    return f"twin: {len(live)} requests of its own, live / simulated{clock}: {said} ({why})"
