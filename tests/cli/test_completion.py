"""The completion scripts, in the shells that are installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock.checks.registry import RULES
from penstock.cli.main import COMMANDS
from tests.support.command_line import ROOT, penstock

# Calls the function that bash calls on TAB, with the words of the command line.
DRIVER = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p penstock | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" penstock "${@: -1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, folder: Path) -> Path:
    done = penstock("tools", "completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    path = folder / f"penstock.{shell}"
    path.write_text(done.stdout)
    return path


@pytest.mark.program
@pytest.mark.parametrize(
    "shell",
    [
        "bash",
        pytest.param("zsh", marks=pytest.mark.needs("zsh")),
        pytest.param("fish", marks=pytest.mark.needs("fish")),
    ],
)
def test_the_shell_parses_its_script(shell: str, tmp_path: Path) -> None:
    path = script(shell, tmp_path)
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.program
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("penstock stat", {"status"}),
        ("penstock ", {*COMMANDS, "-h", "--help", "--version"}),
        ("penstock logs --fol", {"--follow"}),
        ("penstock logs g.yaml decode --fol", {"--follow"}),
        ("penstock up dynamo_graphs/quickstart.y", {"dynamo_graphs/quickstart.yaml"}),
        ("penstock simulate --report compo", {"components"}),
        ("penstock tools env ins", {"install"}),
        ("penstock up --engine moc", {"mocker"}),
        ("penstock tools completion f", {"fish"}),
        ("penstock tools env install llama", {"llamacpp"}),
        ("penstock check --gpu h1", {"h100"}),
        ("penstock plan --gpu gb", {"gb200", "gb300"}),
        ("penstock check --select PS80", {r.id for r in RULES if r.id.startswith("PS80")}),
        ("penstock check --ignore PS803", {"PS803"}),
        ("penstock scale dynamo_graphs/quickstart.y", {"dynamo_graphs/quickstart.yaml"}),
        ("penstock scale g.yaml de", {"decode="}),
        ("penstock scale g.yaml decode=2 pre", {"prefill="}),
        ("penstock logs g.yaml de", {"decode"}),
        ("penstock explain g.yaml pre", {"prefill"}),
        ("penstock plan --model gpt-oss-1", {"gpt-oss-120b"}),
        ("penstock ls -q", {"-q"}),
        ("penstock bench sha", {"shadow"}),
        ("penstock bench pub", {"public"}),
        ("penstock tools ti", {"tiny-model"}),
        ("penstock plan --rou", {"--router"}),
        ("penstock bench dynamo_graphs/quickstart.y", {"dynamo_graphs/quickstart.yaml"}),
        ("penstock bench shadow --lis", {"--listen"}),
        (
            "penstock bench shadow A B --file dynamo_graphs/quickstart.y",
            {"dynamo_graphs/quickstart.yaml"},
        ),
        ("penstock bench shadow A B --request-time", {"--request-timeout"}),
        ("penstock init --example smol", {"smollm2-cpu-disagg"}),
    ],
)
def test_bash_completes_commands_options_files_and_choices(
    line: str, words: set[str], tmp_path: Path
) -> None:
    path = script("bash", tmp_path)
    command = ["bash", "-c", DRIVER, "bash", str(path), *line.split(" ")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == ""
    assert set(done.stdout.split()) <= words
    assert set(done.stdout.split()) >= words - {"-h", "--help", "--version"}


@pytest.mark.program
def test_bash_completes_files_in_folders_with_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my graphs"
    folder.mkdir()
    for name in ("one.yaml", "two.yaml"):
        (folder / name).touch()
    command = ["bash", "-c", DRIVER, "bash", str(script("bash", tmp_path))]
    for words in (["check", "my graphs/o"], ["render", "g.yaml", "-o", "my graphs/o"]):
        done = subprocess.run(
            [*command, "penstock", *words], capture_output=True, text=True, cwd=tmp_path
        )
        assert (done.stdout, done.stderr) == ("my graphs/one.yaml\n", "")


@pytest.mark.needs("fish")
@pytest.mark.parametrize(
    ("line", "word"), [("penstock sta", "status"), ("penstock logs --fol", "--follow")]
)
def test_fish_completes_commands_and_options(line: str, word: str, tmp_path: Path) -> None:
    path = script("fish", tmp_path)
    command = ["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert [row.split("\t")[0] for row in done.stdout.splitlines()] == [word]
