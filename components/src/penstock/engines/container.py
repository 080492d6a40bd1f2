"""The files of a container, as a parser on this machine sees them.

A file of the manifests (ConfigMap, heredoc) is read from them. Any other path may be in the image
or on a volume: `isfile` returns True, because the file may exist, and reading it ends the parse
with an unknown result.
"""

from __future__ import annotations

import builtins
import io
import os
import pathlib
import posixpath
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any
from unittest.mock import patch


class NotInManifests(BaseException):
    """A parser reads a file that only the container has.

    Not an `Exception`, which a parser would report as a wrong value.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True)
class ContainerFiles:
    """The files of a container that the manifests contain."""

    # Absolute path → text.
    files: Mapping[str, str]
    # Where relative paths begin.
    cwd: str
    # Folders of this machine that are read as they are.
    readable: tuple[str, ...] = ()

    def text(self, path: str) -> str | None:
        return self.files.get(self.absolute(path))

    def absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.cwd, path))

    def _is_real(self, path: str) -> bool:
        if self.text(path) is not None:
            return False
        return _is_below(path, {sys.prefix, sys.base_prefix, *filter(None, sys.path)}) or _is_below(
            path, self.readable
        )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let parsers read this container's files; Python still reads its own modules."""
        real_open, real_isfile, real_isdir = builtins.open, os.path.isfile, os.path.isdir
        real_exists = pathlib.Path.exists

        def container_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
            path = _path(file)
            if path is None or self._is_real(path):
                return real_open(file, mode, *args, **options)
            text = self.text(path)
            if text is None:
                raise NotInManifests(path)
            return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)

        def isfile(path: Any) -> bool:
            return real_isfile(path) if self._is_real(str(path)) else True

        def exists(path: Any, **options: Any) -> bool:
            return self.text(str(path)) is not None or real_exists(path, **options)

        def isdir(path: Any) -> bool:
            return real_isdir(path) if self._is_real(str(path)) else True

        with (
            patch.object(builtins, "open", container_open),
            patch.object(io, "open", container_open),  # pathlib calls it
            patch.object(os.path, "isfile", isfile),
            patch.object(os.path, "isdir", isdir),
            patch.object(pathlib.Path, "exists", exists),
        ):
            yield


def _path(file: Any) -> str | None:
    return None if isinstance(file, int) else os.fspath(file)


def _is_below(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
