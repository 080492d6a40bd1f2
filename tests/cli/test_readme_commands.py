"""Every graph in the README passes `check --strict`, and every command line in it can be parsed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from penstock.cli.main import COMMANDS, command_parser, main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FENCED = README.split("```")[1::2]
GRAPHS = [text.removeprefix("yaml") for text in FENCED if text.startswith("yaml")]
BLOCKS = "".join(text for text in FENCED if text.startswith("\n")).replace("\\\n", " ")
IN_BLOCKS = re.findall(r"(?:^|; |&& )(?:uv run )?penstock ([^\n;#]+)", BLOCKS, re.MULTILINE)
IN_TEXT = re.findall(r"(?<!`)`(?:uv run )?penstock ([^`]+)`", README)
ROWS = re.findall(r"^\| `penstock ([a-z][\w-]*)[^`]*` \| (.*) \|$", README, re.MULTILINE)
# What the README writes for a value, and a value.
VALUES = {
    "--gpus N": "--gpus 8",
    "--ttft …": "--ttft 1s",
    "--itl …": "--itl 9ms",
    "GPU": "b200",
    "URL": "http://h:1",
}


def _arguments(line: str) -> list[str]:
    """The README's line with a value for each placeholder, and the first of alternatives."""
    for placeholder, value in VALUES.items():
        line = line.replace(placeholder, value)
    line = re.sub(r"\\\|[\w…]+", "", line)
    return shlex.split(line.replace("…", "").replace("[REVISION]", "1").translate(_BRACKETS))


_BRACKETS = str.maketrans("", "", "[]")


@pytest.mark.parametrize("text", GRAPHS)
def test_a_graph_in_the_readme_passes_the_strict_check(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text(text)
    assert main(["check", "--strict", str(graph)]) == 0, capsys.readouterr().out


def test_the_readme_has_graphs_and_commands() -> None:
    assert GRAPHS
    assert len(IN_BLOCKS) > 15
    assert {verb for verb, _ in ROWS} == set(COMMANDS)


@pytest.mark.parametrize("line", sorted({*IN_BLOCKS, *IN_TEXT}))
def test_a_command_line_in_the_readme_is_valid(line: str) -> None:
    verb, *arguments = _arguments(line)
    if "--help" in (verb, *arguments):
        return
    parser = command_parser(verb)  # KeyError: no such command
    if arguments:
        parser.parse(arguments)
    assert parser.format_help()


@pytest.mark.parametrize(("verb", "purpose"), ROWS)
def test_the_options_in_the_table_of_commands_exist(verb: str, purpose: str) -> None:
    options = command_parser(verb).options()
    for option in re.findall(r"`(--[\w-]+)", purpose):
        assert option in options, f"penstock {verb} has no {option}"
