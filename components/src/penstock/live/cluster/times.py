"""Times in the objects of the Kubernetes API."""

from __future__ import annotations

import contextlib
from datetime import datetime


def seconds_of(text: object) -> float | None:
    """Seconds since 1970 of a time such as `2026-11-22T20:44:05Z`; None if it is not one."""
    with contextlib.suppress(ValueError):
        if isinstance(text, str):
            return datetime.fromisoformat(text).timestamp()
    return None
