"""The arguments of `penstock up`, before a process starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.errors import MissingToolError, PortInUseError, SimulationError, UsageError
from penstock.local.ports import LOOPBACK, Ports, reserved
from tests.support.command_line import error_of
from tests.support.local_graphs import QUICKSTART, assert_nothing_left

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
DISAGG = str(GRAPHS / "gpt-oss-120b-b200-disagg.yaml")


@pytest.mark.parametrize("option", [("--speed", "0.5"), ("--gpu", "b200"), ("--acceptance", "0.8")])
def test_options_of_predicted_timing_need_it(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", DISAGG, "--engine", "mocker", *option]) == UsageError.exit_code
    message = f"{option[0]} needs predicted timing. Fix: Add --timing model."
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("speed", ["0", "-1", "fast"])
def test_a_speed_is_above_0(speed: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["up", DISAGG, "--timing", "model", "--speed", speed]
    with pytest.raises(SystemExit):
        main(argv)
    assert "is not a number above 0" in capsys.readouterr().err


def test_without_the_environment_one_line_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    argv = ["up", DISAGG, "--engine", "mocker", "--timing", "model"]
    message = error_of(argv, MissingToolError.exit_code).strip()
    assert "penstock tools env install sim" in message
    assert len(message.splitlines()) == 1


def test_an_outdated_environment_must_be_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "installed.txt").write_text("aisimulate==1\n")
    argv = ["up", DISAGG, "--engine", "mocker", "--timing", "model"]
    assert "is outdated" in error_of(argv, MissingToolError.exit_code)


@pytest.mark.needs("sim")
def test_a_graph_of_mockers_has_no_hardware_to_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    graph = tmp_path / "graph.yaml"
    graph.write_text((GRAPHS / "quickstart-simulated.yaml").read_text())
    argv = ["up", str(graph), "--engine", "mocker", "--timing", "model", "--port", "0"]
    assert "runs the mocker, whose step times were not measured" in error_of(
        argv, SimulationError.exit_code
    )


def test_a_port_of_a_graph_that_is_starting_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "none"))
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    port = Ports().free()
    argv = ["up", str(QUICKSTART), "--no-install", "--port", str(port)]
    with reserved(LOOPBACK, port):
        assert main(argv) == PortInUseError.exit_code
    assert f"cannot listen on {LOOPBACK}:{port}: Address already in use" in capsys.readouterr().err
    assert_nothing_left(tmp_path)
