"""Charts of a run of `penstock bench` over its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from penstock.bench.records import Records
from penstock.bench.report import Bench
from penstock.bench.request_log import RequestLog
from penstock.reports.charts import (
    Chart,
    Trace,
    curve,
    horizontal_limit,
    over_time,
    stacked,
    steps,
)
from penstock.reports.samples import at_once, bin_width, binned
from penstock.simulate.window import ServedRequest, percentile, tokens_between
from penstock.text.numbers import limit_text

SHARES = (0.5, 0.9)


def time_charts(bench: Bench) -> list[Chart]:
    """Empty without requests."""
    log = bench.log
    if log is None or not (log.records.served or log.records.failed):
        return []
    return list(_charts(bench, log))


def _charts(bench: Bench, log: RequestLog) -> Iterator[Chart]:
    records = log.records
    served = list(records.served.values())
    sent_s = sorted(one.sent_ms / 1000 for one in records.failed)
    sent_s = sorted([*sent_s, *(one.arrived_ms / 1000 for one in served)])
    end_s = max([*sent_s, *(one.ended_ms / 1000 for one in served)])
    width = bin_width(end_s)
    bins = max(1, ceil(end_s / width))
    x = [number * width for number in range(bins)]
    window = _window(log)
    ended_s = [one.ended_ms / 1000 for one in served]
    rates = [
        steps(name, x, [len(one) / width for one in binned(at, at, width, bins)], n, "requests/s")
        for n, (name, at) in enumerate({"sent": sent_s, "completed": ended_s}.items())
    ]
    yield over_time("Requests", "requests/s", rates, **window)
    tokens = [_tokens(served, begin * 1000, width) for begin in x]
    output = steps("output tokens", x, tokens, 2, "tokens/s")
    yield over_time("Output tokens", "tokens/s", [output], **window)
    yield from _latencies(bench, served, x, width, window)
    if served:
        times, counts = at_once([one.arrived_ms / 1000 for one in served], ended_s)
        flight = steps("in flight", times, counts, 3, "requests")
        yield over_time("Requests in flight (served ones)", "requests", [flight], **window)
    if records.failed:
        yield _failures(records, x, width, window)


def _tokens(served: Sequence[ServedRequest], begin_ms: float, width_s: float) -> float:
    """Output tokens/s from ``begin_ms`` on, for ``width_s``."""
    end_ms = begin_ms + width_s * 1000
    return (
        sum(
            tokens_between(one, begin_ms, end_ms)
            for one in served
            if one.first_ms <= end_ms and one.ended_ms >= begin_ms
        )
        / width_s
    )


def _window(log: RequestLog) -> dict[str, Any]:
    """A shape that shades the measured window."""
    begin, end = (ms / 1000 for ms in log.window)
    if end <= begin:
        return {}
    shape = {"type": "rect", "yref": "paper", "x0": begin, "x1": end, "y0": 0, "y1": 1}
    return {
        "shapes": [
            {**shape, "fillcolor": "#0072b2", "opacity": 0.08, "line": {"width": 0}}
            | {"layer": "below"}
        ]
    }


def _latencies(
    bench: Bench,
    served: Sequence[ServedRequest],
    x: Sequence[float],
    width: float,
    window: Mapping[str, Any],
) -> Iterator[Chart]:
    """TTFT and ITL by the time at which a request was sent."""
    of_both: dict[str, tuple[list[float | None], float | None]] = {
        "TTFT": ([one.ttft_ms for one in served], bench.slo.ttft_ms),
        "ITL": ([one.itl_ms for one in served], bench.slo.itl_ms),
    }
    for name, (values, limit) in of_both.items():
        known = [
            (one.arrived_ms / 1000, value)
            for one, value in zip(served, values, strict=True)
            if value is not None
        ]
        if not known:
            continue
        some = binned([at for at, _ in known], [value for _, value in known], width, len(x))
        middles = [at + width / 2 for at in x]
        traces: list[Trace] = [
            _percentile_curve(share, number, middles, some) for number, share in enumerate(SHARES)
        ]
        if limit is not None:
            end = x[-1] + width
            traces.append(horizontal_limit(f"SLO: {name} ≤ {limit_text(limit)} ms", limit, 0, end))
        yield over_time(f"{name} by the time sent", f"{name} (ms)", traces, **window)


def _percentile_curve(
    share: float, number: int, x: Sequence[float], some: Sequence[Sequence[float]]
) -> Trace:
    y = [percentile(values, share) if values else None for values in some]
    trace = curve(f"p{limit_text(share * 100)}", x, y, number, "ms")
    return {**trace, "mode": "lines+markers", "marker": {"size": 4}}


def _failures(
    records: Records, x: Sequence[float], width: float, window: Mapping[str, Any]
) -> Chart:
    by_reason: dict[str, list[float]] = {}
    for one in records.failed:
        by_reason.setdefault(one.reason, []).append(one.sent_ms / 1000)
    middles = [at + width / 2 for at in x]
    traces = [
        stacked(reason, middles, [len(b) for b in binned(at, at, width, len(x))], n, "requests")
        for n, (reason, at) in enumerate(by_reason.items())
    ]
    title = f"Failed requests by the time sent (per {limit_text(width)} s)"
    return over_time(title, "requests", traces, barmode="stack", **window)
