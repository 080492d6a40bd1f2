"""Reduces samples to what a chart shows: quantiles, and values in equal bins of time."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

POINTS = 400  # of a line
BINS = 60


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The percentile, as `simulate.window.percentile` computes it. ``ordered``: not empty."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def quantiles(ordered: Sequence[float], most: int = POINTS) -> tuple[list[float], list[float]]:
    """Values and the share of the samples that are not above them. ``ordered``: not empty."""
    count = len(ordered)
    if count <= most:
        return [ordered[0], *ordered], [0.0, *((n + 1) / count for n in range(count))]
    # Evenly, and every one of the highest: the tail is what an SLO is about.
    ranks = {ceil(n * count / (most - 20)) for n in range(1, most - 19)}
    ranks |= set(range(count - 19, count + 1))
    return [ordered[0], *(ordered[rank - 1] for rank in sorted(ranks))], [
        0.0,
        *(rank / count for rank in sorted(ranks)),
    ]


def bin_width(seconds: float, bins: int = BINS) -> float:
    """1, 2 or 5 times a power of 10, at least 0.1 s, so that there are at most ``bins`` bins."""
    least = max(seconds / bins, 0.1)
    power = 10.0 ** floor(log10(least) + 1e-9)
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999999)


def binned(
    times: Sequence[float], values: Sequence[float], width: float, bins: int
) -> list[list[float]]:
    """The values of each bin. ``times``: in seconds from 0; later ones are in the last bin."""
    in_bins: list[list[float]] = [[] for _ in range(bins)]
    for time, value in zip(times, values, strict=True):
        in_bins[min(max(int(time / width), 0), bins - 1)].append(value)
    return in_bins
