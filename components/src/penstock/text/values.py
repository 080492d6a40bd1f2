"""Read values of YAML, JSON or a command line whose type is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_mapping(value: Any) -> Mapping[str, Any]:
    """``value`` when it is a mapping, else an empty one; `check` reports wrong types."""
    return value if isinstance(value, Mapping) else {}


def positive_int(value: Any) -> int | None:
    """``value`` as an integer above 0, else None. "64" is 64, as engines read it; true is not 1."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value > 0 else None


def last_words(text: str, most: int) -> str:
    """The text on one line; of a longer one, the last words with ``most`` characters, after `…`.

    >>> last_words("no data for 8 GPUs", 100), last_words("no data for 8 GPUs", 12)
    ('no data for 8 GPUs', '… for 8 GPUs')
    """
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    start = line.find(" ", len(line) - most)
    return f"…{line[start:]}" if start >= 0 else f"…{line[-most:]}"
