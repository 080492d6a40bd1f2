"""How a deployment serves, from the frontends' metrics (Dynamo 1.6's names). Pure."""

from __future__ import annotations

import math
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


@dataclass(frozen=True, kw_only=True)
class FrontendMetrics:
    """Latencies in seconds, as medians over all requests that the samples hold; None: no request.

    ``models`` by name: whether every frontend can serve it. ``cache_hit``: share of prompt tokens
    that were in a KV cache.
    """

    models: dict[str, bool]
    requests: int
    ttft_s: float | None
    itl_s: float | None
    cache_hit: float | None


def serving(now: Sequence[Sample], before: Sequence[Sample] = ()) -> FrontendMetrics:
    """``now``: samples of all frontends; less ``before``, where only what came since counts."""
    ready: dict[str, bool] = {}
    for sample in Metrics(tuple(now)).find(READY):
        name = sample.labels.get("model", "")
        ready[name] = ready.get(name, True) and sample.value == 1
    prompt = _grown(now, before, PROMPT)
    return FrontendMetrics(
        models=ready,
        requests=round(_grown(now, before, REQUESTS)),
        ttft_s=_median(now, before, TTFT),
        itl_s=_median(now, before, ITL),
        cache_hit=_grown(now, before, CACHED) / prompt if prompt > 0 else None,
    )


def _grown(now: Iterable[Sample], before: Iterable[Sample], name: str, le: str = "") -> float:
    """A counter's sum over all series; a frontend that started anew counts from zero."""

    def total(samples: Iterable[Sample]) -> float:
        wanted = {"le": le} if le else {}
        return Metrics(tuple(samples)).total([name], **wanted) or 0.0

    return max(0.0, total(now) - total(before))


def _median(now: Sequence[Sample], before: Sequence[Sample], name: str) -> float | None:
    """Of a histogram, linear within a bucket as Prometheus' histogram_quantile."""
    bucket = f"{name}_bucket"
    bounds = {s.labels["le"] for s in now if s.name == bucket}
    counts = sorted((float(le), _grown(now, before, bucket, le)) for le in bounds)
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
