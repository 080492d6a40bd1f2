"""The files of a container, as a parser on this machine sees them.

A file of the manifests (ConfigMap, heredoc) is read from them. Any other path may be in the image
or on a volume: `isfile` returns True, because the file may exist, and reading it ends the parse
with an unknown result.
"""

from __future__ import annotations

import builtins
import io
import os
import posixpath
import sys
from collections.abc import Iterator, Mapping
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

    def text(self, path: str) -> str | None:
        return self.files.get(self.absolute(path))

    def absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.cwd, path))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let parsers read this container's files; Python still reads its own modules."""
        real_open, real_isfile, real_isdir = (
            builtins.open,
            os.path.isfile,
            os.path.isdir,
        )

        def container_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
            path = _path(file)
            if path is None or _belongs_to_python(path):
                return real_open(file, mode, *args, **options)
            text = self.text(path)
            if text is None:
                raise NotInManifests(path)
            return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)

        def isfile(path: Any) -> bool:
            return real_isfile(path) if _belongs_to_python(str(path)) else True

        def isdir(path: Any) -> bool:
            return real_isdir(path) if _belongs_to_python(str(path)) else True

        with (
            patch.object(builtins, "open", container_open),
            patch.object(io, "open", container_open),  # pathlib calls it
            patch.object(os.path, "isfile", isfile),
            patch.object(os.path, "isdir", isdir),
        ):
            yield


def _path(file: Any) -> str | None:
    return None if isinstance(file, int) else os.fspath(file)


def _belongs_to_python(path: str) -> bool:
    roots = {sys.prefix, sys.base_prefix, *(entry for entry in sys.path if entry)}
    return any(path == root or path.startswith(root + "/") for root in roots)
