"""Metrics of a replay, compared with values computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.graph.slo import Slo
from penstock.simulate.metrics import (
    ReplayMetrics,
    percentile,
    replay_metrics,
    served_requests,
    spreads,
    steady_requests,
)
from penstock.simulate.window import Conversations, Steadiness
from penstock.workload.request import Request


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
    figures = replay_metrics(steady(), 4, Slo(ttft_ms=50, itl_ms=10))
    assert figures.ttft_p50_ms == figures.ttft_p99_ms == 50
    assert figures.itl_p50_ms == 10
    assert figures.user_rate == 100
    assert figures.output_rate == pytest.approx(110, rel=0.02)
    assert figures.gpu_rate == pytest.approx(27.5, rel=0.02)
    assert figures.goodput == 1.0
    assert figures.prefix_hit_rate == 0.25
    assert figures.prefill_queue_p99_ms == 5
    assert figures.gpu_hours_per_million == pytest.approx(4 * 1e6 / 110 / 3600, rel=0.02)


def test_the_decode_pool_has_a_queue_of_its_own() -> None:
    asked = steady()
    assert replay_metrics(asked, 1, Slo()).decode_queue_p99_ms is None
    asked["requests"]["decode_queue_ms"] = [float(number) for number in range(100)]
    figures = replay_metrics(asked, 1, Slo())
    assert figures.decode_queue_p99_ms is not None
    assert 90 < figures.decode_queue_p99_ms < 100


def test_warm_up_and_end_are_not_counted() -> None:
    slow = [
        (100.0 * i, 100.0 * i + (900 if i < 10 else 50), 100.0 * i + 1000, 2) for i in range(60)
    ]
    figures = replay_metrics(answer(*slow), 1, Slo())
    assert figures.ttft_p99_ms == 50
    assert figures.requests == 40  # after a warm-up of twice the second that a request takes


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
    figures = replay_metrics(answer(*((0.0, 10.0, 110.0, 11) for _ in range(8))), 1, Slo())
    assert figures.requests == 8
    assert figures.output_rate == pytest.approx(800, rel=0.01)  # 88 tokens in 110 ms


def test_a_single_token_has_no_gap_and_an_unfinished_request_is_reported() -> None:
    figures = replay_metrics(answer((0.0, 10.0, 10.0, 1), completed_requests=0), 1, Slo(itl_ms=1))
    assert (figures.itl_p50_ms, figures.token_gap_p99_ms, figures.user_rate) == (None, None, None)
    assert figures.unfinished == 1
    assert figures.goodput == 0.5  # an unfinished request misses the SLO


def test_arrivals_shorter_than_a_request_are_counted_to_the_end() -> None:
    figures = replay_metrics(answer(*((float(i), 500.0, 1500.0, 11) for i in range(20))), 2, Slo())
    assert figures.requests == 20
    assert figures.output_rate == pytest.approx(220 / 1.5, rel=0.02)
    assert figures.gpu_hours_per_million == pytest.approx(2 * 1e6 / (220 / 1.5) / 3600, rel=0.02)


def test_no_finished_request_is_no_division_by_zero() -> None:
    nothing = answer((0.0, 1.0, 2.0, 1))
    nothing["requests"]["last_token_ms"] = [None]
    assert served_requests(nothing) == []
    figures = replay_metrics(nothing, 1, Slo(ttft_ms=1))
    assert (figures.requests, figures.output_rate, figures.gpu_hours_per_million) == (0, 0, None)


def test_percentiles_are_existing_values() -> None:
    assert [percentile([3, 1, 2], share) for share in (0, 0.5, 0.99, 1)] == [1, 2, 3, 3]
    assert percentile([], 0.5) == 0


def test_the_spread_over_seeds() -> None:
    metrics: list[ReplayMetrics] = [replay_metrics(steady(n), 1, Slo()) for n in (50, 60, 80)]
    spread = dict(spreads(metrics))["requests"]
    assert (spread.low, spread.high) == (metrics[0].requests, metrics[2].requests)
    assert spread.median == metrics[1].requests
    assert "goodput" not in dict(spreads(metrics))


TURNS, EVERY_S, THINK_S = 8, 1, 3  # a conversation starts each second


def conversations(count: int) -> list[Request]:
    return [
        Request(
            at_ms=None if turn else 1000.0 * EVERY_S * number,
            think_ms=1000.0 * THINK_S if turn else 0.0,
            session=str(number),
            input_tokens=100,
            output_tokens=10,
            blocks=(),
        )
        for number in range(count)
        for turn in range(TURNS)
    ]


def result(count: int, request_s: float) -> dict[str, Any]:
    """Of an engine that takes ``request_s`` for each request."""
    rows = []
    for number in range(count):
        at_s = float(EVERY_S * number)
        for _ in range(TURNS):
            times = (at_s, at_s + request_s / 2, at_s + request_s)
            rows.append((*(1000 * time for time in times), 11))
            at_s += request_s + THINK_S
    state = Conversations.of(conversations(count))
    assert state
    return dict(state.added_to(answer(*sorted(rows))))


def steadiness_of(replayed: dict[str, Any]) -> Steadiness:
    measured = replay_metrics(replayed, 1, Slo()).steadiness
    assert measured
    return measured


def test_conversations_have_a_rate_of_requests_that_no_engine_changes() -> None:
    state = Conversations.of(conversations(11))
    assert state == Conversations(
        first_ms=0, last_ms=10_000, turns=TURNS, think_ms=1000 * THINK_S, starts=11
    )
    assert state.rate == pytest.approx(TURNS / EVERY_S)
    assert state.takes_ms(1000) == 1000 * (TURNS + (TURNS - 1) * THINK_S)


def test_requests_without_later_turns_are_no_conversations() -> None:
    single = [
        replace(request, think_ms=0.0) for request in conversations(5) if request.at_ms is not None
    ]
    assert Conversations.of(single) is None
    assert Conversations.of(conversations(1)) is None  # no rate


def test_the_time_in_which_the_number_of_conversations_changes_is_not_counted() -> None:
    """A conversation takes 29 s; the last one starts after 199 s."""
    replayed = result(200, request_s=1)
    counted = [request.arrived_ms / 1000 for request in steady_requests(replayed)]
    assert 29 <= min(counted) <= 33  # at least a tenth of the requests
    assert max(counted) == pytest.approx(199, abs=1)
    figures = replay_metrics(replayed, 1, Slo())
    assert figures.request_rate == pytest.approx(TURNS / EVERY_S, rel=0.03)
    assert figures.steadiness
    assert figures.steadiness.is_steady


def test_before_the_first_conversations_end_there_is_no_steady_state() -> None:
    assert not steadiness_of(result(30, request_s=1)).is_served


def test_an_overloaded_engine_that_gets_fewer_requests_is_not_steady() -> None:
    """Answers that take a minute delay the next turns, so that as many end as arrive."""
    replayed = result(200, request_s=60)
    without = {key: value for key, value in replayed.items() if key != "conversations"}
    assert steadiness_of(without).offered_rate < TURNS / EVERY_S / 2
    overloaded = steadiness_of(replayed)
    assert overloaded.offered_rate == pytest.approx(TURNS / EVERY_S)
    assert not overloaded.is_served
    assert overloaded.reason == (
        "the traffic is too short: a conversation lasts 501 s, and the window begins after 133 s"
    )
    assert "requests/s complete" in replace(overloaded, warm_up_s=501).reason
