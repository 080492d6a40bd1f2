"""Latencies that `penstock bench` measures, against those of a server with known delays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import pytest

from tests.bench.bench_runs import (
    FIRST_INPUT,
    Finished,
    e2e_ms,
    itl_ms,
    nearest_rank,
    run_bench,
    ttft_ms,
    write_workload,
)
from tests.support.completions_server import Response, Sent

pytestmark = pytest.mark.needs("aiperf")

REQUESTS, TOKENS, EVERY_MS = 120, 40, 70.0
CACHED = 64
PERCENTS = (50, 90, 99)
COMPARED = (50, 90)  # with the server; one request that a busy client reads late decides a p99
# Mean of a request by AIPerf's records, and by the server.
LATENCIES: Mapping[str, tuple[Callable[[Any], float], Callable[[Sent], float]]] = {
    "ttft_ms": (ttft_ms, lambda sent: sent.first_ms),
    "itl_ms": (itl_ms, lambda sent: (sent.last_ms - sent.first_ms) / (sent.tokens - 1)),
    "e2e_ms": (e2e_ms, lambda sent: sent.last_ms),
}


def script(input_tokens: int) -> Response:
    """TTFT has three modes; every fifth stream stalls for as long as 19 gaps and a half."""
    number = input_tokens - FIRST_INPUT
    first_s = 1.0 if number % 25 == 7 else 0.5 if number % 4 == 0 else 0.2
    stalls_s = {20: 0.195} if number % 5 == 0 else {}
    return Response(first_s=first_s, gap_s=0.01, stalls_s=stalls_s, cached_tokens=CACHED)


def allowed(true_ms: float) -> float:
    """Of a busy client, which reads late; the scripted delays differ by more."""
    return 10.0 + 0.15 * true_ms


def values_of(run: Finished, measured: Callable[[Any], float]) -> list[float]:
    """Of the counted requests. A response whose chunks a busy client reads all at once has no ITL,
    which is 0 by AIPerf's records."""
    values = [measured(request) for request in run.counted]
    in_one_piece = values.count(0) if measured is itl_ms else 0
    assert in_one_piece < len(values) / 10
    return sorted(values)[in_one_piece:]


def deviations(run: Finished) -> dict[tuple[str, int], tuple[float, float]]:
    """Of each percentile: (measured, true) ms."""
    by_latency = {}
    for name, (measured, true) in LATENCIES.items():
        for percent in COMPARED:
            expected = nearest_rank([true(run.truth(request)) for request in run.counted], percent)
            by_latency[name, percent] = (
                nearest_rank(values_of(run, measured), percent),
                expected,
            )
    return by_latency


def too_large(run: Finished) -> dict[tuple[str, int], tuple[float, float]]:
    return {
        key: (measured, true)
        for key, (measured, true) in deviations(run).items()
        if abs(measured - true) > allowed(true)
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("bench")
    workload = write_workload(folder, REQUESTS, TOKENS, EVERY_MS)
    return run_bench(folder, script, workload, "--ttft", "300ms")


def test_percentiles_are_those_that_the_server_sent(run: Finished) -> None:
    assert too_large(run) == {}


def test_percentiles_are_those_of_aiperfs_records(run: Finished) -> None:
    assert run.document["counted"] == len(run.counted)
    for name, (measured, _) in LATENCIES.items():
        values = values_of(run, measured)
        expected = {f"p{percent}": nearest_rank(values, percent) for percent in PERCENTS}
        assert run.document[name] == pytest.approx(expected, abs=1e-6)
    gaps = [
        gap for request in run.served for gap in request["metrics"]["inter_chunk_latency"]["value"]
    ]
    expected = {f"p{percent}": nearest_rank(gaps, percent) for percent in PERCENTS}
    assert run.document["chunk_gap_ms"] == pytest.approx(expected, abs=1e-6)


def test_a_stall_appears_in_the_gaps_between_chunks(run: Finished) -> None:
    stalled = [request for request in run.served if script(_input(request)).stalls_s]
    assert len(stalled) == REQUESTS / 5
    true_ms = median(run.truth(each).longest_gap_ms for each in stalled)
    longest_ms = median(max(each["metrics"]["inter_chunk_latency"]["value"]) for each in stalled)
    assert longest_ms == pytest.approx(true_ms, abs=allowed(true_ms))
    assert true_ms >= 195.0


def test_all_requests_are_counted_as_sent_and_served(run: Finished) -> None:
    document = run.document
    assert document["failures"] == {"sent": REQUESTS, "reasons": {}}
    assert document["unsent"] == 0
    assert len(run.sent) == REQUESTS
    within = [ttft_ms(request) <= 300.0 for request in run.counted]
    assert document["goodput"] == pytest.approx(sum(within) / len(within))
    inputs = sum(_input(request) for request in run.counted)
    assert document["prefix_hit_rate"] == pytest.approx(CACHED * len(run.counted) / inputs)
    assert document["interrupted"] is None


def _input(record: Mapping[str, Any]) -> int:
    return int(record["metrics"]["usage_prompt_tokens"]["value"])
