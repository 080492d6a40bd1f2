"""Exact tests of rates. Pure arithmetic."""

from __future__ import annotations

from math import comb


def fisher(high: int, of_high: int, low: int, of_low: int) -> float:
    """One-sided p-value of Fisher's exact test that the rate ``high`` / ``of_high`` is above
    ``low`` / ``of_low``; 1 without observations."""
    hits, total = high + low, of_high + of_low
    if not of_high or not of_low:
        return 1.0
    # Each term from the one before: `comb` for each is slow with many requests.
    ways = term = comb(of_high, high) * comb(of_low, low)
    for count in range(high, min(hits, of_high)):
        term = term * (of_high - count) * (hits - count)
        term //= (count + 1) * (of_low - hits + count + 1)
        ways += term
    return ways / comb(total, hits)


def sign_test(longer: int, shorter: int) -> float:
    """Two-sided p-value of the sign test; 1 without differences."""
    count = longer + shorter
    tail = term = comb(count, min(longer, shorter))
    for k in range(min(longer, shorter), 0, -1):
        term = term * k // (count - k + 1)
        tail += term
    return min(1.0, 2 * tail / (1 << count))


def smallest_hits(of_high: int, of_low: int, low: int, level: float) -> int | None:
    """Smallest number of hits of ``of_high`` that is significant; None if none is.

    ``low``: hits of ``of_low``. The p-value falls with the number of hits.
    """
    begin, end = 0, of_high + 1
    while begin < end:
        middle = (begin + end) // 2
        if fisher(middle, of_high, low, of_low) <= level:
            end = middle
        else:
            begin = middle + 1
    return begin if begin <= of_high else None
