"""The prefill worker's side of KV transfers with NIXL: KV in registered buffers.

llama.cpp writes a slot into a memory file, which is copied into a buffer. Buffers are registered
once and used again, because a decode worker's agent keeps the metadata of each until it exits or
disconnects, and rejects other metadata of the same addresses.
"""

from __future__ import annotations

import base64
import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.llamacpp.nixl_agent import Agent, AgentError, region
from penstock.llamacpp.transfer import EXPIRY_S, TransferError

NAME = "penstock-kv"
BACKEND = "nixl"
KEY_BYTES = 16  # random, after the KV: the same addresses may have the KV of another request
SMALLEST = 2**20


def read_limit_s(size: int) -> float:
    """The longest that a READ may take; it moves 150 MB/s or more on two busy cores."""
    return 10.0 + size / 100e6


@dataclass(eq=False)
class Buffer:
    memory: mmap.mmap
    registration: Any
    metadata: str

    def fill(self, file: int, size: int, key: bytes) -> None:
        """Copy a file, and add the key."""
        with memoryview(self.memory) as view:
            done = 0
            while done < size:  # Linux reads at most 2 GiB at once
                with view[done:size] as rest:
                    count = os.preadv(file, [rest], done)
                if count == 0:
                    raise OSError(f"the file of the slot has {done} instead of {size} bytes")
                done += count
            view[size : size + KEY_BYTES] = key

    def erase_key(self, size: int) -> None:
        self.memory[size : size + KEY_BYTES] = bytes(KEY_BYTES)


@dataclass(frozen=True)
class Pending:
    """KV that may still be read, or whose READ may still run."""

    buffer: Buffer
    size: int
    since: float


@dataclass
class NixlSender:
    agent: Agent
    expiry_s: float = EXPIRY_S
    _writing: set[int] = field(default_factory=set)
    """Descriptors of memory files."""
    _free: list[Buffer] = field(default_factory=list)
    _pending: dict[bytes, Pending] = field(default_factory=dict)
    """Key → KV that no decode worker has read."""
    _expired: list[Pending] = field(default_factory=list)

    def create(self, now: float) -> int:
        self.drop(now)
        file = os.memfd_create(NAME)
        self._writing.add(file)
        return file

    def handle(self, file: int, now: float) -> dict[str, Any]:
        key = secrets.token_bytes(KEY_BYTES)
        with self._closing(file):
            size = os.fstat(file).st_size
            buffer = self._take(size + KEY_BYTES)
            try:
                buffer.fill(file, size, key)
            except OSError as error:
                self._free.append(buffer)
                raise TransferError(str(error)) from None
        self._pending[key] = Pending(buffer, size, now)
        return {
            "backend": BACKEND,
            "agent": self.agent.name,
            "metadata": buffer.metadata,
            "address": region(buffer.memory).address,
            "bytes": size,
            "key": key.hex(),
        }

    @contextmanager
    def _closing(self, file: int) -> Iterator[None]:
        try:
            yield
        finally:
            self.discard(file)

    def _take(self, size: int) -> Buffer:
        """The smallest free buffer with this size, of these the last used one; or a new one."""
        fitting = [b for b in reversed(self._free) if len(b.memory) >= size]
        if not fitting:
            return self._allocate(size)
        buffer = min(fitting, key=lambda b: len(b.memory))
        self._free.remove(buffer)
        return buffer

    def _allocate(self, size: int) -> Buffer:
        """A buffer of a power of two bytes, so that others can use it again."""
        try:
            memory = mmap.mmap(-1, max(SMALLEST, 1 << (size - 1).bit_length()))
            registration = self.agent.register(region(memory))
            metadata = self.agent.metadata(registration)
        except (AgentError, OSError, OverflowError) as error:
            raise TransferError(f"no buffer for {size} bytes: {error}") from None
        return Buffer(memory, registration, base64.b64encode(metadata).decode())

    def discard(self, file: int) -> None:
        if file in self._writing:
            self._writing.remove(file)
            os.close(file)

    def drop(self, now: float) -> None:
        """A decode worker sends the key of what it has read.

        Expired KV loses its key, so that a later READ is recognized. An earlier one may still run:
        the buffer is not used again before that READ has ended or has reached its limit.
        """
        for key in self.agent.notifications():
            if key in self._pending:
                self._free.append(self._pending.pop(key).buffer)
        for key, kv in [*self._pending.items()]:
            if now - kv.since > self.expiry_s:
                del self._pending[key]
                kv.buffer.erase_key(kv.size)
                self._expired.append(Pending(kv.buffer, kv.size, now))
        ended = [kv for kv in self._expired if now - kv.since > read_limit_s(kv.size)]
        for kv in ended:
            self._expired.remove(kv)
            self._free.append(kv.buffer)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def close(self) -> None:
        for file in [*self._writing]:
            self.discard(file)
        kept = [kv.buffer for kv in (*self._pending.values(), *self._expired)]
        for buffer in (*self._free, *kept):
            with suppress(AgentError):
                self.agent.deregister(buffer.registration)
            buffer.memory.close()
        self._free, self._pending, self._expired = [], {}, []
