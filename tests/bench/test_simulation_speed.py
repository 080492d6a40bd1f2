"""`penstock bench --start --speed`: requests of a slower simulation, and its options."""

import pytest

from penstock.bench.trace_file import at_speed
from penstock.cli.main import main
from tests.bench.hand_written import request

GRAPH = "dynamo_graphs/quickstart-simulated.yaml"


def test_times_of_arrival_and_between_turns_are_stretched() -> None:
    requests = {("r0", 0): request(50.0), ("c0", 1): request(None, think_ms=300.0)}
    stretched = at_speed(requests, 0.25)
    assert stretched["r0", 0].at_ms == 200.0
    assert (stretched["c0", 1].at_ms, stretched["c0", 1].think_ms) == (None, 1200.0)


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
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", GRAPH, *arguments, "--workload", "short-chat"]) == 2
    assert words in capsys.readouterr().err
