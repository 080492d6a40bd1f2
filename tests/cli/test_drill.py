"""`penstock drill`: the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import drill
from penstock.cli.main import command_parser, main
from tests.support.command_line import error_of

GRAPH = str(Path(__file__).parents[2] / "dynamo_graphs" / "quickstart-simulated.yaml")


def failed(*arguments: str) -> str:
    return error_of(["drill", GRAPH, *arguments], 2)


def test_an_unknown_fault_is_an_error_with_the_known_ones() -> None:
    assert "there is no fault `kil`. Fix: Did you mean `kill`?" in failed("--faults", "kil,term")
    assert "Fix: Use some of kill, term" in failed("--faults", "earthquake")


@pytest.mark.parametrize(
    "arguments", [["--count", "0"], ["--concurrency", "x"], ["--count", "1", "--minutes", "1"]]
)
def test_a_wrong_option_is_an_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["drill", GRAPH, *arguments])
    assert exit_.value.code == 2
    assert capsys.readouterr().err


def test_a_url_needs_a_file_of_faults_and_consent(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/v1"
    assert "--faults: a URL needs a YAML file" in error_of(["drill", url], 2)
    assert main(["drill", url, "--engine", "mocker"]) == 2
    faults = tmp_path / "faults.yaml"
    faults.write_text("faults:\n  - name: pod\n    command: [touch, ran]\n")
    assert "--yes" in error_of(["drill", url, "--faults", str(faults)], 2)
    assert "cannot list the models" in error_of(
        ["drill", url, "--faults", str(faults), "--yes"], 18
    )
    faults.write_text("faults:\n  - name: pod\n    comand: [touch, ran]\n")
    assert "Did you mean `command`?" in error_of(
        ["drill", url, "--faults", str(faults), "--yes"], 4
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [GRAPH],
        [GRAPH, "--count", "3", "--faults", "kill:decode,scale", "--exact", "--stall-s", "9"],
        [GRAPH, "--minutes", "2", "--concurrency", "7", "--set", "a=1", "--set", "b={c}", "--json"],
        [GRAPH, "--engine", "mocker", "--report", "a b.html"],
        ["https://host/v1", "--model", "m", "--faults", "f.yaml"],
    ],
)
def test_the_drill_starts_itself_again_with_the_same_arguments(arguments: list[str]) -> None:
    parser = command_parser("drill")
    parsed = parser.parse_args([*arguments, "--seed", "5"])
    verb, *again = drill._again(parsed)
    assert verb == "drill"
    assert parser.parse_args(again) == parsed


def test_a_model_is_no_option_of_a_graph() -> None:
    assert "--model" in failed("--model", "m")


def test_a_graph_that_does_not_exist_is_an_error() -> None:
    assert "none.yaml" in error_of(["drill", "none.yaml"], 3)


def test_a_program_that_the_graph_does_not_have_is_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("the graph was started")

    monkeypatch.setattr("penstock.drill.run.drill_graph", start)
    message = "the graph has no program `decod`. Fix: Did you mean `decode`?"
    assert message in failed("--faults", "kill:decod")
    assert "no program `nope`" in failed("--faults", "kill:nope")
