"""Colors of a terminal, for output that must not wait for rich to be imported.

`checks/report.py` uses it. Tables, and tables that update in place, are rich's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TextIO

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
