"""`penstock bench --chat`: text in place of token IDs, and the time until the reasoning ends."""

from __future__ import annotations

import pytest

from tests.bench.bench_runs import FIRST_INPUT, Finished, nearest_rank, run_bench, write_workload
from tests.support.completions_server import Response

pytestmark = [pytest.mark.needs("aiperf"), pytest.mark.nightly]

REQUESTS, TOKENS, EVERY_MS = 40, 20, 100.0
REASONING, ONLY_EVERY = 12, 5
TOLERANCE_MS = 30.0  # of a busy machine; less than the time of the reasoning


def script(input_tokens: int) -> Response:
    """All responses begin with reasoning; every fifth has nothing else."""
    is_only = (input_tokens - FIRST_INPUT) % ONLY_EVERY == 0
    return Response(first_s=0.1, gap_s=0.01, reasoning_tokens=TOKENS if is_only else REASONING)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("chat")
    return run_bench(folder, script, write_workload(folder, REQUESTS, TOKENS, EVERY_MS), "--chat")


def test_every_request_is_served_with_its_input(run: Finished) -> None:
    assert run.document["failures"] == {"sent": REQUESTS, "reasons": {}}
    assert run.document["input_ratio"] == 1.0
    assert sorted(run.sent) == [FIRST_INPUT + number for number in range(REQUESTS)]


def test_responses_that_are_reasoning_only_are_counted(run: Finished) -> None:
    counted = [run.truth(request) for request in run.counted]
    assert run.document["reasoning"] == len(counted)
    assert run.document["reasoning_only"] == sum(
        request.first_output_ms is None for request in counted
    )


def test_the_first_output_is_the_token_after_the_reasoning(run: Finished) -> None:
    true = [
        request.first_output_ms
        for request in map(run.truth, run.counted)
        if request.first_output_ms
    ]
    for percent in (50, 90):
        measured = run.document["first_output_ms"][f"p{percent}"]
        assert measured == pytest.approx(nearest_rank(true, percent), abs=TOLERANCE_MS)
    ttft_ms = [run.truth(request).first_ms for request in run.counted]
    measured = run.document["ttft_ms"]["p50"]
    assert measured == pytest.approx(nearest_rank(ttft_ms, 50), abs=TOLERANCE_MS)
