"""Writes or appends to a file so that it has either its old content or the complete new one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

PRIVATE = 0o600
USUAL = 0o666  # without the bits of the umask


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add ``path`` to an OSError of the block: Python sets no file name if a write fails, for
    example on a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_file(path: Path, text: str | bytes) -> None:
    """Write a file in place. OSError names the file, which may then be incomplete."""
    with naming(path):
        path.write_bytes(text.encode() if isinstance(text, str) else text)


def write_atomically(path: Path, text: str) -> None:
    """Raises OSError; the file is then as before, and nothing else remains."""
    with replacing(path) as file:
        file.write(text.encode())


def append(file: FileIO, data: bytes) -> None:
    """All of ``data`` to an unbuffered file that is at its end. OSError, for example of a full
    disk; the file is then as before."""
    end = file.tell()
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.truncate(end)
        raise


@contextlib.contextmanager
def replacing(path: Path, mode: int = USUAL) -> Iterator[BinaryIO]:
    """A file that replaces ``path`` at the end of the block. OSError as `write_atomically`.

    A device or a FIFO is written instead: as root, `/dev/null` could be replaced.
    """
    if path.exists() and not path.is_file():  # a device or a FIFO
        with naming(path), path.open("wb") as file:
            yield file
        return
    draft = path.absolute().with_name(f".{path.name}.penstock")
    try:
        draft.unlink(missing_ok=True)  # a file that is there would keep its mode
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with naming(path), os.fdopen(handle, "wb") as file:
            yield file
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
