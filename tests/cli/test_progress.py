"""Elapsed time and time left on stderr: on a terminal, with --verbose, with --quiet."""

from __future__ import annotations

import argparse
import io

import pytest

from penstock.cli import main as cli
from penstock.cli.progress import Progress, add_progress
from tests.support.command_line import penstock


class Screen(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class Run:
    """A command whose progress is called at given seconds."""

    def __init__(
        self, *options: str, is_terminal: bool, line_interval_s: float | None = None
    ) -> None:
        parser = argparse.ArgumentParser()
        add_progress(parser)
        self.now = 0.0
        self.screen = Screen(is_terminal=is_terminal)
        args = parser.parse_args(options)
        self.progress = Progress(
            args, "planning", self.screen, lambda: self.now, line_interval_s=line_interval_s
        )

    def at(self, seconds: float, text: str = "", done: int = 0, total: int = 0) -> str:
        """What is printed at that time."""
        before, self.now = len(self.screen.getvalue()), seconds
        if text:
            self.progress(text, done, total)
        else:
            self.progress.tick()
        return self.screen.getvalue()[before:]


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_that_cannot_move_the_cursor_shows_no_control_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert Run(is_terminal=True).at(60.0) == ""
    assert Run("-v", is_terminal=True).at(60.0) == "planning (1 min)\n"


def test_a_terminal_shows_one_line_from_two_seconds_on() -> None:
    run = Run(is_terminal=True)
    assert run.at(1.9) == ""
    assert run.at(2.0) == "\r\x1b[Kplanning (2 s)"
    assert run.at(65.0, "10 replays") == "\r\x1b[K10 replays (1 min)"
    run.progress.hide()
    assert run.screen.getvalue().endswith("(1 min)\r\x1b[K")


def test_the_time_left_follows_from_the_steps_done() -> None:
    run = Run(is_terminal=True)
    assert run.at(30.0, "5 of 20", 5, 20).endswith("5 of 20 (30 s, about 1 min left)")
    assert run.at(40.0, "20 of 20", 20, 20).endswith("20 of 20 (40 s)")


def test_the_time_left_is_computed_without_the_preparation() -> None:
    run = Run(is_terminal=True)
    assert run.at(100.0, "preparing").endswith("preparing (1 min)")
    run.at(120.0, "starting", 0, 10)
    assert run.at(130.0, "2 of 10", 2, 10).endswith("2 of 10 (2 min, about 40 s left)")


def test_a_command_that_may_take_minutes_prints_lines_unless_quiet() -> None:
    long = Run(is_terminal=False, line_interval_s=15.0)
    quiet = Run("-q", is_terminal=False, line_interval_s=15.0)
    for seconds, is_due in ((14.0, False), (15.0, True), (29.0, False), (31.0, True)):
        expected = f"replaying ({seconds:.0f} s)\n" if is_due else ""
        assert long.at(seconds, "replaying") == expected
        assert quiet.at(seconds, "replaying") == ""


def test_a_long_text_is_cut_so_that_the_line_can_be_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = Run(is_terminal=True).at(9.0, "x" * 200)
    assert len(line.removeprefix("\r\x1b[K")) < 80
    assert line.endswith("x (9 s)")


def test_elsewhere_there_is_nothing_without_verbose() -> None:
    silent, verbose = Run(is_terminal=False), Run("--verbose", is_terminal=False)
    for seconds in (1.0, 5.0, 11.0, 12.0, 22.0):
        assert silent.at(seconds, "replaying") == ""
        expected = f"replaying ({seconds:.0f} s)\n" if seconds in (11.0, 22.0) else ""
        assert verbose.at(seconds, "replaying") == expected
    verbose.progress.hide()
    assert "\r" not in verbose.screen.getvalue()


def test_quiet_prints_nothing_on_a_terminal() -> None:
    run = Run("-q", is_terminal=True)
    with run.progress.running():
        assert run.at(100.0, "replaying") == ""


def test_the_line_is_removed_when_the_work_ends_or_fails() -> None:
    run = Run(is_terminal=True)

    def fail() -> None:
        with run.progress.running():
            run.at(5.0)
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        fail()
    assert run.screen.getvalue().endswith("\r\x1b[K")


def test_a_result_is_printed_without_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(is_terminal=True)
    run.at(5.0)
    run.progress.print_line("done")
    assert run.screen.getvalue().endswith("\r\x1b[K")
    assert capsys.readouterr().out == "done\n"


def test_quiet_and_verbose_exclude_each_other() -> None:
    assert penstock("down", "g.yaml", "-q", "--verbose").returncode == cli.USAGE
