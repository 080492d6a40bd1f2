"""Notices that the graph file was saved: by its content, once the writing has settled."""

from __future__ import annotations

import os
from pathlib import Path

SETTLED_S = 0.2


class FileWatch:
    """Editors truncate and write, or move a new file in place; both end in a stable new content."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = _read(path)
        self._stat = _stat(path)
        self._changed_at: float | None = None

    def saved(self, now: float) -> bool:
        """Whether there is a new content since the last True; ``now`` in seconds, any clock."""
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
        return path.read_bytes()
    except OSError:
        return None


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
