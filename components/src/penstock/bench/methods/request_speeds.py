"""The throughput of single requests, from counters that are read often.

A frontend counts tokens and durations, but not the throughput of each request. If exactly one
request ended between two readings, the changes of the sums are its tokens and its duration. Of
several that ended together, only the sums are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from penstock.bench.methods.frontend_counters import Counters

LATE = 5  # readings, after which sums that do not match are given up


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Between which a percentile is, in output tokens/s."""

    low: float
    high: float


@dataclass(kw_only=True)
class RequestSpeeds:
    """Of one frontend process."""

    known: list[float] = field(default_factory=list)
    """Output tokens/s of requests that ended alone."""
    unknown: int = 0
    """Number of the other successful requests."""
    _open: Counters = field(default_factory=Counters)
    _waited: int = 0

    def add(self, change: Counters) -> None:
        """``change``: since the reading before."""
        self._open += change
        waiting = self._open
        if not waiting.durations and not waiting.lengths:
            return
        matches = waiting.durations == waiting.lengths == waiting.ok
        self._waited += 1
        has_failed = bool(waiting.errors or waiting.client_errors)
        if not matches and not has_failed and self._waited < LATE:
            return  # a request was ending at the time of the reading
        if matches and waiting.ok == 1 and waiting.duration_s > 0:
            self.known.append(waiting.tokens / waiting.duration_s)
        else:
            self.unknown += round(waiting.ok)
        self._open, self._waited = Counters(), 0


def fastest(known: Sequence[float], unknown: int, share: float) -> Bounds | None:
    """The throughput that a ``share`` of the requests reaches or exceeds. None without requests.

    The bounds hold whatever the throughput of the ``unknown`` requests is; infinite or 0 if these
    are too many.
    """
    total = len(known) + unknown
    if not total:
        return None
    rank = max(0, ceil(share * total) - 1)
    ordered = sorted(known, reverse=True)
    low = (ordered + [0.0] * unknown)[rank]
    high = ([inf] * unknown + ordered)[rank]
    return Bounds(low=low, high=high)
