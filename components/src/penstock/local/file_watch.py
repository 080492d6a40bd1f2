"""Detect that the graph file was saved: its content changed and then stayed the same."""

from __future__ import annotations

import os
from pathlib import Path

SETTLED_S = 0.2


class FileWatch:
    """Editors truncate and write, or move a new file into place; either ends in stable content."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = _read(path)
        self._stat = _stat(path)
        self._changed_at: float | None = None

    def saved(self, now: float) -> bool:
        """Whether the content changed since the last True. ``now``: seconds on any clock."""
        stat = _stat(self._path)
        if stat != self._stat:
            self._stat, self._changed_at = stat, now
        if self._changed_at is None or now - self._changed_at < SETTLED_S:
            return False
        self._changed_at = None
        content = _read(self._path)
        if content is None or content == self._content:
            return False
        self._content = content
        return True


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None  # not a device, which may not end
    except OSError:
        return None


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)
