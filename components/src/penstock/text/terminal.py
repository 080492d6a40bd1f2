"""Tables, colors, durations and lines that fit a terminal.

Functions that make tables import rich, which takes 30 ms, when they are called. Colors and control
codes are left out where there is no terminal, with NO_COLOR and TERM=dumb.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Literal, TextIO

from penstock.text.commands import as_invoked

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

QUIT = ("q", "Q")  # keys that end a command that refreshes
NARROW = 80  # columns of the narrowest terminal, which tables fit without --wide
UNLIMITED = 1000  # columns; a pipe or a file has no width, and wrapped rows cannot be searched
Style = Literal["bold", "red", "yellow", "cyan"]
_CODES: dict[Style, int] = {"bold": 1, "red": 31, "yellow": 33, "cyan": 36}


def painter(stream: TextIO) -> Callable[[str, Style], str]:
    """A function that styles a text for the stream; it changes nothing where colors are off."""
    if not _shows_colors(stream):
        return lambda text, style: text
    return lambda text, style: f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def _shows_colors(stream: TextIO) -> bool:
    """As rich decides: NO_COLOR, then FORCE_COLOR, then whether the stream is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return obeys_codes(stream)


def obeys_codes(stream: TextIO) -> bool:
    """Whether the stream is a terminal that colors text and moves the cursor."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def width_of(to: TextIO | None = None) -> int | None:
    """Columns of the terminal ``to`` (default: standard output); None for a pipe or a file."""
    return get_terminal_size().columns if (to or sys.stdout).isatty() else None


def print_fitted(line: str, indent: int = 2, to: TextIO | None = None) -> None:
    """Print ``line`` as `fitted` wraps it."""
    print(*fitted(line, indent, to), sep="\n", file=to)


def fitted(line: str, indent: int = 2, to: TextIO | None = None) -> list[str]:
    """``line`` in lines that fit the terminal, the later ones indented; one line elsewhere.

    Commands are those that the user types.
    """
    line = as_invoked(line)
    width = width_of(to)
    if width is None or len(line) <= width:
        return [line]
    indent = indent if indent < width // 2 + 1 else 2
    return wrap(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def console() -> Console:
    """For standard output, as wide as the terminal."""
    from rich.console import Console

    wide = Console(highlight=False)
    return wide if wide.is_terminal else Console(highlight=False, width=UNLIMITED)


def columns(*headings: str, numbers: tuple[str, ...] = ()) -> Table:
    """A table without lines; the columns ``numbers`` are aligned to the right.

    Only what is too wide for the terminal is folded: nothing is cut off.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        is_number = heading in numbers
        table.add_column(heading, overflow="fold", justify="right" if is_number else "left")
    return table


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of `columns` on standard output. If it fits as it is, rich is not imported, which
    takes most of the CPU time of a short command."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    width = get_terminal_size().columns if _shows_colors(sys.stdout) else width_of()
    fits = width is None or sum(widths) + 2 * (len(widths) - 1) <= width
    if not (fits and all(cell.isascii() for line in lines for cell in line)):
        table = columns(*headings)
        for row in rows:
            add_plain_row(table, row)  # a path may contain `[/b]`
        console().print(table)
        return
    heading, *texts = (
        "  ".join(f"{cell:<{size}}" for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    print(painter(sys.stdout)(heading, "bold"), *texts, sep="\n")


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
    from rich.text import Text

    table.add_row(*(Text(cell) for cell in cells))
