"""Exact tests of rates. Pure arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import comb


def fisher(high: int, of_high: int, low: int, of_low: int) -> float:
    """One-sided p-value of Fisher's exact test that the rate ``high`` / ``of_high`` is above
    ``low`` / ``of_low``; 1 without observations."""
    hits, total = high + low, of_high + of_low
    if not of_high or not of_low:
        return 1.0
    ways = sum(
        comb(of_high, count) * comb(of_low, hits - count)
        for count in range(high, min(hits, of_high) + 1)
    )
    return float(Fraction(ways, comb(total, hits)))


def sign_test(longer: int, shorter: int) -> float:
    """Two-sided p-value of the sign test; 1 without differences."""
    count = longer + shorter
    tail = sum(comb(count, k) for k in range(max(longer, shorter), count + 1))
    return min(1.0, float(Fraction(2 * tail, 2**count)))


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
