"""The stages of a ladder, and outputs that the next turn finds in a cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.graph.slo import Slo
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.replay import ADDED_INPUTS, Replays, as_trace
from penstock.simulate.report import notes, table_of
from penstock.simulate.stages import FIRST, REJECTED
from penstock.simulate.study import Row, Study
from penstock.workload import Workload, sample
from penstock.workload.load import LoadedWorkload, parse_workload
from tests.simulate.test_replay import NO_CACHE, graph
from tests.simulate.test_replayable import of

GRAPH = "gpt-oss-120b-b200-throughput"
LADDER = "input: 500\noutput: 50\narrival: {ladder: {rates: [2, 8], seconds: 20, pause: 10}}\n"


def loaded(text: str) -> LoadedWorkload:
    return parse_workload(text, "w.yaml")


def result_of(arrivals_ms: list[float], took_ms: float = 100.0) -> dict[str, Any]:
    """Of requests that take ``took_ms``, of which the last does not finish."""
    ends = [at + took_ms for at in arrivals_ms[:-1]]
    columns: dict[str, list[float | None]] = {
        "arrival_time_ms": [*arrivals_ms],
        "first_token_ms": [*(at + 50 for at in arrivals_ms[:-1]), None],
        "last_token_ms": [*ends, None],
        "input_length": [10.0] * len(arrivals_ms),
        "output_length": [6.0] * len(arrivals_ms),
        "reused_input_tokens": [0.0] * len(arrivals_ms),
        "prefill_queue_ms": [0.0] * len(arrivals_ms),
        "decode_queue_ms": [None] * len(arrivals_ms),
    }
    summary = {"num_requests": len(arrivals_ms), "completed_requests": len(ends), "p99_itl_ms": 10}
    samples = [{"at_ms": at} for at in range(0, 50_000, 1000)]
    return {
        "summary": {**summary, "duration_ms": 50_000},
        "requests": columns,
        "samples": samples,
        FIRST: 100.0,  # the first requests of the workload are too long
        REJECTED: ((0.0, False), (30_000.0, True), (31_000.0, False)),
    }


@pytest.mark.parametrize(("service_ms", "is_steady"), [(50, True), (128, False), (250, False)])
def test_a_stage_in_which_the_queue_grows_is_not_steady(service_ms: float, is_steady: bool) -> None:
    """The first stage has 2 requests/s, the second one 8."""
    arrivals = [500.0 * n for n in range(40)] + [30_000 + 125.0 * n for n in range(160)]
    result, free = result_of([*arrivals, 60_000.0]), 0.0
    for number, arrived in enumerate(arrivals):
        free = max(free, arrived) + service_ms
        result["requests"]["first_token_ms"][number] = free - service_ms / 2
        result["requests"]["last_token_ms"][number] = free
    row = Row(replayable=of(GRAPH), metrics=(replay_metrics(result, 1, Slo()),), results=(result,))
    first, second = row.by_stage(loaded(LADDER))
    assert first.steadiness is None
    assert second.is_steady is is_steady
    assert any("not steady: " in line for line in notes([second], [None])) is not is_steady


def test_each_stage_has_the_requests_that_arrive_in_it_or_in_its_pause() -> None:
    result = result_of([0, 19_000, 29_000, 29_899, 29_900, 45_000])
    row_of_all = Row(
        replayable=of(GRAPH), metrics=(replay_metrics(result, 1, Slo()),), results=(result,)
    )
    first, second = row_of_all.by_stage(loaded(LADDER))
    assert [row.metrics[0].requests for row in (first, second)] == [4, 1]
    assert [row.metrics[0].unfinished for row in (first, second)] == [0, 1]
    assert [row.too_long for row in (first, second)] == [1, 2]
    assert [row.over_input_limit for row in (first, second)] == [0, 1]
    assert [len(row.results[0]["samples"]) for row in (first, second)] == [30, 20]
    # Two of its requests arrive within 20 s, one of them in the warm-up of 0.2 s.
    assert first.metrics[0].request_rate == pytest.approx(1 / 19.8)
    assert first.metrics[0].token_gap_p99_ms is None
    names = [row.named_by_stage for row in (first, second)]
    assert [cells[0] for cells in table_of(names).rows] == [f"{GRAPH}, 2/s", f"{GRAPH}, 8/s"]
    lines = list(notes(names, (None, None)))
    assert sum("not simulated: " in line for line in lines) == len(of(GRAPH).not_simulated)
    assert row_of_all.by_stage(
        loaded(
            LADDER.replace("ladder", "ramp").replace(
                "rates: [2, 8], seconds: 20, pause: 10", "start: 1, end: 2, seconds: 9"
            )
        )
    ) == [row_of_all]


def test_the_throughput_of_a_stage_is_without_its_drain() -> None:
    """Of the first stage, and of the last one, whose requests end 5 s after the last arrival."""
    arrivals = [500.0 * number for number in range(40)]
    arrivals += [30_000.0 + 125.0 * number for number in range(161)]
    result = result_of(arrivals, took_ms=5000.0)
    result |= {FIRST: 0.0, REJECTED: ()}
    metrics = (replay_metrics(result, 1, Slo()),)
    row_of_all = Row(replayable=of(GRAPH), metrics=metrics, results=(result,))
    stages = row_of_all.by_stage(loaded(LADDER))
    assert [row.offered_rate for row in stages] == [2, 8]
    rates = [row.metrics[0].request_rate for row in stages]
    assert rates == [pytest.approx(rate, rel=0.03) for rate in (2, 8)]
    tokens = [row.metrics[0].output_rate for row in stages]
    assert tokens == [pytest.approx(6 * rate, rel=0.03) for rate in (2, 8)]


TURNS = "requests: 40\ninput: 1000\noutput: 200\narrival: {poisson: 2}\n"


def test_a_trace_with_added_inputs_has_the_new_tokens_of_each_turn() -> None:
    workload = turns(cached=True)
    rows = [json.loads(line) for line in as_trace(sample(workload, 0), ADDED_INPUTS).splitlines()]
    assert {row["input_length"] for row in rows} == {1000}
    assert {len(row["hash_ids"]) for row in rows} == {16}
    ids = [block for row in rows for block in row["hash_ids"]]
    assert len(ids) == len(set(ids))


def turns(*, cached: bool) -> Workload:
    text = f"{TURNS}conversation: {{turns: 4, think: 1, cached_output: {str(cached).lower()}}}\n"
    return loaded(text).workload


@pytest.mark.needs("sim")
@pytest.mark.parametrize(("name", "more"), [(GRAPH, 200), ("gpt-oss-120b-b200-disagg", 0)])
def test_a_worker_that_generated_an_output_has_it_for_the_next_turn(name: str, more: int) -> None:
    """Prefill workers do not have the outputs of decode workers."""
    hits = []
    with Replays(NO_CACHE) as replays:
        for cached in (False, True):
            workload = loaded(TURNS).with_workload(turns(cached=cached))
            study = Study(workload=workload, replays=replays, seeds=1)
            (row,) = study.rows([graph(name, "router.mode=kv")], None)
            columns = row.results[0]["requests"]
            assert sorted(set(columns["input_length"])) == [1000, 2200, 3400, 4600]
            hits.append(max(columns["reused_input_tokens"]))
    assert hits[1] - hits[0] == pytest.approx(more, abs=64)
