"""Keys of a terminal, which is restored afterwards."""

from __future__ import annotations

import io
import os
import pty
import termios
from collections.abc import Iterator

import pytest

from penstock.text.terminal import fitted, keys, width_of


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of the standard input."""
    controller, terminal = pty.openpty()
    with open(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield controller
    os.close(controller)


def test_a_key_is_read_without_return(terminal: int) -> None:
    with keys() as pressed:
        assert pressed(0.0) == ""
        os.write(terminal, b"q")
        assert pressed(1000.0) == "q"  # longer than a test may take


def test_the_terminal_is_restored_after_ctrl_c(terminal: int) -> None:
    before = termios.tcgetattr(terminal)

    def interrupted() -> None:
        with keys():
            assert termios.tcgetattr(terminal) != before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert termios.tcgetattr(terminal) == before


def test_without_a_terminal_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("q"))
    waits: list[float] = []
    with keys(waits.append) as pressed:
        assert pressed(60.0) == ""
    assert waits == [60.0]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_is_wrapped_for_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    line = "name   one two three four five six seven"
    lines = fitted(line, 7, Screen())
    assert lines == ["name   one two three four five", "       six seven"]
    assert fitted(line, 25, Screen())[1] == "  six seven"  # no room for so deep an indent
    assert fitted(line, 7, io.StringIO()) == [line]
    assert fitted("a" * 40, 2, Screen()) == ["a" * 40]  # a name can be copied
    assert (width_of(Screen()), width_of(io.StringIO())) == (30, None)
