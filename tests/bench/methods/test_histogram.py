"""Percentiles of Prometheus histograms."""

from __future__ import annotations

from math import inf

import pytest

from penstock.bench.methods.frontend_counters import Estimate, quantile

BUCKETS = {0.0: 0.0, 0.1: 10.0, 0.2: 10.0, 0.4: 90.0, inf: 100.0}


@pytest.mark.parametrize(
    ("share", "value", "bucket"),
    [
        (0.05, 0.05, (0.0, 0.1)),
        (0.1, 0.1, (0.0, 0.1)),
        (0.5, 0.3, (0.2, 0.4)),  # half of the 80 requests in the bucket are lower
        (0.9, 0.4, (0.2, 0.4)),
        (0.99, None, (0.4, inf)),
    ],
)
def test_a_percentile_is_interpolated_in_its_bucket(
    share: float, value: float | None, bucket: tuple[float, float]
) -> None:
    estimate = quantile(BUCKETS, share)
    assert estimate is not None
    assert (estimate.low, estimate.high) == bucket
    assert estimate.value == (None if value is None else pytest.approx(value))


def test_there_is_no_percentile_without_values() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({0.1: 0.0, inf: 0.0}, 0.5) is None


def test_all_values_in_one_bucket() -> None:
    assert quantile({1.0: 0.0, 2.0: 4.0, inf: 4.0}, 0.5) == Estimate(value=1.5, low=1.0, high=2.0)
