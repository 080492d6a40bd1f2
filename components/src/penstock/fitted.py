"""Lines that fit the terminal; for output that must not wait for rich to be imported.

`terminal.py` has the tables.
"""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from textwrap import wrap
from typing import TextIO

from penstock.command_text import as_invoked


def width_of(to: TextIO | None = None) -> int | None:
    """Columns of the terminal ``to`` (default: standard output); None for a pipe or a file."""
    return get_terminal_size().columns if (to or sys.stdout).isatty() else None


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
        line,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
