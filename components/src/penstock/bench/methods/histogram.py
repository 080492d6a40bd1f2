"""Percentiles of a Prometheus histogram, with the bucket that contains each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A percentile, known only to be in a bucket."""

    value: float | None
    """Linear in the bucket, as Prometheus' `histogram_quantile`; None in the last bucket, which
    has no upper bound."""
    low: float
    high: float
    """Bounds of the bucket; infinite for the last one."""


def quantile(buckets: Mapping[float, float], share: float) -> Estimate | None:
    """``buckets``: counts by upper bound, the lower buckets included. None without values."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if not total:
        return None
    rank, low, below = share * total, 0.0, 0.0
    for high in bounds:
        count = buckets[high]
        if count >= rank and count > below:
            inside = (rank - below) / (count - below)
            value = None if high == inf else low + inside * (high - low)
            return Estimate(value=value, low=low, high=high)
        low, below = high, count
    return None
