"""Read a count from YAML, JSON or a command line."""

from __future__ import annotations

from typing import Any


def positive_int(value: Any) -> int | None:
    """``value`` as an integer above 0, else None. "64" is 64, as engines read it; true is not 1."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value > 0 else None
