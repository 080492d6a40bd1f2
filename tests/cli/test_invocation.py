"""Messages and next steps name commands as the user ran penstock."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.text import commands
from penstock.text.commands import as_invoked, command, invocation, set_invocation
from penstock.text.terminal import fitted
from tests.support.command_line import ROOT, penstock


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = invocation()
    yield
    commands._Invocation.words = before


URL = "https://ci:TOKEN@host/simple"


@pytest.mark.parametrize(
    ("parent", "command_line", "words"),
    [
        (["uv", "run", "penstock", "up", "g"], ["/v/bin/penstock", "up", "g"], "uv run penstock"),
        (["/b/uvx", "penstock", "ls"], ["/cache/bin/penstock", "ls"], "uvx penstock"),
        (["uv", "run", "-p", "a b", "penstock"], ["penstock"], "uv run -p 'a b' penstock"),
        (["uv", "run", "pytest"], ["/v/bin/main.py", "up", "g"], "penstock"),
        (["bash"], ["/none/bin/penstock", "ls"], "/none/bin/penstock"),
        (["bash"], ["/v/penstock/cli/main.py", "ls"], "penstock"),
    ],
)  # fmt: skip
def test_the_words_are_those_of_the_users_command_line(
    parent: list[str], command_line: list[str], words: str
) -> None:
    set_invocation(parent, command_line)
    assert invocation() == words
    assert as_invoked(f"Run {command('up', 'g.yaml')}.") == f"Run `{words} up g.yaml`."
    assert fitted("See `penstock ls`.") == [f"See `{words} ls`."]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"uv run --default-index {URL} penstock", "uv run penstock"),
        (f"uv run --default-index={URL} penstock", "uv run penstock"),
        (f"uv --default-index {URL} run penstock", "uv run penstock"),
        (f"uv run --project . --index {URL} penstock", "uv run penstock"),
        ("uv run --env-file TOKEN penstock", "uv run penstock"),
        ("uv run TOKEN=1 penstock", "uv run penstock"),
        (f"uv run --with {URL} penstock", "uv run penstock"),
        (f"uv run --with={URL} penstock", "uv run penstock"),
        ("uv run --with pkg@ci:TOKEN@host penstock", "uv run penstock"),
        (f"uv run {URL}", "uv run penstock"),
        ("uv run env TOKEN=1 penstock", "uv run penstock"),
        ("uv run --project penstock", "uv run penstock"),
        ("uv run python -m penstock", "uv run penstock"),
        (f"uvx --from git+{URL} penstock", "uvx penstock"),
        (f"uvx --index {URL} penstock", "uvx penstock"),
        (f"uvx git+{URL}", "uvx penstock"),
        ("uv run --no-sync --project=. --extra x penstock", None),
        ("uv run --directory d --group g --with w --python 3.12 penstock", None),
        ("uvx penstock@0.2.0", None),
    ],
)
def test_options_of_uv_that_may_hold_a_secret_are_left_out(line: str, words: str | None) -> None:
    set_invocation([*line.split(), "ls"], ["/v/bin/penstock", "ls"])
    assert invocation() == (words or line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("uv tool uvx --from . penstock", "uvx --from . penstock"),
        ("/b/uv tool run penstock@latest", "uvx penstock@latest"),
        (f"uv tool uvx --index {URL} penstock", "uvx penstock"),
        (f"uv tool run git+{URL}", "uvx penstock"),
    ],
)
def test_uvx_is_named_although_it_runs_uv_tool(line: str, words: str) -> None:
    set_invocation([*line.split(), "ls"], ["/cache/bin/penstock", "ls"])
    assert invocation() == words


def test_a_penstock_on_the_path_is_not_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "penstock"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    set_invocation(["bash"], [str(program), "ls"])
    assert invocation() == "penstock"


def test_next_steps_start_with_the_same_words(tmp_path: Path) -> None:
    set_invocation(["uv", "run", "penstock"], ["penstock"])
    done = penstock("init", "g.yaml", "--example", "quickstart", folder=tmp_path)
    assert "next steps:\n  uv run penstock check g.yaml\n  uv run penstock up" in done.stdout


@pytest.mark.program
def test_under_uv_run_errors_name_uv_run(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("model: {}\n")
    words = ["uv", "run", "--no-sync", "--project", str(ROOT), "penstock"]
    done = subprocess.run(
        [*words, "logs", "g.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert f"Run `{' '.join(words)} up g.yaml`" in done.stderr.replace(f"{tmp_path}/", "")
