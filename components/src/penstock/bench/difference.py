"""Differences of latency between two targets, with confidence intervals. Pure arithmetic.

The interval of a change is computed from pairs of slices, not from single requests, because the
requests of one slice wait for each other. Its standard error is that of the jackknife that leaves
out one pair at a time. For a percentile, this is valid if a pair has more requests than the square
root of all (Shao and Wu, Annals of Statistics 17, 1989), which means more than there are pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log, sqrt
from statistics import NormalDist, fmean

from penstock.simulate.window import ServedRequest, percentile

LEVEL = 0.01  # probability of a wrong claim in one run
INTERVAL = f"{1 - LEVEL:.0%} interval"
MIN_PAIRS = 5
SMALLEST_MS = 1e-3
WIDEST = 10.0  # change up to which the end of an interval is always shown: +1000%

Both = tuple[ServedRequest, ServedRequest]
"""One request, as the first and as the second target served it."""

LATENCIES: Mapping[str, Callable[[ServedRequest], float | None]] = {
    "ttft": lambda request: request.ttft_ms,
    "itl": lambda request: request.itl_ms,
    "e2e": lambda request: request.e2e_ms,
}
STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: exp(
        fmean(log(max(value, SMALLEST_MS)) for value in values)
    ),  # geometric
    "p50": lambda values: percentile(values, 0.5),
    "p90": lambda values: percentile(values, 0.9),
}
CLAIMED = "mean"  # the statistic with the smallest error, on which a verdict is based
METRICS = tuple(f"{latency}_{statistic}" for latency in LATENCIES for statistic in STATISTICS)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of one metric, in milliseconds. Changes are shares: 0.05 if the second is 5% higher."""

    metric: str
    """Latency and statistic, such as `ttft_p90`; `mean` is the geometric mean."""
    first_ms: float
    """Value of target A in ms."""
    second_ms: float
    """Value of target B in ms."""
    change: float
    """Change from A to B as a share: 0.05 if B is 5% higher."""
    low: float | None
    """Lower end of the confidence interval of the change; null for a percentile if the slices have
    too few requests."""
    high: float | None
    """Upper end of the confidence interval of the change; null if `low` is."""
    claim: int
    """1 if B is slower, -1 if B is faster, 0 if neither can be claimed; always 0 for percentiles,
    of which no claim is made."""


def differences(pairs: Sequence[Sequence[Both]], level: float = LEVEL) -> list[Difference]:
    """Of all metrics that the requests have. ``pairs``: at least `MIN_PAIRS`, none empty.

    Each interval alone has the confidence 1 - ``level``. A wrong claim about any latency has at
    most the probability ``level``.
    """
    changes = []
    for latency, of in LATENCIES.items():
        values = [
            [
                (a, b)
                for each, other in pair
                if (a := of(each)) is not None and (b := of(other)) is not None
            ]
            for pair in pairs
        ]
        values = [pair for pair in values if pair]
        if len(values) < MIN_PAIRS:
            continue
        for name, statistic in STATISTICS.items():
            metric, is_claimed = f"{latency}_{name}", name == CLAIMED
            changes.append(_difference(metric, values, statistic, level, is_claimed))
    return changes


def _difference(
    metric: str,
    pairs: Sequence[Sequence[tuple[float, float]]],
    statistic: Callable[[Sequence[float]], float],
    level: float,
    is_claimed: bool,
) -> Difference:
    def log_ratio(pairs_of_slices: Sequence[Sequence[tuple[float, float]]]) -> float:
        first, second = (
            statistic([both[i] for pair in pairs_of_slices for both in pair]) for i in (0, 1)
        )
        return log(max(second, SMALLEST_MS) / max(first, SMALLEST_MS))

    count = len(pairs)
    change = log_ratio(pairs)
    without = [log_ratio([*pairs[:i], *pairs[i + 1 :]]) for i in range(count)]
    mean = fmean(without)
    error = sqrt((count - 1) / count * fsum((each - mean) ** 2 for each in without))
    half = student(1 - level / 2, count - 1) * error
    sure = student(1 - level / len(LATENCIES) / 2, count - 1) * error
    first, second = (statistic([both[i] for pair in pairs for both in pair]) for i in (0, 1))
    has_interval = is_claimed or sum(map(len, pairs)) > count**2
    return Difference(
        metric=metric,
        first_ms=first,
        second_ms=second,
        change=exp(change) - 1,
        low=exp(change - half) - 1 if has_interval else None,
        high=exp(change + half) - 1 if has_interval else None,
        claim=(1 if change > 0 else -1) if is_claimed and abs(change) > sure else 0,
    )


def interval(difference: Difference) -> str:
    """`+3.9% to +6.3%`."""
    if difference.low is None or difference.high is None:
        return "too few requests"
    most = highest_shown(difference)
    high = f"{difference.high:+.1%}" if difference.high <= most else f"more than {most:+.0%}"
    return f"{difference.low:+.1%} to {high}"


def highest_shown(difference: Difference) -> float:
    """The highest end of an interval that is shown: values near 0 have endless intervals."""
    return max(WIDEST, 2 * difference.change)


def student(share: float, freedom: int) -> float:
    """Quantile of Student's t; off by less than 1% from 4 degrees of freedom on.

    Expansion 26.7.5 of Abramowitz and Stegun, Handbook of Mathematical Functions.
    """
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + fsum(term / freedom**power for power, term in enumerate(terms, start=1))
