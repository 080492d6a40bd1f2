"""Counts and latencies of a release, from the metrics of its frontends. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from penstock.metrics import Metrics
from penstock.serving.frontend_metrics import ITL, REQUESTS, STARTED, TTFT

CANCELLED = "cancelled"  # the client has left, which is no error of the release
NOT_FOUND = "not_found"  # the client named another model
COUNTERS = (STARTED, REQUESTS, TTFT, ITL)
Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The mean of a latency and its standard error, in seconds."""

    count: int
    mean_s: float
    error_s: float


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The requests of a release in an interval."""

    started: int
    completed: int
    """With errors, without requests whose client has left or named another model."""
    errors: int
    ended: int
    """All that have ended, for whatever reason."""
    answered: int
    """With at least one token."""
    ttft: Latency | None
    """None before the first token of any request."""
    itl: Latency | None


class Counter:
    """Sums the increases of all frontends of a release, also of those that start later or restart.

    ``lifetime``: since the frontends started, instead of since the first scrape.
    """

    def __init__(self, *, lifetime: bool = False) -> None:
        self._is_lifetime = lifetime
        self._last: dict[Hashable, dict[Series, float]] | None = None
        self._increase: dict[Series, float] = defaultdict(float)

    def add(self, scrapes: Mapping[Hashable, Metrics]) -> None:
        """The metrics of the frontends that respond, by their keys."""
        before = self._last
        self._last = dict(before or {})
        for key, metrics in scrapes.items():
            now = {
                (s.name, frozenset(s.labels.items())): s.value
                for s in metrics.samples
                if s.name.startswith(COUNTERS)  # a gauge also decreases without a restart
            }
            # A process that is seen for the first time may have served requests for long.
            last = (before or {}).get(key, {} if self._is_lifetime else now)
            if any(now.get(series, 0.0) < value for series, value in last.items()):
                last = {}  # it has restarted
            for series, value in now.items():
                self._increase[series] += value - last.get(series, 0.0)
            self._last[key] = now

    def restart(self) -> None:
        """Count from the last scrape on."""
        self._increase.clear()

    def counts(self) -> Counts:
        requests = {s: v for s, v in self._increase.items() if s[0] == REQUESTS}
        left = sum(_sum(requests, error_type=cause) for cause in (CANCELLED, NOT_FOUND))
        completed = _sum(requests) - left
        return Counts(
            ended=completed + left,
            answered=_sum({s: v for s, v in self._increase.items() if s[0] == f"{TTFT}_count"}),
            started=_sum({s: v for s, v in self._increase.items() if s[0] == STARTED}),
            completed=completed,
            errors=_sum(requests, status="error") - left,
            ttft=self._latency(TTFT, completed),
            itl=self._latency(ITL, completed),
        )

    def _latency(self, name: str, requests: int) -> Latency | None:
        """``requests``: the ITLs of one request depend on each other, so they count as one."""
        total, below = 0.0, defaultdict[float, float](float)
        for (series, labels), value in self._increase.items():
            if series == f"{name}_bucket":
                below[float(dict(labels)["le"])] += value
            elif series == f"{name}_sum":
                total += value
        bounds = sorted(below.items())
        if not bounds or bounds[-1][1] < 1:
            return None
        count = bounds[-1][1]
        deviation_s = _deviation(bounds)
        independent = max(1.0, min(count, requests))
        error_s = deviation_s / math.sqrt(independent)
        return Latency(count=round(independent), mean_s=total / count, error_s=error_s)


def _sum(series: Mapping[Series, float], **labels: str) -> int:
    return round(sum(v for (_, found), v in series.items() if labels.items() <= set(found)))


def _deviation(bounds: list[tuple[float, float]]) -> float:
    """The standard deviation of a histogram, evenly distributed within each bucket.

    ``bounds``: upper bounds in seconds and cumulative counts, in order.
    """
    low = under = first = second = 0.0
    for high, count in bounds:
        end = low if math.isinf(high) else high
        first += (count - under) * (low + end) / 2
        second += (count - under) * (low * low + low * end + end * end) / 3
        low, under = end, count
    mean = first / under
    return math.sqrt(max(0.0, second / under - mean * mean))
