"""The command line as a whole: options in any position, suggestions, help."""

from __future__ import annotations

import argparse
import itertools
import re

import pytest

from penstock.cli import main as cli
from penstock.cli.other_names import ELSEWHERE, OTHER
from tests.support.command_line import penstock

# The words of each command line; an option and its value stay together.
LINES: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("logs", (("g.yaml",), ("decode",), ("--lines", "5"), ("-f",))),
    ("logs", (("g.yaml",), ("decode.0",), ("-fn5",), ("--set=a=b",))),
    ("scale", (("g.yaml",), ("decode=2",), ("prefill=3",), ("--set", "a=b"), ("--yes",))),
    ("drill", (("g.yaml",), ("--count", "3"), ("--set", "a=b"), ("--json",))),
    ("diff", (("g.yaml",), ("--from", "old.yaml"), ("--json",))),
    ("explain", (("g.yaml",), ("decode",), ("--json",), ("--gpu", "h100"))),
    ("rollback", (("g.yaml",), ("3",), ("--timeout-s", "5"), ("--yes",))),
    ("check", (("a.yaml",), ("b.yaml",), ("-",), ("--strict",), ("--set", "a=b"))),
    ("simulate", (("a.yaml",), ("b.yaml",), ("--workload", "document"), ("--json",))),
    ("gateway", (("up",), ("g.yaml",), ("--port", "1"), ("--keys", "k.env"))),
    ("tools env", (("install",), ("sim",))),
)


def orders(words: tuple[tuple[str, ...], ...]) -> list[list[str]]:
    """Every order of the words in which the arguments keep theirs."""
    fixed = [word for word in words if not word[0].startswith("-") or word == ("-",)]
    return [
        list(itertools.chain(*order))
        for order in itertools.permutations(words)
        if [word for word in order if word in fixed] == fixed
    ]


@pytest.mark.parametrize(("command", "words"), LINES)
def test_options_stand_before_between_and_after_arguments(
    command: str, words: tuple[tuple[str, ...], ...]
) -> None:
    results = [cli.command_parser(command).parse(order) for order in orders(words)]
    assert all(result == results[0] for result in results)
    assert {part for word in words for part in word if not word[0].startswith("-")} <= {
        str(part)
        for value in vars(results[0]).values()
        for part in (value if isinstance(value, list) else [value])
    }


def test_what_follows_two_dashes_is_an_argument() -> None:
    parse = cli.command_parser("logs").parse
    assert parse(["-n", "2", "--", "-odd.yaml", "-f"]) == parse(["./-odd.yaml", "-n2", "--", "-f"])
    assert not parse(["--", "g.yaml", "-f"]).follow


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_option_takes_one_value_or_none(command: str) -> None:
    for action in cli.command_parser(command).actions():
        assert not action.option_strings or action.nargs in (None, 0)
        assert action.nargs != argparse.REMAINDER


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("frobnicate", "unknown command 'frobnicate'"),
        (
            "--verson",
            "unknown option --verson; options come after the command. Did you mean `--ver",
        ),
        ("statsu g.yaml", "unknown command 'statsu'. Did you mean `status`?"),
        ("logs g.yaml --folow", "unknown option --folow. Did you mean `--follow`?"),
        ("bench URL --part 10k", "Fix: Remove --part, or use `penstock bench public`, which has "),
        ("bench URL", "Fix: Add --workload short-chat, or measure by a public method, which "),
        ("plan --router g.yaml --gpus 8", "Fix: Remove --gpus, or use `penstock plan`, which "),
        ("plan --modle=x", "unknown option --modle. Did you mean `--model`?"),
        ("logs g.yaml -x", "unknown option -x"),
        ("up g.yaml --engine moker", "Did you mean `mocker`?"),
        ("tools env instal sim", "Did you mean `install`?"),
        ("logs -n", "argument -n/--namespace: expected one argument"),
        ("logs --lines -f g.yaml", "argument --lines: expected one argument"),
        ("logs -f", "the following arguments are required: GRAPH"),
        ("down a.yaml b.yaml", "unexpected argument 'b.yaml'\nUsage: penstock down GRAPH "),
        ("down a b c", "unexpected arguments 'b', 'c'\nUsage: penstock down GRAPH [OPTIONS]. "),
        ("ls extra", "penstock ls: unexpected argument 'extra'\nUsage: penstock ls [OPTIONS]. "),
        ("tools schema -- -x", "unexpected argument '-x'\n"),
        ("tools env extra", "argument action: 'extra' is not one of install, list, rem"),
        ("scale", "GRAPH, POOL=N\nUsage: penstock scale GRAPH POOL=N... [OPTIONS]. "),
        (
            "scale decode=2",
            "got 'decode=2', but the graph comes first: `penstock scale graph.yaml ",
        ),
        ("simulate g.yaml", "--workload\nUsage: penstock simulate GRAPH... --workload NAME|FILE ["),
        (
            "bench public http://127.0.0.1:9",
            "Usage: penstock bench public URL|GRAPH... --method artificial-analysis|openrouter [",
        ),
        ("simulate g.yaml --ttft -5ms", "--ttft: '-5ms' is not a duration above 0 in ms, s or m"),
        ("simulate g.yaml --ttft 0ms", "--ttft: '0ms' is not a duration above 0 in ms, s or m"),
        ("simulate g.yaml --rate 1e12", "'1e12' is not a number above 0 and below 1,000,000,000"),
        ("simulate g.yaml --attain 95%", "'95%' is not a share above 0 and up to 1; write 95% as "),
        ("logs g.yaml --lines -5", "argument --lines: '-5' is not an integer from 0 to "),
        ("up g.yaml --port x", "argument --port: 'x' is not an integer from 0 to 65535"),
        ("up g.yaml --start-timeout-s nan", "'nan' is not a number above 0"),
        ("apply g.yaml --timeout-s -1", "argument --timeout-s: '-1' is not a number above 0"),
        ("drill g.yaml --seed x", "argument --seed: 'x' is not an integer from 0 to "),
        ("tools tiny-model m --seed x", "argument --seed: 'x' is not an integer from 0 to "),
        ("--json status", "unknown option --json; options come after the command"),
    ],
)
def test_a_wrong_command_line_names_what_was_probably_meant(line: str, error: str) -> None:
    done = penstock(*line.split())
    assert done.returncode == cli.USAGE
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 2  # the usage would hide the error
    assert "--help`" in done.stderr


