"""The measured window of a run, simulated or real, and whether it shows a steady state.

Two parts of a run are not counted: the warm-up, which is twice the time that a request takes, or
the time of a conversation; and the time after the last arrival, or after the start of the last
conversation, when the engines run empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log2, sqrt
from statistics import fmean, median
from typing import Any, Self

from penstock.graph.slo import Slo
from penstock.text.numbers import significant
from penstock.workload.request import Request

CONVERSATIONS_KEY = "conversations"  # in the result of a replay
DURATIONS = 5.0  # the window, in p99 request durations
SERVED = 0.95  # of the offered rate
ROUNDING = 1e-6  # requests
FILLED = 0.9  # of the duration of a conversation
MARGIN = 1.05  # of the lengthened traffic, whose slowest requests may take longer
GROWTH = 2.0  # of the traffic where requests do not complete as fast as they arrive
MAX_GROWTH = 8.0  # of the traffic in one step
OVERLOAD_GROWTH = 1.4  # of the request duration, in a replay twice as long
WARM_UP = 2.0  # request durations
MIN_WARM_UP, MAX_WARM_UP = 0.1, 0.5  # shares of the requests
SHORT = 0.1  # of the requests, which hardly wait
FEWEST_OF_THIRD = 15  # requests, below which medians of thirds differ randomly
RISE_MS = 20.0  # of the TTFT, below which a busy machine that measures may be the cause
GROWN = 1.5  # of the median TTFT from the first to the last third of the window
MIN_STEADY_DURATIONS = 2  # request durations, below which there is no steady state


@dataclass(frozen=True, kw_only=True)
class Conversations:
    first_ms: float  # start of the first conversation
    last_ms: float  # start of the last one, after which their number falls
    turns: float  # mean number of requests of a conversation
    think_ms: float  # mean time from a response to the next turn
    starts: int

    @staticmethod
    def of(requests: Sequence[Request]) -> Conversations | None:
        """The conversations of requests; None without later turns, and if all conversations start
        at the same time."""
        starts = [request.at_ms for request in requests if request.at_ms is not None]
        thinks = [request.think_ms for request in requests if request.at_ms is None]
        if not starts or not thinks or min(starts) == max(starts):
            return None
        return Conversations(
            first_ms=min(starts),
            last_ms=max(starts),
            turns=len(requests) / len(starts),
            think_ms=fmean(thinks),
            starts=len(starts),
        )

    @classmethod
    def in_result(cls, result: Mapping[str, Any]) -> Self | None:
        fields = result.get(CONVERSATIONS_KEY)
        return cls(**fields) if fields else None

    def added_to(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**result, CONVERSATIONS_KEY: asdict(self)}

    @property
    def rate(self) -> float:
        """Requests/s once as many conversations end as start, if no response delays a turn."""
        return self.turns * (self.starts - 1) / (self.last_ms - self.first_ms) * 1000

    def takes_ms(self, request_ms: float) -> float:
        """The time of a conversation, whose requests take ``request_ms``."""
        return self.turns * request_ms + (self.turns - 1) * self.think_ms


@dataclass(frozen=True, kw_only=True)
class Steadiness:
    window_s: float
    """Length of the measured window in seconds."""
    request_s: float
    """p99 of the request duration in the window, in seconds."""
    offered_rate: float
    """Requests/s that arrive in the window."""
    served_rate: float
    """Requests/s that complete in the window."""
    warm_up_s: float = 0.0
    """Seconds before the window, which do not become more with longer traffic."""
    short_request_s: float = 0.0
    """Duration of a request without a queue, in seconds."""
    fill_s: float = 0.0
    """Seconds until the number of concurrent conversations becomes steady; 0 without
    conversations."""
    ttft_growth: float = 1.0
    """Median TTFT of the last third of the window divided by that of the first third; 1 if it does
    not rise from each third to the next, or by less than 20 ms."""

    @property
    def is_long_enough(self) -> bool:
        return self.window_s >= DURATIONS * self.request_s

    @property
    def is_served(self) -> bool:
        """Whether as many requests complete as arrive, except those that are still in flight at the
        end: the last arrival, and as many as their number varies by."""
        missing = (self.offered_rate - self.served_rate) * self.window_s
        in_flight = self.offered_rate * self.short_request_s  # Little's law, without a queue
        is_served = missing <= 1 + ceil(sqrt(in_flight)) + ROUNDING
        return self.has_rate and (is_served or self.served_rate >= SERVED * self.offered_rate)

    @property
    def has_rate(self) -> bool:
        return self.window_s > 0

    @property
    def is_filled(self) -> bool:
        """Whether the number of concurrent conversations no longer grows in the window."""
        return self.warm_up_s >= FILLED * self.fill_s

    @property
    def is_steady(self) -> bool:
        return self.is_long_enough and self.is_served and not self.is_growing

    @property
    def is_growing(self) -> bool:
        """Whether a queue grows that is too slow to show in the rate of completed requests."""
        return self.ttft_growth > GROWN

    @property
    def growth(self) -> float:
        """How many times as much traffic a steady replay may need, a power of 2, so that several
        seeds and numbers of seeds need the same; 1 if this one is steady."""
        if self.is_served and not self.is_growing:
            return self.window_growth
        return GROWTH

    @property
    def window_growth(self) -> float:
        """The `growth` for a window that is long enough."""
        if not self.has_rate:
            return MAX_GROWTH
        if self.is_long_enough:
            return 1.0
        needed_s = self.warm_up_s + DURATIONS * self.request_s * MARGIN
        missing = needed_s / (self.warm_up_s + self.window_s)
        return min(MAX_GROWTH, 2.0 ** max(1, ceil(log2(missing))))

    @property
    def full_growth(self) -> float:
        """The `growth` where requests are expected to complete as fast as they arrive: in a short
        window, those of the warm-up hide it."""
        return max(self.growth, self.window_growth)

    def is_overloaded(self, shorter: Steadiness) -> bool:
        """Whether requests took much longer than in a ``shorter`` replay, and still do not complete
        as fast as they arrive."""
        return self._shows_overload and self.request_s > OVERLOAD_GROWTH * shorter.request_s

    @property
    def _shows_overload(self) -> bool:
        """While batches fill, fewer requests complete than arrive, too: in a window that is shorter
        than a request, only a growing queue shows an overload."""
        return not self.is_served and (self.is_growing or self.window_s > self.request_s)

    @property
    def reason(self) -> str:
        """Why it is not steady; empty if it is."""
        if not self.has_rate:
            return "all measured requests arrive at once, so there is no arrival rate"
        if not self.is_served and not self.is_filled:
            what = f"a conversation lasts {significant(self.fill_s)} s, and the window begins after"
            return f"the traffic is too short: {what} {significant(self.warm_up_s)} s"
        if self._shows_overload:
            served, offered = significant(self.served_rate), significant(self.offered_rate)
            rates = f"{served} of {offered} requests/s complete"
            return f"only {rates}, so queues and latencies grow with the length of the run"
        if self.is_growing:
            rise = significant(self.ttft_growth, 2)
            return (
                f"the median TTFT of the last third of the window is {rise} times that of the first"
            )
        if not self.is_long_enough:
            times = self.window_s / self.request_s
            window = f"the measured window ({significant(self.window_s)} s) is "
            window += f"{significant(times, 2)} times the p99 request duration"
            return f"{window} ({significant(self.request_s)} s); {DURATIONS:g} are needed"
        return ""


def least_steady(seeds: Sequence[Steadiness]) -> Steadiness:
    """The steadiness of the seed that needs the most additional traffic."""
    return max(seeds, key=lambda seed: seed.growth)


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
        fill_s=conversations.takes_ms(median_duration(requests)) / 1000 if conversations else 0.0,
        ttft_growth=_ttft_growth(arrived),
    )


def _ttft_growth(requests: Sequence[ServedRequest]) -> float:
    """``requests``: in order of arrival."""
    count = len(requests) // 3
    if count < FEWEST_OF_THIRD:
        return 1.0
    thirds = (requests[:count], requests[count : 2 * count], requests[2 * count :])
    first, middle, last = (median(request.ttft_ms for request in third) for third in thirds)
    is_rising = 0 < first < middle < last and last - first >= RISE_MS
    return last / first if is_rising else 1.0


def steady_window(
    requests: Sequence[ServedRequest], conversations: Conversations | None
) -> tuple[float, float]:
    """The time from the end of the warm-up to the last arrival, in ms; the full window if there is
    no steady state, because all requests arrive within a few request durations."""
    begin, end = _after_warm_up(requests, conversations)
    is_steady = end - begin >= MIN_STEADY_DURATIONS * median_duration(requests)
    return (begin, end) if is_steady else full_window(requests)


def _after_warm_up(
    requests: Sequence[ServedRequest], conversations: Conversations | None
) -> tuple[float, float]:
    """The time from the end of the warm-up to the last arrival, or the last start of a
    conversation, in ms."""
    if not requests:
        return 0.0, 0.0
    first, end = requests[0].arrived_ms, requests[-1].arrived_ms
    took = median_duration(requests)
    warm_up = WARM_UP * took
    if conversations:
        end = min(end, conversations.last_ms)
        warm_up = conversations.takes_ms(took)
        requests = [request for request in requests if request.arrived_ms <= end]
    earliest, latest = (
        requests[int(share * (len(requests) - 1))].arrived_ms
        for share in (MIN_WARM_UP, MAX_WARM_UP)
    )
    return min(max(earliest, first + warm_up), latest), end


def median_duration(requests: Sequence[ServedRequest]) -> float:
    """In ms; 0 without requests."""
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


@dataclass(frozen=True, kw_only=True)
class RateWindow:
    """A part of a run in which rates are measured."""

    begin: float  # ms, as `end`
    end: float
    requests: Sequence[ServedRequest]  # of the complete run

    @property
    def _seconds(self) -> float:
        return max(self.end - self.begin, 1e-6) / 1000

    @property
    def request_rate(self) -> float:
        """Requests/s that arrive."""
        arrived = sum(self.begin <= r.arrived_ms <= self.end for r in self.requests)
        return arrived / self._seconds

    @property
    def output_rate(self) -> float:
        """Output tokens/s."""
        tokens = sum(tokens_between(r, self.begin, self.end) for r in self.requests)
        return tokens / self._seconds
