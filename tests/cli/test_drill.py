"""`penstock drill`: the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main

GRAPH = str(Path(__file__).parents[2] / "dynamo_graphs" / "quickstart.yaml")


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["drill", GRAPH, *arguments]) == 2
    return capsys.readouterr().err


def test_an_unknown_fault_is_an_error_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "no such fault. Did you mean `kill`?" in failed(capsys, "--faults", "kil,term")
    assert "Known: kill, term" in failed(capsys, "--faults", "earthquake")


@pytest.mark.parametrize(
    "arguments", [["--count", "0"], ["--streams", "x"], ["--count", "1", "--minutes", "1"]]
)
def test_a_wrong_option_is_an_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["drill", GRAPH, *arguments])
    assert exit_.value.code == 2
    assert capsys.readouterr().err


def test_a_graph_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "none.yaml"]) == 3
    assert "none.yaml" in capsys.readouterr().err
