"""OpenRouter's figures as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from penstock.bench.methods.definitions import DEFINITIONS, SPEED, THROUGHPUT, definition_lines
from penstock.bench.methods.documents import (
    SCHEMA_VERSION,
    OpenRouterDocument,
    OutcomeCounts,
    ThroughputBounds,
    TtftEstimate,
)
from penstock.bench.methods.frontend_counters import Counters
from penstock.bench.methods.histogram import Estimate, quantile
from penstock.bench.methods.openrouter import DURATION_S, POLL_S, Observation
from penstock.bench.methods.request_speeds import Bounds, fastest
from penstock.simulate.report import aligned
from penstock.text.numbers import limit_text
from penstock.text.terminal import duration_text

SHARES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99}
WINDOWS_S = {"5 min": 300.0, "30 min": 1800.0, "1 day": 86_400.0}
MS = 1000


def lines(found: Observation) -> Iterator[str]:
    took = duration_text(found.seconds)
    yield f"openrouter, {found.model} at {', '.join(found.urls)}: traffic of all clients in {took}"
    if found.interrupted:
        yield f"incomplete: {found.interrupted}"
    total = found.total
    yield (
        f"requests: {total.ok:.0f} successful, {total.errors:.0f} failed, "
        f"{total.client_errors:.0f} with an error of the client"
    )
    yield from aligned([("", *SHARES), *_rows(found)])
    yield "TTFT is interpolated in its bucket"
    yield "pN of throughput: N% of requests are at least this fast"
    yield from _means(total)
    yield from definition_lines()
    windows = _windows(found)
    yield from aligned([("", *windows), ("uptime", *map(_share, windows.values()))])
    yield "uptime: successful / (successful + failed) requests; of the last 5 min, 30 min and 1 day"
    yield from remarks(found)


def _rows(found: Observation) -> Iterator[tuple[str, ...]]:
    estimates = [quantile(found.total.ttft, share) for share in SHARES.values()]
    yield ("TTFT (ms)", *(_estimate(one) for one in estimates))
    yield ("  its bucket (ms)", *(_bucket(one) for one in estimates))
    bounds = [fastest(found.known, found.unknown, share) for share in SHARES.values()]
    yield (f"{THROUGHPUT} (tokens/s)", *(_bounds(one) for one in bounds))


def _estimate(one: Estimate | None) -> str:
    if one is None:
        return "-"
    return f"above {limit_text(one.low * MS)}" if one.value is None else f"{one.value * MS:.1f}"


def _bucket(one: Estimate | None) -> str:
    if one is None:
        return "-"
    return f"{limit_text(one.low * MS)} to {'∞' if one.high == inf else limit_text(one.high * MS)}"


def _bounds(one: Bounds | None) -> str:
    if one is None or (one.low == 0 and one.high == inf):
        return "-"
    if one.high == inf:
        return f"at least {one.low:.1f}"
    if one.low == 0:
        return f"at most {one.high:.1f}"
    low, high = f"{one.low:.1f}", f"{one.high:.1f}"
    return low if low == high else f"{low} to {high}"


def mean_throughput(total: Counters) -> float | None:
    """Output tokens/s of all requests, TTFT included."""
    return total.tokens / total.duration_s if total.duration_s else None


def mean_speed(total: Counters) -> float | None:
    """Output tokens/s of all requests after their first token."""
    return total.gaps / total.gap_s if total.gap_s else None


def _means(total: Counters) -> Iterator[str]:
    rates = {THROUGHPUT: mean_throughput(total), SPEED: mean_speed(total)}
    shown = (f"{name} {rate:.1f} tokens/s" for name, rate in rates.items() if rate is not None)
    if text := ", ".join(shown):
        yield f"mean, weighted by duration: {text}"


def _windows(found: Observation) -> dict[str, Counters | None]:
    """None: longer than the run."""
    windows: dict[str, Counters | None] = {
        name: found.last(seconds) for name, seconds in WINDOWS_S.items()
    }
    return windows | {"the run": found.total, "since the frontends started": found.since_start}


def _share(counters: Counters | None) -> str:
    if counters is None:
        return "not observed"
    return "-" if counters.uptime is None else f"{counters.uptime:.2%}"


def remarks(found: Observation) -> Iterator[str]:
    """What limits the figures."""
    count = len(found.known) + found.unknown
    if found.unknown:
        yield (
            f"the throughput of {found.unknown} of {count} requests is not known, because several "
            f"ended within {POLL_S:g} s; the percentiles are bounds that allow for any value"
        )
    if found.seconds < DURATION_S and not found.interrupted:
        usual = duration_text(DURATION_S)
        yield f"the run is shorter than the {usual} over which OpenRouter computes percentiles"
    if found.failed_readings:
        yield f"{found.failed_readings} of {found.readings} readings of the metrics failed"
    if found.processes != len(found.urls):
        yield (
            f"{found.processes} frontend processes at {len(found.urls)} addresses: a frontend "
            "restarted, or an address leads to several; then name each frontend by its own address"
        )


def _finite(value: float) -> float | None:
    return None if value == inf else value


def document(found: Observation) -> OpenRouterDocument:
    total = found.total
    ttft = {name: quantile(total.ttft, share) for name, share in SHARES.items()}
    speeds = {name: fastest(found.known, found.unknown, s) for name, s in SHARES.items()}
    return OpenRouterDocument(
        schema_version=SCHEMA_VERSION,
        kind="openrouter",
        method="openrouter",
        model=found.model,
        urls=list(found.urls),
        seconds=found.seconds,
        requests=OutcomeCounts(
            successful=total.ok, failed=total.errors, client_errors=total.client_errors
        ),
        ttft_ms={
            name: TtftEstimate(
                value=one.value and one.value * MS, bucket=(one.low * MS, _finite(one.high * MS))
            )
            if one
            else None
            for name, one in ttft.items()
        },
        throughput={
            name: ThroughputBounds(low=one.low, high=_finite(one.high)) if one else None
            for name, one in speeds.items()
        },
        mean_throughput=mean_throughput(total),
        mean_output_speed=mean_speed(total),
        uptime={name: one.uptime if one else None for name, one in _windows(found).items()},
        definitions=DEFINITIONS,
        interrupted=found.interrupted or None,
        remarks=list(remarks(found)),
    )


def as_json(found: Observation) -> str:
    return document(found).as_json()
