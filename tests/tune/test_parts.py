"""No request that chooses settings confirms them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import SimulationError
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.study import Row, Study
from penstock.tune.tuning import MIN_REQUESTS, halves, parts_of, with_enough_conversations
from penstock.workload.duration import MAX_REPLAYED_REQUESTS
from penstock.workload.load import LoadedWorkload, parse_workload
from tests.simulate.test_metrics import answer
from tests.tune.scripted import LOADED, deployment, metrics

REPLAYS = Replays(Cache(None, ""), processes=1)


def trace(count: int) -> LoadedWorkload:
    rows = (
        {"timestamp": 100 * i, "input_length": 64 + i, "output_length": 5, "hash_ids": [i]}
        for i in range(count)
    )
    loaded = parse_workload("trace: {format: mooncake}\n", "recorded.yaml")
    text = "\n".join(json.dumps(row) for row in rows)
    return LoadedWorkload(
        name=loaded.name,
        workload=loaded.workload,
        source=loaded.source,
        trace_text=text,
        trace_source="t.jsonl",
    )


def test_sampled_traffic_is_confirmed_with_other_seeds() -> None:
    parts = parts_of(LOADED, REPLAYS, 3)
    assert (parts.choice_name, parts.confirmation_name) == ("seeds 0 to 2", "seeds 3 to 8")
    choice = parts.choice._sampled(LOADED, [deployment()])
    confirmation = parts.confirmation._sampled(LOADED, [deployment()])
    assert choice == [LOADED.requests(seed) for seed in range(3)]
    assert confirmation == [LOADED.requests(seed) for seed in range(3, 9)]
    jobs = parts.confirmation._jobs(deployment(), LOADED, confirmation)
    assert [job.seed for job in jobs] == list(range(3, 9))


def test_the_halves_of_a_trace_have_each_request_once() -> None:
    loaded = trace(401)
    first, second = (half.requests(0) for half in halves(loaded))
    assert [r.input_tokens for r in (*first, *second)] == [64 + i for i in range(401)]
    assert (len(first), len(second)) == (200, 201)
    assert first[0].at_ms == second[0].at_ms == 0.0
    assert second[-1].at_ms == pytest.approx(20_000)
    parts = parts_of(loaded, REPLAYS, 3)
    assert parts.choice.workload.requests(7) == first
    assert parts.confirmation.workload.requests(0) == second


def test_too_little_traffic_is_refused() -> None:
    with pytest.raises(SimulationError, match=f"half of the trace has 199 .* least {MIN_REQUESTS}"):
        parts_of(trace(399), REPLAYS, 3)
    few = LOADED.with_workload(LOADED.workload.with_requests(199))
    with pytest.raises(SimulationError, match=r"chat\.yaml: the workload has 199 requests"):
        parts_of(few, REPLAYS, 3)


def conversations(requests: int, every_s: float = 1.0) -> LoadedWorkload:
    return parse_workload(
        f"requests: {requests}\ninput: 100\noutput: 10\narrival: {{poisson: {1 / every_s}}}\n"
        "conversation: {turns: 8, think: 3}\n",
        "agents.yaml",
    )


def enough(loaded: LoadedWorkload, request_s: float, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The requests with which a graph is tuned that takes ``request_s`` for each."""
    result = answer(*((1000 * at, 1000 * at, 1000 * (at + request_s), 10) for at in range(9)))

    def rows(_: Study, deployments: list[Any], progress: object) -> list[Row]:
        return [Row(replayable=deployments[0], metrics=(metrics(),), results=(result,))]

    monkeypatch.setattr(Study, "rows", rows)
    return with_enough_conversations(loaded, deployment(), REPLAYS).workload.requests


def test_conversations_last_until_their_number_is_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation takes 32 s if a request takes one; 8 requests/s arrive."""
    assert enough(conversations(300), 1, monkeypatch) == pytest.approx(8 * 32 * 2.125, abs=1)
    assert enough(conversations(300), 9, monkeypatch) == pytest.approx(8 * 96 * 2.125, abs=1)
    assert enough(conversations(9000), 1, monkeypatch) == 9000
    assert enough(conversations(300, every_s=0.01), 9, monkeypatch) == MAX_REPLAYED_REQUESTS
    assert enough(LOADED, 9, monkeypatch) == LOADED.workload.requests
