"""How many replays a plan can run, and how long they are."""

from __future__ import annotations

import pytest

from penstock.plan.planning import (
    CONVERSATIONS,
    FEWEST,
    LEAST_REQUESTS,
    LONGEST_S,
    MOST,
    Cost,
    complete_workload,
)
from penstock.plan.traffic import Traffic
from penstock.workload.duration import MAX_REPLAYED_REQUESTS
from penstock.workload.load import LoadedWorkload, parse_workload

CONVERSATION = "conversation: {turns: 8, think: 3}\n"


def workload(requests: int, more: str = "") -> LoadedWorkload:
    text = f"requests: {requests}\ninput: 1024\noutput: 300\narrival: {{poisson: 20}}\n"
    return parse_workload(text + more, "w.yaml")


def cost(requests: int, output: int = 300) -> Cost:
    traffic = Traffic(
        cached=0, fresh=1, long_fresh=1, output=output, context=1, rate=1.0, concurrency=None
    )
    return Cost.of(workload(requests), traffic)


def test_long_replays_are_fewer_and_have_one_seed() -> None:
    assert (cost(200).replays, cost(200).is_high) == (MOST, False)
    assert FEWEST <= cost(2000, output=1000).replays < MOST
    assert cost(2000, output=1000).is_high
    assert cost(20_000, output=4000).replays == FEWEST


def test_only_conversations_and_traces_can_be_searched_with_a_part() -> None:
    """A part of other workloads does not fill the engines."""
    long = cost(15_000)
    assert long.replay_s > LONGEST_S
    plain, turns = workload(15_000), workload(15_000, CONVERSATION)
    assert long.affordable(plain) == plain
    part = long.affordable(turns).workload.requests
    assert part is not None
    assert LEAST_REQUESTS <= part < 15_000 * LONGEST_S / long.replay_s + 1
    assert cost(500).affordable(workload(500, CONVERSATION)) == workload(500, CONVERSATION)


@pytest.mark.parametrize(
    ("own", "steady", "complete"),
    [(500, 1000, 1000 * CONVERSATIONS), (9000, 1000, 9000), (500, 9000, MAX_REPLAYED_REQUESTS)],
)
def test_many_conversations_confirm_a_graph(own: int, steady: int, complete: int) -> None:
    found = complete_workload(workload(own, CONVERSATION), workload(steady, CONVERSATION))
    assert found
    assert found.workload.requests == complete


def test_requests_that_are_no_conversations_need_no_complete_workload() -> None:
    assert complete_workload(workload(9000), workload(100)) is None
