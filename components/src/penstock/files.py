"""Files that are written completely or not at all, and the files that come with penstock.

The wheel carries folders of the repository under other names, and some not at all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from io import FileIO
from pathlib import Path
from typing import BinaryIO

CHECKOUT = Path(__file__).parents[3]
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


def shipped(packaged: str, in_repository: str) -> Path:
    """The folder in the installed wheel, else in the checkout."""
    folder = files("penstock") / packaged
    return Path(str(folder)) if folder.is_dir() else CHECKOUT / in_repository


def only_penstock(folder: Path) -> Path:
    """The folder, made if it is missing, for PYTHONPATH of another environment's Python: it has
    penstock and no other package of this environment."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / "penstock").symlink_to(Path(__file__).parent)
    return folder


def page(name: str) -> str:
    """The page of `docs/` with this name, for messages: the wheel has no `docs/`."""
    return f"the page {name} of the documentation"


def in_repository(path: str) -> str:
    """A file of the repository that is not in the wheel, for messages."""
    return f"{path} in penstock's repository"
