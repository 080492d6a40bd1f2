"""Details of a fault of penstock, in a file that the user can attach to a report."""

from __future__ import annotations

import tempfile


def write_details(text: str) -> str:
    """What a message says about the details: the file that has them, or else the details."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="penstock-error-", suffix=".log", delete=False, encoding="utf-8"
        ) as log:
            log.write(text)
    except OSError:
        return text  # there is no folder to write to
    return f"Details: {log.name}"
