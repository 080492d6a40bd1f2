"""Writes a file so that it has either its old content or the complete new one."""

from __future__ import annotations

import contextlib
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Raises OSError; the file is then as before, and nothing else remains."""
    draft = path.absolute().with_name(f".{path.name}.penstock")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
