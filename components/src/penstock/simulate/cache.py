"""Results of replays on disk, keyed by the content of the job; deleting them is harmless."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from penstock.environments.paths import STAMP
from penstock.files import write_file

MAX_FILES = 2000
PRODUCER = Path(__file__).parent / "replay_child.py"  # a changed one may give other results


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/penstock/simulate, by default under ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "penstock" / "simulate"


def environment_cache(python: Path) -> Cache:
    """The cache for results of the environment with this Python."""
    installed = (python.parents[1] / STAMP).read_text()
    return Cache(cache_folder(), f"{installed} {PRODUCER.read_text()}")


class Cache:
    """``folder`` None: stores nothing. ``stamp``: what the results depend on besides the job, such
    as the versions of the replay's packages."""

    def __init__(self, folder: Path | None, stamp: str) -> None:
        self._folder = folder
        self._stamp = stamp

    def get(self, key: str) -> Mapping[str, Any] | None:
        """None if there is no result, or a damaged one."""
        path = self._path(key)
        if path is None:
            return None
        try:
            result: Mapping[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        except (OSError, ValueError, EOFError, zlib.error):
            return None
        return result if isinstance(result, dict) else None

    def put(self, key: str, result: Mapping[str, Any]) -> None:
        """Does nothing if the folder cannot be written: the next run replays again."""
        path = self._path(key)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}")
            write_file(temporary, gzip.compress(json.dumps(result).encode(), 1))
            temporary.replace(path)
            self._prune(path.parent)
        except OSError:
            return

    def _prune(self, folder: Path) -> None:
        files = sorted(folder.glob("*.gz"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MAX_FILES]:
            file.unlink(missing_ok=True)

    def _path(self, key: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / f"{sha256(f'{self._stamp} {key}'.encode()).hexdigest()}.gz"
