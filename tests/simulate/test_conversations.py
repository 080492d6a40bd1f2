"""The steady state of conversations, whose later turns wait for answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.graph.slo import Slo
from penstock.simulate.metrics import replay_metrics, steady_requests
from penstock.simulate.window import Conversations, Steadiness
from penstock.workload.load import parse_workload
from penstock.workload.request import Request
from tests.simulate.test_metrics import answer

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
            rows.append((*(1000 * one for one in times), 11))
            at_s += request_s + THINK_S
    found = Conversations.of(conversations(count))
    assert found
    return dict(found.added_to(answer(*sorted(rows))))


def steadiness_of(some: dict[str, Any]) -> Steadiness:
    found = replay_metrics(some, 1, Slo()).steadiness
    assert found
    return found


def test_conversations_have_a_rate_of_requests_that_no_engine_changes() -> None:
    found = Conversations.of(conversations(11))
    assert found == Conversations(
        first_ms=0, last_ms=10_000, turns=TURNS, think_ms=1000 * THINK_S, starts=11
    )
    assert found.rate == pytest.approx(TURNS / EVERY_S)
    assert found.takes_ms(1000) == 1000 * (TURNS + (TURNS - 1) * THINK_S)


def test_requests_without_later_turns_are_no_conversations() -> None:
    single = [replace(one, think_ms=0.0) for one in conversations(5) if one.at_ms is not None]
    assert Conversations.of(single) is None
    assert Conversations.of(conversations(1)) is None  # no rate


def test_the_time_in_which_the_number_of_conversations_changes_is_not_counted() -> None:
    """A conversation takes 29 s; the last one starts after 199 s."""
    some = result(200, request_s=1)
    counted = [request.arrived_ms / 1000 for request in steady_requests(some)]
    assert 29 <= min(counted) <= 33  # at least a tenth of the requests
    assert max(counted) == pytest.approx(199, abs=1)
    found = replay_metrics(some, 1, Slo())
    assert found.request_rate == pytest.approx(TURNS / EVERY_S, rel=0.03)
    assert found.steadiness
    assert found.steadiness.is_steady


def test_before_the_first_conversations_end_there_is_no_steady_state() -> None:
    assert not steadiness_of(result(30, request_s=1)).is_served


def test_an_overloaded_engine_that_gets_fewer_requests_is_not_steady() -> None:
    """Answers that take a minute delay the next turns, so that as many end as arrive."""
    some = result(200, request_s=60)
    without = {key: value for key, value in some.items() if key != "conversations"}
    assert steadiness_of(without).offered_rate < TURNS / EVERY_S / 2
    found = steadiness_of(some)
    assert found.offered_rate == pytest.approx(TURNS / EVERY_S)
    assert not found.is_served
    assert found.reason == (
        "the traffic is too short: a conversation lasts 501 s, and the window begins after 133 s"
    )
    assert "requests/s complete" in replace(found, warm_up_s=501).reason


def test_the_sampled_conversations_have_the_rate_of_the_workload() -> None:
    loaded = parse_workload(
        "requests: 4000\ninput: 100\noutput: 10\narrival: {poisson: 2}\n"
        "conversation: {turns: 8, think: 3}\n",
        "w.yaml",
    )
    found = Conversations.of(loaded.requests(0))
    assert found
    assert found.rate == pytest.approx(loaded.mean_rate(), rel=0.1)
