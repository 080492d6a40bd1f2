"""Every command line in the README and docs/ can be parsed, and every graph passes the check."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.main import COMMANDS, SUBCOMMANDS, command_parser, main, selected_command
from tests.support.documents import PAGES, blocks

ENGINES = Path(__file__).parents[2] / "components" / "src" / "penstock" / "engines"
GRAPH = re.compile(r"^model:.*^engine:", re.DOTALL | re.MULTILINE)
GRAPHS = [b.text for b in blocks() if b.language == "yaml" and GRAPH.search(b.text)]
START = re.compile(
    r"(?:^|; |&& |\| )(?:\w+=\S+ )*(?:uv run )?penstock ((?:'[^']*'|[^;#|>'])+)", re.MULTILINE
)
IN_BLOCKS = [
    line.strip()
    for block in blocks()
    if block.language == "bash"
    for command in block.commands()
    for line in START.findall(command)
]
IN_TEXT = [
    line
    for page, text in PAGES.items()
    if not page.startswith("docs/decisions")
    for line in re.findall(r"(?<!`)`(?:uv run )?penstock ([a-z][^`\n]+?)(?: \| [^`]+)?`", text)
]
# What the documents write for a value, and a value.
VALUES = {
    "--ttft …": "--ttft 1s",
    "--itl …": "--itl 9ms",
    "GPU ": "b200 ",
    "URL": "http://h:1",
    "=N": "=2",
    "PORT": "8000",
    " N": " 2",
    "PSnnn": "PS407",
}


def _arguments(line: str) -> list[str]:
    """The line with a value for each placeholder, and the first of alternatives."""
    for placeholder, value in VALUES.items():
        line = f"{line} ".replace(placeholder, value)
    line = re.sub(r"\|[\w…]+", "", line)
    return shlex.split(line.replace("…", "").replace("[REVISION]", "1").translate(_BRACKETS))


_BRACKETS = str.maketrans("", "", "[]")


@pytest.mark.parametrize("text", GRAPHS)
def test_a_graph_in_the_documents_passes_the_strict_check(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text(text)
    # PS179: the GGUF files that the documents name are not on this machine.
    assert main(["check", "--strict", "--ignore", "PS179", str(graph)]) == 0, (
        capsys.readouterr().out
    )


def test_the_documents_have_graphs_and_commands() -> None:
    assert len(GRAPHS) >= 3
    assert len(IN_BLOCKS) > 50
    assert len(set(IN_TEXT)) > 30


def test_every_command_is_used_or_named_in_the_documents() -> None:
    named = {line.split()[0] for line in [*IN_BLOCKS, *IN_TEXT]}
    assert set(COMMANDS) <= named
    assert named - set(COMMANDS) <= {"help", "--help", "COMMAND"}


@pytest.mark.parametrize("line", sorted({*IN_BLOCKS, *IN_TEXT}))
def test_a_command_line_in_the_documents_is_valid(line: str) -> None:
    verb, *arguments = _arguments(line)
    verb, arguments = selected_command(verb, arguments)
    if "--help" in (verb, *arguments):
        return
    parser = command_parser(verb)  # KeyError: no such command
    if arguments:
        parser.parse(arguments)
    assert parser.format_help()


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        yield from ((option, action) for option in action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for nested in action.choices.values():
                yield from _options(nested)


OPTIONS = [pair for verb in COMMANDS | SUBCOMMANDS for pair in _options(command_parser(verb))]


def _code(text: str) -> list[str]:
    """The code in the lines of a page, without its blocks."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", prose)


def test_an_option_that_the_documents_name_exists() -> None:
    """It is one of penstock, of an engine or Dynamo, of Helm, or of a program that is named."""
    tables = "".join(
        p.read_text("utf-8") for p in ENGINES.rglob("*") if p.suffix in (".py", ".json")
    )
    known = {option for option, _ in OPTIONS} | set(re.findall(r"--[a-z][a-z0-9-]+", tables))
    known |= {"--force-conflicts", "--wait"}
    unknown = [
        (page, option)
        for page, text in PAGES.items()
        for code in _code(text)
        if not re.match(r"hf |kubectl |python |uv ", code)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", code)
        if option not in known
    ]
    assert unknown == []


def test_a_default_that_the_documents_state_is_that_of_the_option() -> None:
    stated = [
        match
        for text in PAGES.values()
        for match in re.findall(r"`(--[a-z-]+)[^`]*`[^\n]*?\(default: `?(\w+)", text)
    ]
    assert ("--max-level", "warning") in stated
    for name, value in stated:
        assert value in {str(action.default) for option, action in OPTIONS if option == name}
