"""Transfer of KV caches from a prefill to a decode worker: what all backends have in common.

`shared_memory.py` is for workers on one machine, `nixl_sender.py` and `nixl_receiver.py` use NIXL.
Decision 24 compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

EXPIRY_S = 60.0  # after which a prefill worker drops KV that no decode worker has read


class TransferError(Exception):
    """The KV of a prefill cannot be read; the decode worker computes it again."""


class KvSender(Protocol):
    """The KV caches of a prefill worker that no decode worker has read yet."""

    def create(self, now: float) -> int:
        """A new, empty memory file; the caller writes into it and calls `handle` or `discard`."""

    def handle(self, file: int, now: float) -> dict[str, Any]:
        """How a decode worker finds the content of the file, and recognizes it.

        TransferError when it cannot be sent; the file is discarded.
        """

    def discard(self, file: int) -> None:
        """Close a file that has no handle."""

    def drop(self, now: float) -> None:
        """Free what was read, and what has expired."""

    @property
    def pending(self) -> int:
        """KV caches that a decode worker may still read."""

    def close(self) -> None:
        """Free everything."""


class KvReceiver(Protocol):
    """Reads KV caches of prefill workers."""

    def opened(self, handle: Mapping[str, Any]) -> AbstractAsyncContextManager[int]:
        """A memory file of this process with the KV; the prefill worker then frees it.

        TransferError when the prefill worker has exited or has dropped the KV.
        """

    def discard(self, handle: Mapping[str, Any]) -> None:
        """Let the prefill worker free KV that is not needed; without waiting for it."""

    def close(self) -> None:
        """Free everything."""
