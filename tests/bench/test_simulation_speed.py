"""`penstock bench --start --speed`: requests and figures of a slower simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.bench.records import FailedRequest, read_records
from penstock.bench.trace_file import at_speed
from penstock.cli.main import main
from tests.bench.hand_written import record, request, write

FIRST, SECOND, LATER = ("r0", 0), ("r1", 0), ("c0", 1)
GRAPH = "dynamo_graphs/quickstart-simulated.yaml"


def test_times_of_the_requests_are_stretched_and_those_of_the_records_shrink(
    tmp_path: Path,
) -> None:
    requests = at_speed({FIRST: request(0.0), SECOND: request(50.0)}, 0.5)
    assert requests[SECOND].at_ms == 100.0
    lines = [record(FIRST, 0.0), record(SECOND, 102.0, ttft_ms=30.0)]
    file = write(tmp_path / "records.jsonl", lines)
    wall = read_records(file, requests, is_scheduled=True)
    simulated = wall.simulated(0.5)
    for key, each in simulated.served.items():
        assert each.ttft_ms == wall.served[key].ttft_ms / 2
        assert each.e2e_ms == wall.served[key].e2e_ms / 2
        assert each.itl_ms == pytest.approx((wall.served[key].itl_ms or 0) / 2)
        assert each.tokens == wall.served[key].tokens
    assert simulated.served[SECOND].arrived_ms == pytest.approx(51.0, abs=0.001)
    assert simulated.late_ms == pytest.approx((0.0, 1.0), abs=0.001)
    assert simulated.chunk_gaps_ms == (5.0,) * 20


def test_the_time_between_turns_is_stretched_too() -> None:
    later = request(None, think_ms=300.0)
    assert at_speed({LATER: later}, 0.25)[LATER].think_ms == 1200.0
    assert at_speed({LATER: later}, 0.25)[LATER].at_ms is None


def test_a_failed_request_is_at_its_simulated_time(tmp_path: Path) -> None:
    lines = [record(FIRST, 0.0), record(SECOND, 100.0, tokens=3)]
    file = write(tmp_path / "records.jsonl", lines)
    requests = {FIRST: request(0.0), SECOND: request(100.0)}
    (failed,) = read_records(file, requests, is_scheduled=True).simulated(0.1).failed
    assert isinstance(failed, FailedRequest)
    assert failed.sent_ms == pytest.approx(10.0, abs=0.001)


@pytest.mark.needs("aiperf")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--speed", "0.5"], "--speed needs --start"),
        (["--start", "--speed", "0.5"], "--speed needs predicted timing. Fix: Add --timing model."),
        (["--start", "--acceptance", "chat"], "--acceptance needs predicted timing"),
        ([GRAPH, "--start", "--timing", "model", "--speed", "0.5"], "--speed needs one target"),
    ],
)
def test_a_speed_that_does_not_fit_is_an_error(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", GRAPH, *arguments, "--workload", "short-chat"]) == 2
    assert words in capsys.readouterr().err
