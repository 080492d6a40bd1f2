"""Figures of a run, computed from its requests. Times are milliseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from penstock.bench.records import Records
from penstock.graph.slo import Slo
from penstock.simulate.metrics import MAX_REFUSED
from penstock.simulate.window import (
    Conversations,
    ServedRequest,
    Steadiness,
    between,
    percentile,
    steadiness_of,
    steady_window,
    tokens_between,
)

SHARES = (0.5, 0.9, 0.99)
MIN_LATE_MS, LATE_SHARE = 5.0, 0.1  # of the median TTFT, from which the client distorts latencies
BUSY = 0.9  # share of this machine's processor time


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    p50: float
    """Median in ms."""
    p90: float
    """90th percentile in ms."""
    p99: float | None
    """99th percentile in ms; null if more than 1% of the requests failed."""

    @staticmethod
    def of(values: Sequence[float], *, has_p99: bool) -> Percentiles | None:
        """None without values."""
        if not values:
            return None
        p50, p90, p99 = (percentile(values, share) for share in SHARES)
        return Percentiles(p50=p50, p90=p90, p99=p99 if has_p99 else None)


@dataclass(frozen=True, kw_only=True)
class Failures:
    sent: int
    """Number of requests with a record."""
    reasons: Mapping[str, int]
    """Number of failed requests by the reason of their failure."""

    @staticmethod
    def of(records: Records) -> Failures:
        return Failures(
            sent=len(records.served) + len(records.failed),
            reasons=dict(Counter(failure.reason for failure in records.failed).most_common()),
        )

    @property
    def total(self) -> int:
        return sum(self.reasons.values())

    @property
    def share(self) -> float:
        return self.total / self.sent if self.sent else 0.0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The metrics of one run; their names are keys of the JSON output."""

    failures: Failures  # of the complete run
    unsent: int
    counted: int  # served requests in the window, from which the percentiles come
    window_s: float
    ttft_ms: Percentiles | None
    first_output_ms: Percentiles | None  # to the first token that is not reasoning
    reasoning: int  # responses that began with reasoning
    reasoning_only: int  # of these, responses without any other token
    itl_ms: Percentiles | None  # mean of each request
    chunk_gap_ms: Percentiles | None  # between two chunks of a stream, of the complete run
    e2e_ms: Percentiles | None
    in_one_piece: int  # responses of several tokens in one chunk, which have no ITL
    user_rate: float | None  # output tokens/s of the median request
    output_rate: float  # output tokens/s
    request_rate: float  # requests/s
    goodput: float | None  # share of requests within the SLO; None without an SLO
    prefix_hit_rate: float  # share of input tokens that the server reports as cached
    input_ratio: float | None  # input tokens counted by the server, to those of the workload
    steadiness: Steadiness | None  # None with a fixed concurrency
    late_p99_ms: float | None  # how late requests were sent; None with a fixed concurrency
    cpu_share: float  # of this machine's processor time during the run

    @property
    def distortion(self) -> str:
        """Why this machine may have distorted the latencies; empty if it has not."""
        ttft_ms = self.ttft_ms.p50 if self.ttft_ms else None
        return distortion_of(self.late_p99_ms or 0.0, ttft_ms, self.cpu_share)


def distortion_of(late_p99_ms: float, ttft_ms: float | None, cpu_share: float) -> str:
    """As `Measurement.distortion`; ``ttft_ms``: the median, None if nothing was served."""
    if late_p99_ms > max(MIN_LATE_MS, LATE_SHARE * (ttft_ms or 0.0)):
        return f"1% of the requests were sent at least {late_p99_ms:.0f} ms late"
    return f"{cpu_share:.0%} of its processor time was used" if cpu_share > BUSY else ""


def percentiles_of(
    requests: Sequence[ServedRequest], *, has_p99: bool
) -> dict[str, Percentiles | None]:
    """By the names of `Measurement`."""
    itl = [request.itl_ms for request in requests if request.itl_ms is not None]
    return {
        "ttft_ms": Percentiles.of([request.ttft_ms for request in requests], has_p99=has_p99),
        "itl_ms": Percentiles.of(itl, has_p99=has_p99),
        "e2e_ms": Percentiles.of([request.e2e_ms for request in requests], has_p99=has_p99),
    }


def measurement_of(
    records: Records,
    slo: Slo,
    conversations: Conversations | None,
    *,
    is_scheduled: bool,
    cpu_share: float,
) -> Measurement:
    served = list(records.served.values())
    begin, end = steady_window(served, conversations)
    counted = between(served, begin, end)
    seconds = max(end - begin, 1e-6) / 1000
    last = max(end, conversations.last_ms) if conversations else inf  # later ones are not counted
    failed = [failure for failure in records.failed if begin <= failure.sent_ms <= last]
    total = len(counted) + len(failed)
    failures = Failures.of(records)
    has_p99 = failures.share <= MAX_REFUSED
    itl = [request.itl_ms for request in counted if request.itl_ms is not None]
    input_tokens = sum(request.input_tokens for request in counted)
    requested = records.requested_tokens
    first_outputs = [(request, request.first_output_ms) for request in counted]
    outputs = [ms for _, ms in first_outputs if ms is not None]
    return Measurement(
        failures=failures,
        unsent=records.unsent,
        counted=len(counted),
        window_s=seconds,
        **percentiles_of(counted, has_p99=has_p99),
        first_output_ms=Percentiles.of(outputs, has_p99=has_p99),
        reasoning=sum(ms is None or ms > each.ttft_ms for each, ms in first_outputs),
        reasoning_only=len(counted) - len(outputs),
        chunk_gap_ms=Percentiles.of(records.chunk_gaps_ms, has_p99=has_p99),
        in_one_piece=sum(request.tokens > 1 and request.itl_ms is None for request in counted),
        user_rate=1000 / percentile(itl, 0.5) if itl else None,
        output_rate=sum(tokens_between(request, begin, end) for request in served) / seconds,
        request_rate=len(counted) / seconds,
        goodput=sum(request.meets(slo) for request in counted) / total if slo and total else None,
        prefix_hit_rate=(
            sum(request.cached_tokens for request in counted) / input_tokens
            if input_tokens
            else 0.0
        ),
        input_ratio=sum(request.input_tokens for request in served) / requested
        if requested
        else None,
        steadiness=steadiness_of(served, conversations) if is_scheduled and served else None,
        late_p99_ms=percentile(records.late_ms, 0.99) if records.late_ms else None,
        cpu_share=cpu_share,
    )
