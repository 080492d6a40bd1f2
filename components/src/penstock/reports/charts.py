"""Charts that several reports have: distributions of latencies, and values over time.

Samples are reduced to what a chart shows: quantiles, and values in equal bins of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, log10

from penstock.reports.model import (
    TALL,
    TIME,
    Axis,
    Band,
    Chart,
    Limit,
    Mark,
    Series,
    height_of,
)
from penstock.reports.plotly import MOST_NAMES
from penstock.text.numbers import limit_text, significant

SPREAD = 10.0  # largest value ÷ median, from which on an axis is logarithmic
MARKED = (0.5, 0.9, 0.99)
LATENCIES = {"TTFT": "TTFT", "ITL": "ITL (mean of a request)", "end to end": "end-to-end latency"}
POINTS = 400  # of a line
BINS = 60


def slo_limit(latency: str, limit_ms: float | None, *, is_vertical: bool = False) -> list[Limit]:
    """Empty without a limit."""
    if limit_ms is None:
        return []
    name = f"SLO: {latency} ≤ {limit_text(limit_ms)} ms"
    return [Limit(name=name, at=limit_ms, is_vertical=is_vertical)]


def user_rate_limit(itl_ms: float | None) -> list[Limit]:
    """The SLO of the ITL as output tokens/s of one user. Empty without a limit."""
    if itl_ms is None:
        return []
    rate = significant(1000 / itl_ms, 4)
    name = f"SLO: {rate} tokens/s/user (ITL {limit_text(itl_ms)} ms)"
    return [Limit(name=name, at=1000 / itl_ms, is_vertical=True)]


def distributions(
    samples: Mapping[str, Mapping[str, Sequence[float]]], limits: Mapping[str, float | None]
) -> Iterator[Chart]:
    """``samples``: a latency of `LATENCIES` → what the values are of → values in ms."""
    for latency, values in samples.items():
        chart = distribution(latency, values, limits.get(latency))
        if chart is not None:
            yield chart


def distribution(
    latency: str, samples: Mapping[str, Sequence[float]], limit_ms: float | None
) -> Chart | None:
    """Cumulative distribution of a latency in ms, with its percentiles and the SLO marked.

    ``samples``: by what they are of. With many of them, only the percentiles are shown. None
    without any.
    """
    ordered = {name: sorted(values) for name, values in samples.items() if values}
    if not ordered:
        return None
    title = f"Distribution of {LATENCIES[latency]}"
    limits = slo_limit(latency, limit_ms, is_vertical=True)
    x = Axis(latency, "ms", is_logarithmic=_needs_logarithm(ordered.values(), limit_ms))
    if len(ordered) > MOST_NAMES:
        y = Axis("", names=list(ordered))
        series = list(_percentiles(ordered))
        height = height_of(len(ordered))
        return Chart(title=title, x=x, y=y, series=series, limits=limits, height=height)
    y = Axis("share of requests", "%", limits=(0, 102), ticks=(0, 25, 50, 75, 90, 99))
    curves = [
        curve
        for number, (name, values) in enumerate(ordered.items())
        for curve in _cumulative(latency, name, values, number)
    ]
    return Chart(title=title, x=x, y=y, series=curves, limits=limits)


def _cumulative(
    latency: str, name: str, values: Sequence[float], number: int
) -> tuple[Series, Series]:
    x, shares = quantiles(values)
    curve = Series(
        name=name,
        x=x,
        y=[100 * share for share in shares],
        mark=Mark.STEPS,
        style=number,
        hover=f"%{{y:.4~g}} % of requests: {latency} ≤ %{{x:,.4~g}} ms",
    )
    percentiles = Series(
        name=name,
        x=[nearest_rank(values, share) for share in MARKED],
        y=[100 * share for share in MARKED],
        mark=Mark.POINTS,
        style=number,
        size=8,
        hover=f"{latency} p%{{y}}: %{{x:,.4~g}} ms",
        is_in_legend=False,
    )
    return curve, percentiles


def _percentiles(ordered: Mapping[str, Sequence[float]]) -> Iterator[Series]:
    """A row for each name."""
    for share in MARKED:
        yield Series(
            name=f"p{limit_text(share * 100)}",
            x=[nearest_rank(values, share) for values in ordered.values()],
            y=list(range(len(ordered))),
            mark=Mark.POINTS,
            size=9,
            texts=list(ordered),
        )


def _needs_logarithm(samples: Iterable[Sequence[float]], limit: float | None) -> bool:
    """Whether the values and the limit differ much. ``samples``: each sorted."""
    ordered = list(samples)
    highest = max([values[-1] for values in ordered] + ([] if limit is None else [limit]))
    middle = min(values[len(values) // 2] for values in ordered)
    return min(values[0] for values in ordered) > 0 and highest > SPREAD * middle


def over_time(
    title: str,
    unit: str,
    series: Sequence[Series],
    *,
    name: str = "",
    end_s: float | None = None,
    limits: Sequence[Limit] = (),
    bands: Sequence[Band] = (),
    bands_name: str = "",
) -> Chart:
    """``series``: with seconds as x. ``name`` and ``unit``: of y. ``end_s``: of all charts."""
    return Chart(
        title=title,
        x=Axis("time", "s", limits=None if end_s is None else (0, end_s)),
        y=Axis(name, unit),
        series=series,
        limits=limits,
        bands=bands,
        bands_name=bands_name,
        group=TIME,
    )


def percentile_curves(
    times: Sequence[float],
    values: Sequence[float],
    shares: Sequence[float],
    width: float,
    bins: int,
) -> list[Series]:
    """Percentiles of the values in equal bins of time, with no point in an empty bin."""
    in_bins = [sorted(each) for each in binned(times, values, width, bins)]
    return [
        Series(
            name=f"p{limit_text(share * 100)}",
            x=[(number + 0.5) * width for number in range(bins)],
            y=[nearest_rank(ordered, share) if ordered else None for ordered in in_bins],
            mark=Mark.DOTTED_LINE,
            size=4,
        )
        for share in shares
    ]


def throughput_chart(
    series: Sequence[Series], slo_itl_ms: float | None, *, is_per_gpu: bool = True, remark: str = ""
) -> Chart:
    """Output for each user and for each GPU, or of all users, as InferenceX shows them."""
    total = "per GPU" if is_per_gpu else "of all users"
    return Chart(
        title=f"Output tokens/s per user and {total}{remark}",
        x=Axis("median output", "tokens/s/user"),
        y=Axis("output", "tokens/s/GPU" if is_per_gpu else "tokens/s"),
        series=series,
        limits=user_rate_limit(slo_itl_ms),
        height=TALL,
    )


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


def bin_width(seconds: float) -> float:
    """1, 2 or 5 times a power of 10, at least 0.1 s, so that there are at most `BINS` bins."""
    least = max(seconds / BINS, 0.1)
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
