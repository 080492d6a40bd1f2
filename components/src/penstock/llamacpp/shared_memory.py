"""Transfer of KV caches through memory files of the prefill worker.

A decode worker on the same machine opens the file through /proc, reads it into one of its slots and
empties it. The memory belongs to the prefill worker's process, so the kernel frees it when that
exits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

NAME = "penstock-kv"
EXPIRY_S = 60.0  # after which a prefill worker drops KV that no decode worker has read


class TransferError(Exception):
    """The KV of a prefill cannot be read; the decode worker computes it again."""


@dataclass
class KvFiles:
    """The KV caches of a prefill worker that no decode worker has read yet."""

    expiry_s: float = EXPIRY_S
    _writing: set[int] = field(default_factory=set)
    """Descriptors of files that have no handle yet: still being written, so empty."""
    _files: dict[int, float] = field(default_factory=dict)
    """File descriptor → time at which its handle was made."""

    def create(self, now: float) -> int:
        """A new, empty file; the caller writes into it and calls `handle` or `discard`."""
        self.drop(now)
        file = os.memfd_create(NAME)
        self._writing.add(file)
        return file

    def handle(self, file: int, now: float) -> dict[str, Any]:
        """How a decode worker finds the file, and recognizes it."""
        self._writing.discard(file)
        self._files[file] = now
        stat = os.fstat(file)
        return {"pid": os.getpid(), "fd": file, "inode": stat.st_ino, "bytes": stat.st_size}

    def drop(self, now: float) -> None:
        """Free what was read, and what has expired. A file that was read is empty."""
        for file, since in [*self._files.items()]:
            if os.fstat(file).st_size == 0 or now - since > self.expiry_s:
                self.discard(file)

    def discard(self, file: int) -> None:
        if file in self._writing or file in self._files:
            self._writing.discard(file)
            self._files.pop(file, None)
            os.close(file)

    @property
    def pending(self) -> int:
        """Files with content."""
        return sum(os.fstat(file).st_size > 0 for file in self._files)

    def close(self) -> None:
        for file in [*self._writing, *self._files]:
            self.discard(file)


@contextmanager
def opened(handle: Mapping[str, Any]) -> Iterator[int]:
    """A descriptor of the prefill worker's file, in this process; emptied at the end.

    TransferError when that worker has exited or has dropped the file.
    """
    path = f"/proc/{int(handle['pid'])}/fd/{int(handle['fd'])}"
    try:
        file = os.open(path, os.O_RDWR)
    except OSError as error:
        raise TransferError(f"{path}: {error.strerror}") from None
    try:
        stat = os.fstat(file)
        if (stat.st_ino, stat.st_size) != (handle["inode"], handle["bytes"]):
            raise TransferError(f"{path}: not the file of this request")
        yield file
        os.ftruncate(file, 0)
    finally:
        os.close(file)


def discard(handle: Mapping[str, Any]) -> None:
    """Empty the file, so that the prefill worker frees KV that is not needed."""
    with suppress(TransferError), opened(handle):
        pass
