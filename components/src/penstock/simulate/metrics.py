"""Metrics of one replay, computed from its requests. Times are milliseconds of simulated time.

Two parts of a replay are not counted: the warm-up, which is twice the time that a request takes, or
the time of a conversation; and the time after the last arrival, or after the start of the last
conversation, when the engines run empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any

from penstock.graph.slo import Slo
from penstock.simulate.conversations import Conversations
from penstock.simulate.steadiness import Steadiness

MIN_WARM_UP, MAX_WARM_UP = 0.1, 0.5  # shares of the requests
SHORT = 0.1  # of the requests, which hardly wait
MIN_STEADY_DURATIONS = 2  # request durations, below which there is no steady state
MAX_REFUSED = 0.01  # of the requests, above which a p99 of the others says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    arrived_ms: float
    ended_ms: float
    first_ms: float  # when the first token came
    tokens: int  # of output
    ttft_ms: float
    itl_ms: float | None  # mean time between its tokens; None with a single token
    prefill_queue_ms: float
    decode_queue_ms: float | None  # None without a decode pool
    input_tokens: int
    cached_tokens: int  # of the input, found in a prefix cache

    def meets(self, slo: Slo) -> bool:
        pairs = (
            (self.ttft_ms, slo.ttft_ms),
            (self.itl_ms, slo.itl_ms),
            (self.ended_ms - self.arrived_ms, slo.e2e_ms),
        )
        return all(took is None or limit is None or took <= limit for took, limit in pairs)


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
    steadiness: Steadiness | None  # None if all requests count


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0


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
    return _between(requests, *_steady_window(requests, Conversations.in_result(result)))


def _between(requests: list[ServedRequest], begin: float, end: float) -> list[ServedRequest]:
    return [r for r in requests if begin <= r.arrived_ms <= end] or requests


def replay_metrics(
    result: Mapping[str, Any],
    gpus: float,
    slo: Slo,
    too_long: int = 0,
    *,
    counts_all_requests: bool = False,
) -> ReplayMetrics:
    """The metrics of one replay.

    ``gpus``: the average number of GPUs in use. ``too_long``: requests that were not replayed
    because the engines refuse them; they miss the SLO. ``counts_all_requests``: counts warm-up and
    end too.
    """
    requests = served_requests(result)
    conversations = Conversations.in_result(result)
    if counts_all_requests:
        begin, end = _full_window(requests)
    else:
        begin, end = _steady_window(requests, conversations)
    some = _between(requests, begin, end)
    ttft = [r.ttft_ms for r in some]
    itl = [r.itl_ms for r in some if r.itl_ms is not None]
    queued = [r.decode_queue_ms for r in some if r.decode_queue_ms is not None]
    seconds = max(end - begin, 1e-6) / 1000
    rate = sum(_tokens_between(r, begin, end) for r in requests) / seconds
    input_tokens = sum(r.input_tokens for r in some)
    summary = result["summary"]
    goodput = sum(r.meets(slo) for r in some) / max(1, len(some))
    unfinished = summary["num_requests"] - summary["completed_requests"]
    failed = (too_long + unfinished) / max(1, len(requests) + too_long + unfinished)
    return ReplayMetrics(
        requests=len(some),
        unfinished=unfinished,
        refused_share=failed,
        ttft_p50_ms=percentile(ttft, 0.5),
        ttft_p90_ms=percentile(ttft, 0.9),
        ttft_p99_ms=percentile(ttft, 0.99),
        itl_p50_ms=percentile(itl, 0.5) if itl else None,
        itl_p90_ms=percentile(itl, 0.9) if itl else None,
        itl_p99_ms=percentile(itl, 0.99) if itl else None,
        token_gap_p99_ms=summary["p99_itl_ms"] if itl else None,
        prefill_queue_p99_ms=percentile([r.prefill_queue_ms for r in some], 0.99),
        decode_queue_p99_ms=percentile(queued, 0.99) if queued else None,
        user_rate=1000 / max(percentile(itl, 0.5), 1e-6) if itl else None,
        output_rate=rate,
        gpu_rate=rate / gpus,
        request_rate=len(some) / seconds,
        goodput=goodput * (1 - failed) if slo and some else None,
        prefix_hit_rate=sum(r.cached_tokens for r in some) / input_tokens if input_tokens else 0.0,
        gpu_hours=gpus * summary["duration_ms"] / 3.6e6,
        gpu_hours_per_million=gpus * 1e6 / rate / 3600 if rate else None,
        steadiness=None if counts_all_requests else _steadiness(requests, conversations),
    )


def _steadiness(requests: list[ServedRequest], conversations: Conversations | None) -> Steadiness:
    begin, end = _after_warm_up(requests, conversations)
    seconds = (end - begin) / 1000
    arrived = _between(requests, begin, end)
    durations = [request.ended_ms - request.arrived_ms for request in arrived]
    completed = sum(begin <= request.ended_ms <= end for request in requests)
    offered = len(arrived) / seconds if seconds else 0.0
    return Steadiness(
        window_s=seconds,
        request_s=percentile(durations, 0.99) / 1000,
        offered_rate=conversations.rate if conversations else offered,
        served_rate=completed / seconds if seconds else 0.0,
        short_request_s=percentile([r.ended_ms - r.arrived_ms for r in requests], SHORT) / 1000,
        warm_up_s=(begin - requests[0].arrived_ms) / 1000 if requests else 0.0,
        fill_s=conversations.takes_ms(_median_duration(requests)) / 1000 if conversations else 0.0,
    )


def _steady_window(
    requests: Sequence[ServedRequest], conversations: Conversations | None
) -> tuple[float, float]:
    """From the end of the warm-up to the last arrival, in ms; the full window if there is no steady
    state, because all requests arrive within a few request durations."""
    begin, end = _after_warm_up(requests, conversations)
    is_steady = end - begin >= MIN_STEADY_DURATIONS * _median_duration(requests)
    return (begin, end) if is_steady else _full_window(requests)


def _after_warm_up(
    requests: Sequence[ServedRequest], conversations: Conversations | None
) -> tuple[float, float]:
    """From the end of the warm-up to the last arrival, or the last start of a conversation, in
    ms."""
    if not requests:
        return 0.0, 0.0
    first, end = requests[0].arrived_ms, requests[-1].arrived_ms
    took = _median_duration(requests)
    warm_up = 2 * took
    if conversations:
        end = min(end, conversations.last_ms)
        warm_up = conversations.takes_ms(took)
        requests = [request for request in requests if request.arrived_ms <= end]
    earliest, latest = (
        requests[int(share * (len(requests) - 1))].arrived_ms
        for share in (MIN_WARM_UP, MAX_WARM_UP)
    )
    return min(max(earliest, first + warm_up), latest), end


def _median_duration(requests: Sequence[ServedRequest]) -> float:
    return median(request.ended_ms - request.arrived_ms for request in requests) if requests else 0


def _full_window(requests: Sequence[ServedRequest]) -> tuple[float, float]:
    if not requests:
        return 0.0, 0.0
    return requests[0].arrived_ms, max(request.ended_ms for request in requests)


def _tokens_between(request: ServedRequest, begin: float, end: float) -> float:
    """Its output tokens in the window, which are evenly distributed from the first to the last."""
    span = request.ended_ms - request.first_ms
    if span <= 0:
        return float(request.tokens) if begin <= request.first_ms <= end else 0.0
    overlap = min(request.ended_ms, end) - max(request.first_ms, begin)
    return request.tokens * max(0.0, overlap) / span


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A metric over several seeds."""

    median: float
    low: float
    high: float


def spreads(metrics: Sequence[ReplayMetrics]) -> Iterator[tuple[str, Spread]]:
    """(name, spread) of every metric that is not None; without p99 if too many requests are
    missing in it."""
    has_p99 = all(one.refused_share <= MAX_REFUSED for one in metrics)
    for name in ReplayMetrics.__dataclass_fields__:
        values = [value for one in metrics if isinstance(value := getattr(one, name), int | float)]
        if values and (has_p99 or "_p99_" not in name):
            yield name, Spread(median=median(values), low=min(values), high=max(values))
