"""Decides whether the figures of a replay describe a steady state.

The measured window must be several times as long as the slowest requests take, and as many requests
must complete in it as arrive, so that the number in the system stays constant. A shorter replay
hides growing queues, and the latencies of an overloaded deployment depend on the length of the
replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2, sqrt

from penstock.text.numbers import significant

DURATIONS = 5.0  # the window, in p99 request durations
SERVED = 0.95  # of the offered rate
ROUNDING = 1e-6  # requests
FILLED = 0.9  # of the duration of a conversation
MARGIN = 1.05  # of the lengthened traffic, whose slowest requests may take longer
GROWTH = 2.0  # of the traffic where requests do not complete as fast as they arrive
MAX_GROWTH = 8.0  # of the traffic in one step
OVERLOAD_GROWTH = 1.4  # of the request duration, in a replay twice as long


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
    # Until the number of concurrent conversations becomes steady; 0 without conversations.
    fill_s: float = 0.0
    """Seconds until the number of concurrent conversations becomes steady; 0 without
    conversations."""

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
        return self.is_long_enough and self.is_served

    @property
    def growth(self) -> float:
        """How many times as much traffic a steady replay may need, a power of 2, so that several
        seeds and numbers of seeds need the same; 1 if this one is steady."""
        return self.window_growth if self.is_served else GROWTH

    @property
    def window_growth(self) -> float:
        """As `growth`, for a window that is long enough."""
        if not self.has_rate:
            return MAX_GROWTH
        if self.is_long_enough:
            return 1.0
        needed_s = self.warm_up_s + DURATIONS * self.request_s * MARGIN
        missing = needed_s / (self.warm_up_s + self.window_s)
        return min(MAX_GROWTH, 2.0 ** max(1, ceil(log2(missing))))

    @property
    def full_growth(self) -> float:
        """As `growth`, where requests are expected to complete as fast as they arrive: in a short
        window, those of the warm-up hide it."""
        return max(self.growth, self.window_growth)

    def is_overloaded(self, shorter: Steadiness) -> bool:
        """Whether requests took much longer than in a ``shorter`` replay, and still do not complete
        as fast as they arrive."""
        return not self.is_served and self.request_s > OVERLOAD_GROWTH * shorter.request_s

    @property
    def reason(self) -> str:
        """Why it is not steady; empty if it is."""
        if not self.has_rate:
            return "all measured requests arrive at once, so there is no arrival rate"
        if not self.is_served and not self.is_filled:
            what = f"a conversation lasts {significant(self.fill_s)} s, and the window begins after"
            return f"the traffic is too short: {what} {significant(self.warm_up_s)} s"
        if not self.is_served:
            served, offered = significant(self.served_rate), significant(self.offered_rate)
            rates = f"{served} of {offered} requests/s complete"
            return f"only {rates}, so queues and latencies grow with the length of the run"
        if not self.is_long_enough:
            times = self.window_s / self.request_s
            window = f"the measured window ({significant(self.window_s)} s) is "
            window += f"{significant(times, 2)} times the p99 request duration"
            return f"{window} ({significant(self.request_s)} s); {DURATIONS:g} are needed"
        return ""


def least_steady(some: Sequence[Steadiness]) -> Steadiness:
    """That of the seed which needs the most additional traffic."""
    return max(some, key=lambda one: one.growth)
