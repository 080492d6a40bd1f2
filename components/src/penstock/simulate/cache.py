"""Answers of replays on disk, by the content of the question; to delete them is harmless."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

MOST_FILES = 2000
MADE_BY = Path(__file__).parent / "replay_child.py"  # another one may answer otherwise


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/penstock/simulate, by default under ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "penstock" / "simulate"


def kept(python: Path) -> Cache:
    """The cache of what the environment with this Python answers."""
    installed = (python.parents[1] / "installed.txt").read_text()
    return Cache(cache_folder(), f"{installed} {MADE_BY.read_text()}")


class Cache:
    """``folder`` None keeps nothing; ``stamp``: what besides the question makes the answer, such as
    the versions of what answers."""

    def __init__(self, folder: Path | None, stamp: str) -> None:
        self._folder = folder
        self._stamp = stamp

    def get(self, key: str) -> Mapping[str, Any] | None:
        path = self._path(key)
        if path is None:
            return None
        try:
            found: Mapping[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        except (OSError, ValueError, EOFError, zlib.error):
            return None  # none, or a damaged one
        return found if isinstance(found, dict) else None

    def put(self, key: str, answer: Mapping[str, Any]) -> None:
        """Nothing happens where the folder cannot be written: the next run asks again."""
        path = self._path(key)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            begun = path.with_suffix(f".{os.getpid()}")
            begun.write_bytes(gzip.compress(json.dumps(answer).encode(), 1))
            begun.replace(path)
            self._prune(path.parent)
        except OSError:
            return

    def _prune(self, folder: Path) -> None:
        files = sorted(folder.glob("*.gz"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MOST_FILES]:
            file.unlink(missing_ok=True)

    def _path(self, key: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / f"{sha256(f'{self._stamp} {key}'.encode()).hexdigest()}.gz"
