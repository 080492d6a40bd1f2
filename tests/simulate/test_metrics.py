"""Metrics of a replay, compared with values computed by hand."""

from typing import Any

import pytest

from penstock.graph.slo import Slo
from penstock.simulate.metrics import (
    ReplayMetrics,
    percentile,
    replay_metrics,
    served_requests,
    spreads,
)


def answer(*rows: tuple[float, float, float, int], **summary: float) -> dict[str, Any]:
    """Rows of arrival, first and last token (ms) and tokens."""
    columns: dict[str, list[Any]] = {
        "arrival_time_ms": [r[0] for r in rows],
        "first_admit_ms": [r[0] + 5 for r in rows],
        "first_token_ms": [r[1] for r in rows],
        "last_token_ms": [r[2] for r in rows],
        "input_length": [100 for _ in rows],
        "output_length": [r[3] for r in rows],
        "reused_input_tokens": [25 for _ in rows],
        "prefill_queue_ms": [5.0 for _ in rows],
        "decode_queue_ms": [None for _ in rows],
    }
    counts = {"num_requests": len(rows), "completed_requests": len(rows), "p99_itl_ms": 12.0}
    counts["duration_ms"] = max((row[2] for row in rows), default=0.0)
    return {"summary": {**counts, **summary}, "requests": columns, "samples": []}


def steady(count: int = 100) -> dict[str, Any]:
    """One request every 100 ms; first token after 50 ms, then 10 more in 100 ms."""
    return answer(*((100.0 * i, 100.0 * i + 50, 100.0 * i + 150, 11) for i in range(count)))


def test_figures_of_a_steady_stream() -> None:
    found = replay_metrics(steady(), 4, Slo(ttft_ms=50, itl_ms=10))
    assert found.ttft_p50_ms == found.ttft_p99_ms == 50
    assert found.itl_p50_ms == 10
    assert found.user_rate == 100
    assert found.output_rate == pytest.approx(110, rel=0.02)
    assert found.gpu_rate == pytest.approx(27.5, rel=0.02)
    assert found.goodput == 1.0
    assert found.prefix_hit_rate == 0.25
    assert found.prefill_queue_p99_ms == 5
    assert found.gpu_hours_per_million == pytest.approx(4 * 1e6 / 110 / 3600, rel=0.02)


def test_the_decode_pool_has_a_queue_of_its_own() -> None:
    asked = steady()
    assert replay_metrics(asked, 1, Slo()).decode_queue_p99_ms is None
    asked["requests"]["decode_queue_ms"] = [float(number) for number in range(100)]
    found = replay_metrics(asked, 1, Slo())
    assert found.decode_queue_p99_ms is not None
    assert 90 < found.decode_queue_p99_ms < 100


def test_warm_up_and_end_are_not_counted() -> None:
    slow = [
        (100.0 * i, 100.0 * i + (900 if i < 10 else 50), 100.0 * i + 1000, 2) for i in range(60)
    ]
    found = replay_metrics(answer(*slow), 1, Slo())
    assert found.ttft_p99_ms == 50
    assert found.requests == 40  # after a warm-up of twice the second that a request takes


@pytest.mark.parametrize(
    ("slo", "share"),
    [
        (Slo(ttft_ms=49), 0.0),
        (Slo(itl_ms=9.9), 0.0),
        (Slo(e2e_ms=149), 0.0),
        (Slo(e2e_ms=150), 1.0),
        (Slo(), None),
    ],
)
def test_each_part_of_the_slo_is_checked(slo: Slo, share: float | None) -> None:
    assert replay_metrics(steady(), 1, slo).goodput == share


def test_requests_that_all_arrive_at_once_are_all_counted() -> None:
    found = replay_metrics(answer(*((0.0, 10.0, 110.0, 11) for _ in range(8))), 1, Slo())
    assert found.requests == 8
    assert found.output_rate == pytest.approx(800, rel=0.01)  # 88 tokens in 110 ms


def test_a_single_token_has_no_gap_and_an_unfinished_request_is_reported() -> None:
    found = replay_metrics(answer((0.0, 10.0, 10.0, 1), completed_requests=0), 1, Slo(itl_ms=1))
    assert (found.itl_p50_ms, found.token_gap_p99_ms, found.user_rate) == (None, None, None)
    assert found.unfinished == 1
    assert found.goodput == 0.5  # an unfinished request misses the SLO


def test_arrivals_shorter_than_a_request_are_counted_to_the_end() -> None:
    found = replay_metrics(answer(*((float(i), 500.0, 1500.0, 11) for i in range(20))), 2, Slo())
    assert found.requests == 20
    assert found.output_rate == pytest.approx(220 / 1.5, rel=0.02)
    assert found.gpu_hours_per_million == pytest.approx(2 * 1e6 / (220 / 1.5) / 3600, rel=0.02)


def test_no_finished_request_is_no_division_by_zero() -> None:
    nothing = answer((0.0, 1.0, 2.0, 1))
    nothing["requests"]["last_token_ms"] = [None]
    assert served_requests(nothing) == []
    found = replay_metrics(nothing, 1, Slo(ttft_ms=1))
    assert (found.requests, found.output_rate, found.gpu_hours_per_million) == (0, 0, None)


def test_percentiles_are_existing_values() -> None:
    assert [percentile([3, 1, 2], share) for share in (0, 0.5, 0.99, 1)] == [1, 2, 3, 3]
    assert percentile([], 0.5) == 0


def test_the_spread_over_seeds() -> None:
    metrics: list[ReplayMetrics] = [replay_metrics(steady(n), 1, Slo()) for n in (50, 60, 80)]
    found = dict(spreads(metrics))["requests"]
    assert (found.low, found.high) == (metrics[0].requests, metrics[2].requests)
    assert found.median == metrics[1].requests
    assert "goodput" not in dict(spreads(metrics))