@pytest.mark.parametrize(
    ("word", "command"),
    [
        *((word, "apply") for word in ("install", "deploy", "update")),
        *((word, "up") for word in ("start", "run", "serve", "launch")),
        *((word, "down") for word in ("stop", "kill")),
        *((word, "uninstall") for word in ("delete", "destroy", "remove", "rm")),
        *((word, "ls") for word in ("ps", "list")),
        *((word, "check") for word in ("validate", "lint")),
        *((word, "init") for word in ("new", "create")),
        *((word, "render") for word in ("template", "config")),
        *((word, "status") for word in ("get", "describe")),
    ],
)
def test_a_command_of_another_tool_names_the_command_for_the_same_purpose(
    word: str, command: str
) -> None:
    done = penstock(word, "g.yaml")
    assert done.returncode == cli.USAGE
    fix = f"Use `penstock {command}`: {cli.COMMANDS[command]}."
    assert done.stderr == (
        f"penstock: unknown command '{word}'. Fix: {fix}\nSee `penstock --help`.\n"
    )


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("version", "Run `penstock --version`."),
        ("-v", "Run `penstock --version`."),
        ("restart g.yaml", "Run `penstock down GRAPH`, then `penstock up GRAPH`."),
        ("login", "Select the cluster with --kubeconfig and --context; "),
        ("g.yaml", "Run `penstock up g.yaml`."),
        ("none.yml --json", "Run `penstock up none.yml --json`."),
        ("g.yaml check --strict", "Run `penstock check g.yaml --strict`."),
    ],
)
def test_a_word_without_such_a_command_and_a_file_name_what_to_do(line: str, fix: str) -> None:
    done = penstock(*line.split())
    assert done.returncode == cli.USAGE
    assert f". Fix: {fix}" in done.stderr


def test_every_suggested_command_exists() -> None:
    assert set(ELSEWHERE.values()) <= set(cli.COMMANDS)
    assert not (ELSEWHERE.keys() | OTHER.keys()) & cli.COMMANDS.keys()
    for fix in OTHER.values():
        for command in re.findall(r"`penstock (\w+)", fix):
            assert command in cli.COMMANDS


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_an_option_is_the_same_in_every_command(command: str) -> None:
    parser = cli.command_parser(command)
    names = {n: a.dest for a in parser.actions() for n in a.option_strings}
    assert names["-q"] == names["--quiet"] == "quiet"
    short = {"verbose": "-v", "namespace": "-n", "yes": "-y", "output": "-o", "help": "-h"}
    for option, letter in short.items():
        assert names.get(f"--{option}") == names.get(letter) or letter == "-n", command
    if "--namespace" in names:
        assert names["-n"] == "namespace"


@pytest.mark.parametrize("command", ["plan", "init", "simulate", "check"])
def test_a_gpu_is_named_by_either_option_and_in_any_case(command: str) -> None:
    words = {"plan": ["--model=m", "--gpus=1", "--workload=w"], "simulate": ["g", "--workload=w"]}
    parse = cli.command_parser(command).parse
    more = words.get(command, ["g.yaml"])
    assert parse([*more, "--gpu", "B200"]) == parse([*more, "--hardware", "B200"])


@pytest.mark.parametrize("line", ["", "--help", "-h", "help"])
def test_the_help_is_printed_without_a_command_too(line: str) -> None:
    done = penstock(*line.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == cli.help_text()
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_help_and_a_command_prints_the_help_of_the_command() -> None:
    assert penstock("help", "logs").stdout == penstock("logs", "--help").stdout
    assert "--follow" in penstock("help", "logs").stdout
