"""Figures that are computed from the requests of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import pytest

from penstock.bench.measurement import Measurement, measurement_of
from penstock.bench.records import FailedRequest, Records
from penstock.graph.slo import Slo
from penstock.simulate.window import Conversations, ServedRequest
from tests.bench.hand_written import served

EVERY_MS, E2E_MS = 100.0, 400.0
REQUESTS = 200
WARM_UP = 20  # 10% of the requests; twice the duration of a request is less


def request(arrived_ms: float, ttft_ms: float = 100.0) -> ServedRequest:
    return served(ttft_ms, E2E_MS, 31, at_ms=arrived_ms, input_tokens=200, cached_tokens=50)


def failed(sent_ms: float, reason: str = "HTTP 500") -> FailedRequest:
    return FailedRequest(key=("f", 0), sent_ms=sent_ms, reason=reason)


def steady(requests: int = REQUESTS) -> list[ServedRequest]:
    """TTFT grows with the number of the request."""
    return [request(number * EVERY_MS, 100.0 + number) for number in range(requests)]


def measure(
    requests: Sequence[ServedRequest],
    failures: Sequence[FailedRequest] = (),
    *,
    slo: Slo = Slo(),  # noqa: B008 (frozen)
    late_ms: tuple[float, ...] = (0.0,),
    cpu_share: float = 0.5,
    conversations: Conversations | None = None,
    is_scheduled: bool = True,
) -> Measurement:
    records = Records(
        start_ms=0.0,
        served={(f"r{number}", 0): each for number, each in enumerate(requests)},
        failed=tuple(failures),
        unsent=3,
        late_ms=late_ms if is_scheduled else (),
        chunk_gaps_ms=(1.0, 2.0, 3.0),
        requested_tokens=160 * len(requests),
    )
    return measurement_of(
        records, slo, conversations, is_scheduled=is_scheduled, cpu_share=cpu_share
    )


def test_percentiles_are_those_after_the_warm_up() -> None:
    measurement = measure(steady())
    counted = [100.0 + number for number in range(REQUESTS)][WARM_UP - 1 :]
    assert measurement.counted == len(counted)
    assert measurement.ttft_ms is not None
    for percent, value in ((50, measurement.ttft_ms.p50), (90, measurement.ttft_ms.p90)):
        assert value == counted[ceil(percent * len(counted) / 100) - 1]
    assert measurement.ttft_ms.p99 == counted[ceil(0.99 * len(counted)) - 1]
    assert measurement.e2e_ms is not None
    assert measurement.e2e_ms.p50 == E2E_MS
    assert measurement.chunk_gap_ms is not None
    assert measurement.chunk_gap_ms.p50 == 2.0
    assert measurement.unsent == 3


def test_rates_are_those_of_the_window() -> None:
    measurement = measure(steady())
    assert measurement.request_rate == pytest.approx(10.0, rel=0.01)
    assert measurement.output_rate == pytest.approx(310.0, rel=0.02)
    assert measurement.prefix_hit_rate == pytest.approx(0.25)
    assert measurement.steadiness is not None
    assert measurement.steadiness.is_long_enough
    assert measurement.steadiness.is_served
    assert measurement.steadiness.is_growing  # as each request waits longer than the one before


def test_a_fixed_concurrency_has_neither_lateness_nor_steadiness() -> None:
    measurement = measure(steady(), is_scheduled=False)
    assert (measurement.late_p99_ms, measurement.steadiness) == (None, None)


@pytest.mark.parametrize(("failures", "has_p99"), [(2, True), (3, False)])
def test_more_than_one_percent_of_failures_leave_no_p99(failures: int, has_p99: bool) -> None:
    measurement = measure(steady(200 - failures), [failed(5000.0 + n) for n in range(failures)])
    assert measurement.failures.sent == 200
    for each in (
        measurement.ttft_ms,
        measurement.itl_ms,
        measurement.e2e_ms,
        measurement.chunk_gap_ms,
    ):
        assert each is not None
        assert (each.p99 is not None) == has_p99


def test_failures_are_counted_by_reason_the_most_frequent_first() -> None:
    reasons = ["HTTP 503", "HTTP 500", "HTTP 500"]
    measurement = measure(steady(), [failed(0.0, reason) for reason in reasons])
    assert list(measurement.failures.reasons.items()) == [("HTTP 500", 2), ("HTTP 503", 1)]


def test_goodput_is_the_share_of_requests_within_the_slo() -> None:
    measurement = measure(steady(), slo=Slo(ttft_ms=209.0))
    after = REQUESTS - WARM_UP + 1
    assert measurement.goodput == pytest.approx((110 - WARM_UP + 1) / after)
    assert measure(steady()).goodput is None


@pytest.mark.parametrize(
    ("sent_ms", "is_judged"),
    [(500.0, False), (5_000.0, True), (25_000.0, True)],
)
def test_failures_after_the_warm_up_are_not_within_the_slo(sent_ms: float, is_judged: bool) -> None:
    """Also those after the last response of an endpoint that died."""
    measurement = measure(steady(), [failed(sent_ms)] * 181, slo=Slo(ttft_ms=1e6))
    assert measurement.goodput == pytest.approx(0.5 if is_judged else 1.0)


def test_failures_after_the_last_start_of_a_conversation_are_not_counted() -> None:
    conversations = Conversations(
        first_ms=0.0, last_ms=15_000.0, turns=2.0, think_ms=0.0, starts=100
    )
    slo = Slo(ttft_ms=1e6)
    late = measure(steady(), [failed(16_000.0)] * 50, slo=slo, conversations=conversations)
    early = measure(steady(), [failed(14_000.0)] * 50, slo=slo, conversations=conversations)
    assert late.goodput == 1.0
    assert early.goodput is not None
    assert early.goodput < 0.8


def test_without_a_served_request_there_are_no_latencies() -> None:
    measurement = measure([], [failed(0.0), failed(100.0)], slo=Slo(ttft_ms=100.0))
    assert (measurement.counted, measurement.goodput) == (0, 0.0)
    latencies = (
        measurement.ttft_ms,
        measurement.itl_ms,
        measurement.e2e_ms,
        measurement.user_rate,
        measurement.steadiness,
    )
    assert latencies == (None,) * 5
    assert measurement.output_rate == 0.0


@pytest.mark.parametrize(
    ("late_ms", "ttft_ms", "cpu_share", "distortion"),
    [
        (4.0, 20.0, 0.5, ""),
        (6.0, 20.0, 0.5, "1% of the requests were sent at least 6 ms late"),
        (15.0, 200.0, 0.5, ""),  # less than a tenth of the median TTFT
        (25.0, 200.0, 0.5, "1% of the requests were sent at least 25 ms late"),
        (0.0, 20.0, 0.95, "95% of its processor time was used"),
    ],
)
def test_a_late_or_busy_client_distorts_latencies(
    late_ms: float, ttft_ms: float, cpu_share: float, distortion: str
) -> None:
    requests = [request(number * EVERY_MS, ttft_ms) for number in range(100)]
    late = (0.0,) * 98 + (late_ms,) * 2
    assert measure(requests, late_ms=late, cpu_share=cpu_share).distorted_by == distortion


def test_output_after_reasoning() -> None:
    plain, reasoning = (request(n * EVERY_MS) for n in range(2))
    requests = [
        replace(plain, first_output_ms=plain.ttft_ms),
        replace(reasoning, first_output_ms=300.0),
        replace(reasoning, first_output_ms=None),
    ]
    measurement = measure(requests)
    assert (measurement.counted, measurement.reasoning, measurement.reasoning_only) == (3, 2, 1)
    assert measurement.first_output_ms is not None
    assert (measurement.first_output_ms.p50, measurement.first_output_ms.p90) == (100.0, 300.0)


def test_input_tokens_by_the_server_and_by_the_workload() -> None:
    assert measure(steady()).input_ratio == 200 / 160
    assert measure([], [failed(0.0)]).input_ratio is None
