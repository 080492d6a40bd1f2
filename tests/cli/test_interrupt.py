"""Ctrl-C says so in one line, with code 130; and a dumb terminal gets no control sequences."""

from __future__ import annotations

import io

import pytest

from penstock.cli import main as cli
from penstock.cli import top
from tests.support.command_line import penstock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("verb", ["check", "plan", "simulate", "up", "top", "bench"])
@pytest.mark.parametrize(
    ("ending", "text"),
    [(KeyboardInterrupt(), ""), (KeyboardInterrupt("nothing was written"), "; nothing was written"),
     (cli.INTERRUPTED, "")],
)  # fmt: skip
def test_an_interrupt_is_one_line_and_code_130(
    verb: str, ending: BaseException | int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_command: str, _arguments: object) -> int:
        if isinstance(ending, int):
            return ending
        raise ending

    monkeypatch.setattr(cli, "_run", run)
    done = penstock(verb, "x")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"penstock {verb}: interrupted{text}\n"


@pytest.mark.parametrize(("term", "is_once"), [("dumb", True), ("xterm", False)])
def test_top_in_a_dumb_terminal_prints_one_snapshot(
    term: str, is_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []

    async def screen(_graph: object) -> int:
        return 0

    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr(top, "source_of", lambda *_: None)
    monkeypatch.setattr(top, "_screen", screen)
    monkeypatch.setattr("penstock.live.text.print_once", lambda *_, as_json: printed.append(""))
    top.run(cli.command_parser("top").parse(["g.yaml"]))
    assert bool(printed) is is_once
