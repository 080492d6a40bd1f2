"""Metrics of one replay, computed from its requests. Times are milliseconds of simulated time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from penstock.graph.slo import Slo
from penstock.simulate.window import (
    Conversations,
    RateWindow,
    ServedRequest,
    Steadiness,
    between,
    full_window,
    percentile,
    steadiness_of,
    steady_window,
)

MAX_REFUSED = 0.01  # of the requests, above which a p99 of the others says nothing


@dataclass(frozen=True, kw_only=True)
class ReplayMetrics:
    """The metrics of one replay; their names are keys of the JSON output."""

    requests: int
    unfinished: int
    refused_share: float  # of the requests: not finished, or longer than the engines accept
    ttft_p50_ms: float
    ttft_p90_ms: float
    ttft_p99_ms: float
    # None if no request has two output tokens, as `token_gap_p99_ms` and `user_rate`.
    itl_p50_ms: float | None
    itl_p90_ms: float | None
    itl_p99_ms: float | None
    token_gap_p99_ms: float | None  # between two consecutive tokens, over all tokens
    prefill_queue_p99_ms: float
    decode_queue_p99_ms: float | None  # None without a decode pool
    user_rate: float | None  # output tokens/s of the median request
    output_rate: float  # output tokens/s of the deployment
    gpu_rate: float  # output tokens/s per GPU
    request_rate: float  # requests/s
    goodput: float | None  # share of requests that met the SLO; None without an SLO
    prefix_hit_rate: float  # share of input tokens found in a prefix cache
    gpu_hours: float  # of the complete replay, from its start to the last token
    gpu_hours_per_million: float | None  # output tokens
    steadiness: Steadiness | None  # None if all count; of a stage, unless its queue grows


def served_requests(result: Mapping[str, Any]) -> list[ServedRequest]:
    """The completed requests of a replay's result, in order of arrival."""
    columns = result["requests"]
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    completed = [_served_request(row) for row in rows if row["last_token_ms"] is not None]
    return sorted(completed, key=lambda request: request.arrived_ms)


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


def steady_requests(result: Mapping[str, Any]) -> list[ServedRequest]:
    """The requests that `ReplayMetrics` counts: those that arrived in the steady state."""
    requests = served_requests(result)
    return between(requests, *steady_window(requests, Conversations.in_result(result)))


def replay_metrics(
    result: Mapping[str, Any],
    gpus: float,
    slo: Slo,
    too_long: int = 0,
    *,
    counts_all_requests: bool = False,
    rates: RateWindow | None = None,
) -> ReplayMetrics:
    """The metrics of one replay.

    ``gpus``: the average number of GPUs in use. ``too_long``: requests that were not replayed
    because the engines refuse them; they miss the SLO. ``counts_all_requests``: counts warm-up and
    end too. ``rates``: where throughput is measured, if not where the other metrics are.
    """
    requests = served_requests(result)
    conversations = Conversations.in_result(result)
    if counts_all_requests:
        begin, end = full_window(requests)
    else:
        begin, end = steady_window(requests, conversations)
    measured = between(requests, begin, end)
    ttft = [r.ttft_ms for r in measured]
    itl = [r.itl_ms for r in measured if r.itl_ms is not None]
    queued = [r.decode_queue_ms for r in measured if r.decode_queue_ms is not None]
    rates = rates or RateWindow(begin=begin, end=end, requests=requests)
    rate = rates.output_rate
    input_tokens = sum(r.input_tokens for r in measured)
    summary = result["summary"]
    goodput = sum(r.meets(slo) for r in measured) / max(1, len(measured))
    unfinished = summary["num_requests"] - summary["completed_requests"]
    failed = (too_long + unfinished) / max(1, len(requests) + too_long + unfinished)
    return ReplayMetrics(
        requests=len(measured),
        unfinished=unfinished,
        refused_share=failed,
        ttft_p50_ms=percentile(ttft, 0.5),
        ttft_p90_ms=percentile(ttft, 0.9),
        ttft_p99_ms=percentile(ttft, 0.99),
        itl_p50_ms=percentile(itl, 0.5) if itl else None,
        itl_p90_ms=percentile(itl, 0.9) if itl else None,
        itl_p99_ms=percentile(itl, 0.99) if itl else None,
        token_gap_p99_ms=summary["p99_itl_ms"] if itl else None,
        prefill_queue_p99_ms=percentile([r.prefill_queue_ms for r in measured], 0.99),
        decode_queue_p99_ms=percentile(queued, 0.99) if queued else None,
        user_rate=1000 / max(percentile(itl, 0.5), 1e-6) if itl else None,
        output_rate=rate,
        gpu_rate=rate / gpus,
        request_rate=rates.request_rate,
        goodput=goodput * (1 - failed) if slo and measured else None,
        prefix_hit_rate=sum(r.cached_tokens for r in measured) / input_tokens
        if input_tokens
        else 0.0,
        gpu_hours=gpus * summary["duration_ms"] / 3.6e6,
        gpu_hours_per_million=gpus * 1e6 / rate / 3600 if rate else None,
        steadiness=None if counts_all_requests else steadiness_of(requests, conversations),
    )


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A metric over several seeds."""

    median: float
    """Median over the seeds."""
    low: float
    """Lowest value of a seed."""
    high: float
    """Highest value of a seed."""


def spreads(metrics: Sequence[ReplayMetrics]) -> Iterator[tuple[str, Spread]]:
    """(name, spread) of every metric that is not None; without p99 if too many requests are
    missing in it."""
    has_p99 = all(seed.refused_share <= MAX_REFUSED for seed in metrics)
    for name in ReplayMetrics.__dataclass_fields__:
        values = [
            value for seed in metrics if isinstance(value := getattr(seed, name), int | float)
        ]
        if values and (has_p99 or "_p99_" not in name):
            yield name, Spread(median=median(values), low=min(values), high=max(values))
