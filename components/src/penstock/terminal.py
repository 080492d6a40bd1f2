"""Tables and durations for people: plain columns that fit a terminal.

rich leaves out colors and control codes where there is no terminal, with NO_COLOR and TERM=dumb.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

QUIT = ("q", "Q")  # keys that end a command that refreshes
NARROW = 80  # columns of the narrowest terminal, which tables fit without --wide
UNLIMITED = 1000  # columns; a pipe or a file has no width, and wrapped rows cannot be searched


def console(to: TextIO | None = None) -> Console:
    """For ``to`` (default: standard output), as wide as the terminal."""
    stream = to or sys.stdout
    found = Console(file=stream, highlight=False)
    return found if found.is_terminal else Console(file=stream, highlight=False, width=UNLIMITED)


def columns(*headings: str, numbers: tuple[str, ...] = ()) -> Table:
    """A table without lines; the columns ``numbers`` are aligned to the right.

    Only what is too wide for the terminal is folded: nothing is cut off.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        is_number = heading in numbers
        table.add_column(heading, overflow="fold", justify="right" if is_number else "left")
    return table


@contextmanager
def keys(sleep: Callable[[float], None] = time.sleep) -> Iterator[Callable[[float], str]]:
    """A function that waits up to so many seconds for a key, and returns it or nothing.

    Without a terminal on standard input it only sleeps. The terminal is restored at the end.
    """

    def no_key(seconds: float) -> str:
        sleep(seconds)
        return ""

    if not sys.stdin.isatty():
        yield no_key
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return os.read(terminal, 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(terminal)  # Ctrl-C still works
        yield key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def duration_text(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`: the two largest units from an hour on."""
    seconds = max(0, int(seconds))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if not minutes:
        return f"{seconds} s"
    if not hours:
        return f"{minutes} min"
    if not days:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def add_plain_row(table: Table, cells: Iterable[str]) -> None:
    """Without markup: a cell such as `[red]` is printed as it is."""
    table.add_row(*(Text(cell) for cell in cells))
