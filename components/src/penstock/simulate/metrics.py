"""What a replay's requests went through, as the figures that an operator asks for.

Times are milliseconds of the simulated clock. Requests that come while the engines fill, for twice
the time that one takes, are not counted, nor is the time after the last arrival, while they empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any

from penstock.graph.slo import Slo

LEAST_WARM_UP, MOST_WARM_UP = 0.1, 0.5  # shares of the requests
STEADY = 2  # times that one request takes, below which nothing is steady


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """One request. ``itl_ms``: the mean gap of its tokens, None with a single one;
    ``decode_queue_ms``: None where no decode pool was waited for."""

    arrived_ms: float
    ended_ms: float
    first_ms: float
    tokens: int
    ttft_ms: float
    itl_ms: float | None
    prefill_queue_ms: float
    decode_queue_ms: float | None
    input_tokens: int
    cached_tokens: int

    def meets(self, slo: Slo) -> bool:
        pairs = (
            (self.ttft_ms, slo.ttft_ms),
            (self.itl_ms, slo.itl_ms),
            (self.ended_ms - self.arrived_ms, slo.e2e_ms),
        )
        return all(took is None or most is None or took <= most for took, most in pairs)


@dataclass(frozen=True, kw_only=True)
class ReplayMetrics:
    """One replay's figures. ``goodput``: the share of requests that met the SLO, None without one;
    ``output_rate``: tokens a second of the whole deployment; ``gap_p99_ms``: between two tokens,
    of all tokens; ``decode_queue_p99_ms``: in the queues of the decode pool, None without one;
    ``prefix_hit_rate``: share of input tokens found in a cache; ``gpu_hours``: of the whole
    replay,
    from its beginning to the last answer."""

    requests: int
    unfinished: int
    ttft_p50_ms: float
    ttft_p90_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p90_ms: float
    itl_p99_ms: float
    gap_p99_ms: float
    prefill_queue_p99_ms: float
    decode_queue_p99_ms: float | None
    user_rate: float
    output_rate: float
    gpu_rate: float
    request_rate: float
    goodput: float | None
    prefix_hit_rate: float
    gpu_hours: float
    gpu_hours_per_million: float | None


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0


def served_requests(answer: Mapping[str, Any]) -> list[ServedRequest]:
    """The requests that a replay answered, in order of arrival."""
    columns = answer["requests"]
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    found = [_served_request(row) for row in rows if row["last_token_ms"] is not None]
    return sorted(found, key=lambda one: one.arrived_ms)


def _served_request(row: Mapping[str, Any]) -> ServedRequest:
    tokens, first, last = row["output_length"], row["first_token_ms"], row["last_token_ms"]
    return ServedRequest(
        arrived_ms=row["arrival_time_ms"],
        ended_ms=last,
        first_ms=first,
        tokens=tokens,
        ttft_ms=first - row["arrival_time_ms"],
        itl_ms=(last - first) / (tokens - 1) if tokens > 1 else None,
        prefill_queue_ms=row["prefill_queue_ms"] or 0.0,
        decode_queue_ms=row["decode_queue_ms"],
        input_tokens=row["input_length"],
        cached_tokens=row["reused_input_tokens"] or 0,
    )


def steady_requests(answer: Mapping[str, Any]) -> list[ServedRequest]:
    """The requests that an `ReplayMetrics` is of: those that came while the engines were full."""
    requests = served_requests(answer)
    return _between(requests, *_window(requests))


def _between(requests: list[ServedRequest], begin: float, end: float) -> list[ServedRequest]:
    return [r for r in requests if begin <= r.arrived_ms <= end] or requests


def replay_metrics(
    answer: Mapping[str, Any], gpus: float, slo: Slo, too_long: int = 0, *, is_whole: bool = False
) -> ReplayMetrics:
    """The figures of one replay; SLO and GPUs, on average, are not the replay's. The ``too_long``
    requests that it never saw met no SLO. ``is_whole``: no steady part is looked for."""
    requests = served_requests(answer)
    begin, end = _whole(requests) if is_whole else _window(requests)
    some = _between(requests, begin, end)
    ttft = [r.ttft_ms for r in some]
    itl = [r.itl_ms for r in some if r.itl_ms is not None]
    queued = [r.decode_queue_ms for r in some if r.decode_queue_ms is not None]
    seconds = max(end - begin, 1e-6) / 1000
    rate = sum(_tokens_within(r, begin, end) for r in requests) / seconds
    prompts = sum(r.input_tokens for r in some)
    summary = answer["summary"]
    goodput = sum(r.meets(slo) for r in some) / max(1, len(some))
    unfinished = summary["num_requests"] - summary["completed_requests"]
    refused = (too_long + unfinished) / max(1, len(requests) + too_long + unfinished)
    return ReplayMetrics(
        requests=len(some),
        unfinished=unfinished,
        ttft_p50_ms=percentile(ttft, 0.5),
        ttft_p90_ms=percentile(ttft, 0.9),
        ttft_p99_ms=percentile(ttft, 0.99),
        itl_p50_ms=percentile(itl, 0.5),
        itl_p90_ms=percentile(itl, 0.9),
        itl_p99_ms=percentile(itl, 0.99),
        gap_p99_ms=summary["p99_itl_ms"] or 0.0,
        prefill_queue_p99_ms=percentile([r.prefill_queue_ms for r in some], 0.99),
        decode_queue_p99_ms=percentile(queued, 0.99) if queued else None,
        user_rate=1000 / max(percentile(itl, 0.5), 1e-6) if itl else 0.0,
        output_rate=rate,
        gpu_rate=rate / gpus,
        request_rate=len(some) / seconds,
        goodput=goodput * (1 - refused) if slo and some else None,
        prefix_hit_rate=sum(r.cached_tokens for r in some) / prompts if prompts else 0.0,
        gpu_hours=gpus * summary["duration_ms"] / 3.6e6,
        gpu_hours_per_million=gpus * 1e6 / rate / 3600 if rate else None,
    )


def _window(requests: Sequence[ServedRequest]) -> tuple[float, float]:
    """From the end of the warm-up to the last arrival; the whole, where all come within the time
    that some requests take, as nothing is steady then."""
    if not requests:
        return 0.0, 0.0
    first, end = requests[0].arrived_ms, requests[-1].arrived_ms
    took = median(request.ended_ms - request.arrived_ms for request in requests)
    least, most = (
        requests[int(share * (len(requests) - 1))].arrived_ms
        for share in (LEAST_WARM_UP, MOST_WARM_UP)
    )
    begin = min(max(least, first + 2 * took), most)
    return _whole(requests) if end - begin < STEADY * took else (begin, end)


def _whole(requests: Sequence[ServedRequest]) -> tuple[float, float]:
    if not requests:
        return 0.0, 0.0
    return requests[0].arrived_ms, max(one.ended_ms for one in requests)


def _tokens_within(request: ServedRequest, begin: float, end: float) -> float:
    """Its tokens come evenly from the first to the last."""
    span = request.ended_ms - request.first_ms
    if span <= 0:
        return float(request.tokens) if begin <= request.first_ms <= end else 0.0
    shared = min(request.ended_ms, end) - max(request.first_ms, begin)
    return request.tokens * max(0.0, shared) / span


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over several seeds."""

    median: float
    low: float
    high: float


def spreads(metrics: Sequence[ReplayMetrics]) -> Iterator[tuple[str, Spread]]:
    """Every figure that there is, by its name."""
    for name in ReplayMetrics.__dataclass_fields__:
        values = [value for one in metrics if (value := getattr(one, name)) is not None]
        if values:
            yield name, Spread(median=median(values), low=min(values), high=max(values))
