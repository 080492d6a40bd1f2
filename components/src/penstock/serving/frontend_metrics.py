"""Latency, requests and cache hits from the frontends' metrics (names of Dynamo 1.6). Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.metrics import Metrics, Sample

FRONTEND = "dynamo_frontend_"
TTFT = f"{FRONTEND}time_to_first_token_seconds"
ITL = f"{FRONTEND}inter_token_latency_seconds"
CACHED = f"{FRONTEND}cached_tokens_sum"
PROMPT = f"{FRONTEND}input_sequence_tokens_sum"
READY = f"{FRONTEND}model_ready"
REQUESTS = f"{FRONTEND}requests_total"
STARTED = f"{FRONTEND}requests_started_total"


@dataclass(frozen=True, kw_only=True)
class FrontendMetrics:
    """A summary over all frontends; latencies are None without a request."""

    # By name: whether every frontend can serve the model.
    models: dict[str, bool]
    requests: int
    # Medians over all requests of the interval.
    ttft_s: float | None
    itl_s: float | None
    # Share of prompt tokens found in a KV cache, 0 to 1.
    prefix_hit_rate: float | None


def summarize(now: Sequence[Sample], before: Sequence[Sample] = ()) -> FrontendMetrics:
    """``now``: samples of all frontends; ``before``: earlier samples, to cover only the interval
    between the two."""
    ready: dict[str, bool] = {}
    for sample in Metrics(tuple(now)).find(READY):
        name = sample.labels.get("model", "")
        ready[name] = ready.get(name, True) and sample.value == 1
    prompt = _increase(now, before, PROMPT)
    return FrontendMetrics(
        models=ready,
        requests=round(_increase(now, before, REQUESTS)),
        ttft_s=_median(now, before, TTFT),
        itl_s=_median(now, before, ITL),
        # The two are counted at different moments of a request, so a short interval may exceed 1.
        prefix_hit_rate=min(1.0, _increase(now, before, CACHED) / prompt) if prompt > 0 else None,
    )


def _increase(now: Iterable[Sample], before: Iterable[Sample], name: str) -> float:
    """The increase of a counter, summed over all series; never negative after a restart."""

    def total(samples: Iterable[Sample]) -> float:
        return Metrics(tuple(samples)).total([name]) or 0.0

    return max(0.0, total(now) - total(before))


def _counts(samples: Iterable[Sample], name: str) -> dict[str, float]:
    """The cumulative counts of a histogram by `le`, summed over all series."""
    counts: dict[str, float] = defaultdict(float)
    for sample in Metrics(tuple(samples)).find(f"{name}_bucket"):
        counts[sample.labels["le"]] += sample.value
    return counts


def _median(now: Sequence[Sample], before: Sequence[Sample], name: str) -> float | None:
    """The median of a histogram, interpolated within a bucket as by histogram_quantile."""
    last, first = _counts(now, name), _counts(before, name)
    counts = sorted((float(le), max(0.0, last[le] - first.get(le, 0.0))) for le in last)
    if not counts or not counts[-1][1]:
        return None
    half = counts[-1][1] / 2
    low = under = 0.0
    for bound, count in counts:
        if count >= half:
            if math.isinf(bound):
                return low
            return low + (bound - low) * (half - under) / (count - under)
        low, under = bound, count
    return None
