"""Compare the latencies of a short workload, live and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.simulate.window import ServedRequest, percentile
from penstock.text.numbers import significant
from penstock.workload import Request, Workload, sample
from penstock.workload.model import Arrival, Lengths

REQUESTS, RATE = 24, 3.0  # 8 s, about 200 tokens/s; two cores stream several times as many
INPUT, OUTPUT = 4000, 64
SEED = 1
TOLERANCE = 0.15


@dataclass(frozen=True, kw_only=True)
class LatencyPercentiles:
    """Latencies in milliseconds of simulated time."""

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
    """The same requests for every graph that accepts prompts of 4,000 tokens.

    A ``speed`` above 1 does not raise the requests per second on this machine.
    """
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
    """`twin: 24 requests, live / simulated: TTFT p50 22.1 / 17.5 ms, …`."""
    measured, replayed = latency_percentiles(live), latency_percentiles(simulated)
    pairs = {
        "TTFT": (measured.ttft_p50, replayed.ttft_p50),
        "ITL": (measured.itl_p50, replayed.itl_p50),
    }
    latencies = ", ".join(
        f"{name} p50 {significant(a)} / {significant(b)} ms" for name, (a, b) in pairs.items()
    )
    clock = "" if speed == 1 else f" in simulated time at {speed:g} × speed"
    note = "the difference is the overhead of the frontend and of this machine"
    if any(a > b * (1 + TOLERANCE) for a, b in pairs.values()):
        note += f"; --speed {speed / 2:g} halves its weight"
    return f"twin: {len(live)} requests, live / simulated{clock}: {latencies} ({note})"
