"""One run of a workload against one endpoint: its requests, its figures and their prediction.

Times are milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from math import inf

from penstock.bench.aiperf import Endpoint
from penstock.bench.records import Records
from penstock.bench.trace_file import Key
from penstock.graph.slo import Slo
from penstock.reports.json_document import Document
from penstock.simulate.calibration import Calibration
from penstock.simulate.metrics import MAX_REFUSED, steady_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.study import Study
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
from penstock.workload import Request
from penstock.workload.load import LoadedWorkload

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


class Measurement(Document):
    """The metrics of one run; their names are keys of the JSON output."""

    failures: Failures
    """Failed requests of the complete run."""
    unsent: int
    """Number of requests that were not sent, or have no record."""
    counted: int
    """Number of served requests in the measured window, from which the percentiles come."""
    window_s: float
    """Length of the measured window in seconds."""
    ttft_ms: Percentiles | None
    """Time to first token; null if no request was served."""
    first_output_ms: Percentiles | None
    """Time to the first token that is not reasoning; null if no response has one."""
    reasoning: int
    """Number of counted responses that began with reasoning."""
    reasoning_only: int
    """Number of counted responses without any token that is not reasoning."""
    itl_ms: Percentiles | None
    """Mean inter-token latency of each request; null if no response has several chunks."""
    chunk_gap_ms: Percentiles | None
    """Time between two chunks of a stream, in the complete run; null without such a time."""
    e2e_ms: Percentiles | None
    """End-to-end latency; null if no request was served."""
    in_one_piece: int
    """Number of responses of several tokens in one chunk, which have no inter-token latency."""
    user_rate: float | None
    """Output tokens/s of the median request; null if no response has several chunks."""
    output_rate: float
    """Output tokens/s of all requests in the window."""
    request_rate: float
    """Requests/s that were sent in the window and served."""
    goodput: float | None
    """Share of requests within the SLO; null without an SLO, and if no request was counted."""
    prefix_hit_rate: float
    """Share of input tokens that the server reports as found in a prefix cache."""
    input_ratio: float | None
    """Input tokens counted by the server, relative to those of the workload; null if no request was
    served."""
    steadiness: Steadiness | None
    """Whether the latencies are those of a steady state; null with a fixed concurrency."""
    late_p99_ms: float | None
    """p99 of the delay with which requests were sent, in ms; null with a fixed concurrency."""
    cpu_share: float
    """Share of this machine's processor time that was used while requests were sent."""

    @property
    def distorted_by(self) -> str:
        """Why this machine may have distorted the latencies; empty if it has not."""
        ttft_ms = self.ttft_ms.p50 if self.ttft_ms else None
        return distortion_of(self.late_p99_ms or 0.0, ttft_ms, self.cpu_share)


def distortion_of(late_p99_ms: float, ttft_ms: float | None, cpu_share: float) -> str:
    """As `Measurement.distorted_by`; ``ttft_ms``: the median, None if nothing was served."""
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


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Latencies in milliseconds, over the same window as in a `Measurement`."""

    graph: str
    """Name of the simulated graph."""
    requests: int
    """Number of requests of the workload."""
    too_long: int
    """Number of these requests that the graph rejects; the latencies are those of the others."""
    ttft_ms: Percentiles | None
    """Predicted time to first token; null if no request was simulated."""
    itl_ms: Percentiles | None
    """Predicted mean inter-token latency of each request; null if no request has two output
    tokens."""
    e2e_ms: Percentiles | None
    """Predicted end-to-end latency; null if no request was simulated."""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    prediction: Prediction
    requests: Sequence[ServedRequest]
    """Those of which the prediction has the latencies, for charts."""


def predicted(
    graph: Replayable, workload: LoadedWorkload, seed: int, replays: Replays
) -> Predicted:
    """One replay of the requests that a run with this seed sends. SimulationError if the graph
    cannot be replayed."""
    study = Study(workload=workload, replays=replays, seeds=1, first_seed=seed)
    (row,) = study.rows([graph], None)
    total = len(workload.requests(seed))
    requests = steady_requests(row.results[0])
    prediction = Prediction(
        graph=graph.name,
        requests=total,
        too_long=row.too_long,
        **percentiles_of(requests, has_p99=row.too_long <= MAX_REFUSED * total),
    )
    return Predicted(prediction=prediction, requests=requests)


@dataclass(frozen=True, kw_only=True)
class RequestLog:
    requests: Mapping[Key, Request]
    """All of the workload."""
    records: Records
    """Of those that were sent."""

    @cached_property
    def served(self) -> tuple[tuple[Request, ServedRequest], ...]:
        """In order of arrival."""
        return tuple((self.requests[key], served) for key, served in self.records.served.items())

    @cached_property
    def window(self) -> tuple[float, float]:
        """The measured window of `measurement_of`, in ms since the start of the run."""
        served = list(self.records.served.values())
        return steady_window(served, Conversations.of(list(self.requests.values())))

    @cached_property
    def counted(self) -> list[ServedRequest]:
        """The served requests from which the percentiles come."""
        return between(list(self.records.served.values()), *self.window)

    @property
    def first_ms(self) -> float:
        """When the first request was sent, in ms since the start of the run."""
        return min(self._sent_ms, default=0.0)

    @property
    def last_ms(self) -> float:
        """When the last response was complete, or the last request that failed was sent."""
        ends = [served.ended_ms for served in self.records.served.values()]
        return max([*ends, *self._sent_ms], default=0.0)

    @property
    def _sent_ms(self) -> list[float]:
        arrived = [served.arrived_ms for served in self.records.served.values()]
        return arrived + [failed.sent_ms for failed in self.records.failed]

    def time_of(self, ms: float) -> datetime:
        """``ms``: since the start of the run."""
        return datetime.fromtimestamp((self.records.start_ms + ms) / 1000, UTC)


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """What is measured: an endpoint, and the traffic that it gets."""

    endpoint: Endpoint
    workload: LoadedWorkload
    slo: Slo
    attain: float
    """Share of requests that must meet the SLO."""
    seed: int
    timeout_s: float
    """Of one request."""


@dataclass(frozen=True, kw_only=True)
class Bench(BenchRequest):
    """One run of a workload against one endpoint."""

    log: RequestLog
    measurement: Measurement
    interrupted: str = ""
    """What ended the run early; empty if nothing did."""
    prediction: Prediction | None = None
    calibration: Calibration | None = None

    @property
    def meets_slo(self) -> bool | None:
        """None without an SLO."""
        share = self.measurement.goodput
        return None if share is None else share >= self.attain
