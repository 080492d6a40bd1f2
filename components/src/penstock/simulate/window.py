"""The measured window of a run, simulated or real. Times are milliseconds.

Two parts of a run are not counted: the warm-up, which is twice the time that a request takes, or
the time of a conversation; and the time after the last arrival, or after the start of the last
conversation, when the engines run empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from penstock.graph.slo import Slo
from penstock.simulate.conversations import Conversations
from penstock.simulate.steadiness import Steadiness

MIN_WARM_UP, MAX_WARM_UP = 0.1, 0.5  # shares of the requests
SHORT = 0.1  # of the requests, which hardly wait
MIN_STEADY_DURATIONS = 2  # request durations, below which there is no steady state


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
    first_output_ms: float | None = None  # to the first token after reasoning; None without one

    @property
    def e2e_ms(self) -> float:
        return self.ended_ms - self.arrived_ms

    def meets(self, slo: Slo) -> bool:
        pairs = (
            (self.ttft_ms, slo.ttft_ms),
            (self.itl_ms, slo.itl_ms),
            (self.e2e_ms, slo.e2e_ms),
        )
        return all(took is None or limit is None or took <= limit for took, limit in pairs)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0


def between(requests: list[ServedRequest], begin: float, end: float) -> list[ServedRequest]:
    return [r for r in requests if begin <= r.arrived_ms <= end] or requests


def steadiness_of(requests: list[ServedRequest], conversations: Conversations | None) -> Steadiness:
    begin, end = _after_warm_up(requests, conversations)
    seconds = (end - begin) / 1000
    arrived = between(requests, begin, end)
    durations = [request.e2e_ms for request in arrived]
    completed = sum(begin <= request.ended_ms <= end for request in requests)
    offered = len(arrived) / seconds if seconds else 0.0
    return Steadiness(
        window_s=seconds,
        request_s=percentile(durations, 0.99) / 1000,
        offered_rate=conversations.rate if conversations else offered,
        served_rate=completed / seconds if seconds else 0.0,
        short_request_s=percentile([r.e2e_ms for r in requests], SHORT) / 1000,
        warm_up_s=(begin - requests[0].arrived_ms) / 1000 if requests else 0.0,
        fill_s=conversations.takes_ms(_median_duration(requests)) / 1000 if conversations else 0.0,
    )


def steady_window(
    requests: Sequence[ServedRequest], conversations: Conversations | None
) -> tuple[float, float]:
    """From the end of the warm-up to the last arrival, in ms; the full window if there is no steady
    state, because all requests arrive within a few request durations."""
    begin, end = _after_warm_up(requests, conversations)
    is_steady = end - begin >= MIN_STEADY_DURATIONS * _median_duration(requests)
    return (begin, end) if is_steady else full_window(requests)


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
    return median(request.e2e_ms for request in requests) if requests else 0


def full_window(requests: Sequence[ServedRequest]) -> tuple[float, float]:
    if not requests:
        return 0.0, 0.0
    return requests[0].arrived_ms, max(request.ended_ms for request in requests)


def tokens_between(request: ServedRequest, begin: float, end: float) -> float:
    """Its output tokens in the window, which are evenly distributed from the first to the last."""
    span = request.ended_ms - request.first_ms
    if span <= 0:
        return float(request.tokens) if begin <= request.first_ms <= end else 0.0
    overlap = min(request.ended_ms, end) - max(request.first_ms, begin)
    return request.tokens * max(0.0, overlap) / span
