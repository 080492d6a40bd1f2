"""Arguments and files with which `penstock bench --calibrate` does not start AIPerf."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main

pytestmark = pytest.mark.needs("aiperf")

USAGE, INPUT, GRAPH = 2, 3, 4
URL = "http://127.0.0.1:9"
GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
PREDICT = ("--predict", str(GRAPHS / "gpt-oss-120b-h100-latency.yaml"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and the message. No target is asked: nothing listens on its port."""
    code = main(["bench", URL, "--workload", "short-chat", *arguments])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--calibrate", "c.yaml"), "--calibrate needs --predict. Fix: Add --predict GRAPH"),
        (("--calibration", "c.yaml"), "--calibration needs --predict. Fix: Add --predict GRAPH"),
        (
            ("--calibrate", "c.yaml", "--calibration", "c.yaml", *PREDICT),
            "--calibrate computes factors, and --calibration reads them. Fix: Remove one",
        ),
        (
            ("--calibrate", "c.yaml", "--sweep", "1,2", *PREDICT),
            "--predict cannot be combined with --sweep",
        ),
        ((URL, "--calibrate", "c.yaml", *PREDICT), "needs one target"),
        (("--calibrate", "quick"), "sends its own requests, and --workload has no effect"),
        (("--calibrate", "quick:missing/c.yaml", *PREDICT), "--workload has no effect"),
        (("--calibrate", "missing/c.yaml", *PREDICT), "there is no folder missing"),
    ],
)
def test_arguments_that_do_not_fit(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, text = refused(capsys, *arguments)
    assert code == USAGE
    assert message in text


def test_another_kind_of_file_stays_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text("name: mine\n")
    code, text = refused(capsys, "--calibrate", str(file), *PREDICT)
    assert code == INPUT
    assert "already exists, and is not a calibration file. Fix: Name another file" in text
    assert file.read_text() == "name: mine\n"


def test_a_damaged_calibration_file_is_reported_before_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("penstock_calibration: 1\nentries: [{model: m}]\n")
    code, text = refused(capsys, "--calibrate", str(file), *PREDICT)
    assert code == GRAPH
    assert "entries[0].prefill_speed" in text


def test_a_graph_with_speculative_decoding(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    graph = str(GRAPHS / "gpt-oss-120b-h100-latency-eagle3.yaml")
    code, text = refused(capsys, "--calibrate", str(tmp_path / "c.yaml"), "--predict", graph)
    assert code == USAGE
    assert "has speculative decoding, whose acceptance is not predicted" in text
