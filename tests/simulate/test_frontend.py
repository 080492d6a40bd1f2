"""The time and the CPU time of the frontend, which Dynamo's replay does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SimulationError
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.frontend import (
    DEFAULT,
    MOST_BUSY,
    TIMES,
    FrontendLoad,
    Frontends,
    FrontendTime,
)
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import replayable
from penstock.workload import Request

GRAPH = Path(__file__).parents[2] / "dynamo_graphs" / "gpt-oss-120b-h100-latency.yaml"
TIME = FrontendTime(fixed_ms=30.0, per_1k_ms=2.0)


def of_graph(*sets: str) -> Replayable:
    return replayable(open_source(GRAPH, sets), Hints())


def test_the_time_grows_with_the_input() -> None:
    assert [TIME.ms(tokens) for tokens in (0, 1000, 2500)] == [30.0, 32.0, 35.0]


def test_it_delays_all_tokens_of_a_request() -> None:
    times = {"first_token_ms": [5.0, None], "last_token_ms": [9.0, None]}
    lengths = {"input_length": [1000, 2]}
    result = {"requests": {**times, **lengths}, "summary": {"duration_ms": 9.0}}
    assert FrontendTime().added_to(result) is result
    assert TIME.added_to(result) == {
        "requests": {"first_token_ms": [37.0, None], "last_token_ms": [41.0, None], **lengths},
        "summary": {"duration_ms": 41.0},
    }


def test_a_later_turn_comes_later_by_the_time_of_the_turn_before() -> None:
    def turn(session: str, at_ms: float | None, tokens: int) -> Request:
        return Request(
            at_ms=at_ms,
            think_ms=5.0 if at_ms is None else 0.0,
            session=session,
            input_tokens=tokens,
            output_tokens=1,
            blocks=(),
        )

    turns = (turn("a", 0.0, 1000), turn("b", 1.0, 3000), turn("a", None, 2000), turn("b", None, 1))
    assert [request.think_ms for request in TIME.later_turns(turns)] == [0, 0, 37, 41]
    assert FrontendTime().later_turns(turns) == turns


def test_a_graph_has_the_time_of_its_tokenizer() -> None:
    fast = of_graph()
    assert fast.frontends == Frontends(replicas=2, tokenizer="fastokens")
    assert fast.frontend_time == TIMES["fastokens"]
    slow = of_graph(
        "frontend.tokenizer=default", "frontend.replicas=3", "frontend.resources.cpu=1500m"
    )
    assert slow.frontends == Frontends(replicas=3, tokenizer=DEFAULT, cores=1.5)
    assert slow.frontend_time == TIMES[DEFAULT]
    assert slow.frontend_time.ms(50_000) > fast.frontend_time.ms(50_000)


def test_an_unknown_tokenizer_counts_as_the_default_one() -> None:
    frontends = Frontends(replicas=1, tokenizer="basetenkenizer")
    assert frontends.time == TIMES[DEFAULT]


@pytest.mark.parametrize(
    ("busy", "needed"), [(0.1, 1), (5.5, 1), (5.7, 2), (15.9, 3), (16.0, 3), (28.1, 6)]
)
def test_frontends_are_sized_for_a_share_of_their_cores(busy: float, needed: int) -> None:
    assert MOST_BUSY == 0.7
    load = FrontendLoad(frontends=Frontends(replicas=2), busy_cores=busy)
    assert load.needed == needed
    assert load.is_too_high == bool(load.warning) == (needed > 2)
    assert load.is_saturated == (busy >= 16)
    assert ("cannot serve" in load.warning) == load.is_saturated


def test_a_graph_without_a_running_frontend_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"frontend has 0 replicas, so the graph accepts no"):
        of_graph("frontend.replicas=0")


def test_cpu_time_grows_with_requests_and_their_tokens() -> None:
    frontends = Frontends(replicas=1, tokenizer="fastokens")
    small = frontends.busy_cores(10.0, 1000, 10)
    assert frontends.busy_cores(20.0, 1000, 10) == pytest.approx(2 * small)
    assert frontends.busy_cores(10.0, 9000, 10) > small
    assert frontends.busy_cores(10.0, 1000, 90) > small
    load = FrontendLoad(frontends=frontends, busy_cores=1.25)
    assert str(load) == "1.25 CPU cores busy in 1 frontend with 8 each (assumed)"
