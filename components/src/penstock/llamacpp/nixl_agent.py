"""An agent of NIXL with its backend UCX: the calls that KV transfers need.

It uses the bindings below NIXL's Python class, which lets the progress thread use a whole core
(decision 7).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

BACKEND = "UCX"
# The progress thread wakes up when data arrives, and otherwise after this time. Idle: 0.2 % of a
# core.
POLL_US = 10_000


DISCONNECTED = ("nixlRemoteDisconnectError", "nixlBackendError")


class AgentError(Exception):
    """A call of NIXL failed."""


class DisconnectedError(AgentError):
    """The peer has exited, or cannot be reached."""


@dataclass(frozen=True)
class Region:
    """A part of the memory of a process."""

    address: int
    size: int


def region(memory: mmap.mmap) -> Region:
    # The ctypes object is temporary: while it exists, the memory cannot be unmapped.
    return Region(ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory))


class Agent:
    """Used from one thread at a time."""

    def __init__(self) -> None:
        """Takes about a second. AgentError without the packages."""
        try:
            from nixl_cu12 import _bindings
        except ImportError as error:
            raise AgentError(f"NIXL needs environment llamacpp-nixl: {error}") from None

        self._nixl: Any = _bindings
        values = vars(_bindings).values()
        self._errors = tuple(
            v for v in values if isinstance(v, type) and issubclass(v, BaseException)
        )
        config = _bindings.nixlAgentConfig()
        config.useProgThread = True
        config.useListenThread = False  # it would listen on every address
        config.pthrDelay = POLL_US
        config.syncMode = _bindings.NIXL_THREAD_SYNC_STRICT
        # Unique, so that a restarted worker is not taken for the one before.
        self.name = f"penstock-{os.getpid()}-{secrets.token_hex(8)}"
        self._agent = self._call(_bindings.nixlAgent, self.name, config)
        self._backends = [self._call(self._agent.createBackend, BACKEND, {})]

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._errors as error:
            known = DisconnectedError if type(error).__name__ in DISCONNECTED else AgentError
            raise known(f"NIXL: {error}") from None

    def register(self, memory: Region) -> Any:
        """The registration, for `deregister` and `metadata`."""
        listed = [(memory.address, memory.size, 0, "")]
        registration = self._nixl.nixlRegDList(self._nixl.DRAM_SEG, listed)
        self._call(self._agent.registerMem, registration, self._backends)
        return registration

    def deregister(self, registration: Any) -> None:
        self._call(self._agent.deregisterMem, registration, self._backends)

    def metadata(self, registration: Any) -> bytes:
        """What another agent needs to read this memory: the registration and the address of UCX."""
        return bytes(self._call(self._agent.getLocalPartialMD, registration, True, self._backends))

    def add_peer(self, metadata: bytes) -> str:
        """The name of the agent with this metadata. Metadata that is known changes nothing."""
        return bytes(self._call(self._agent.loadRemoteMD, metadata)).decode()

    def remove_peer(self, name: str) -> None:
        """Disconnect, and forget all metadata; nothing if there is none."""
        self._agent.invalidateRemoteMD(name)  # it returns a status

    def notifications(self) -> Sequence[bytes]:
        """Those that arrived since the last call."""
        found = self._call(self._agent.getNotifs, {}, self._backends)
        return [message for messages in found.values() for message in messages]

    def notify(self, peer: str, message: bytes) -> None:
        self._call(self._agent.genNotif, peer, message, self._backends)

    def read(self, local: Region, peer: str, remote: Region, notice: bytes) -> Read:
        """Begin a READ into local memory. The peer gets ``notice`` when it is complete."""
        make = self._nixl.nixlXferDList
        lists = [
            make(self._nixl.DRAM_SEG, [(part.address, part.size, 0)]) for part in (local, remote)
        ]
        handle = self._call(
            self._agent.createXferReq, self._nixl.NIXL_READ, *lists, peer, notice, self._backends
        )
        read = Read(self, handle)
        try:
            read.status = self._call(self._agent.postXferReq, handle, notice)
        except AgentError:
            with suppress(AgentError):
                read.release()
            raise
        return read

    def status(self, handle: int) -> Any:
        return self._call(self._agent.getXferStatus, handle)

    def release(self, handle: int) -> None:
        self._call(self._agent.releaseXferReq, handle)

    def is_running(self, status: Any) -> bool:
        return bool(status == self._nixl.NIXL_IN_PROG)


@dataclass
class Read:
    """A READ that was begun. Until it has ended, its memory must stay mapped."""

    agent: Agent
    handle: int
    status: Any = None

    def is_running(self) -> bool:
        """AgentError when it failed."""
        if self.agent.is_running(self.status):
            self.status = self.agent.status(self.handle)
        return self.agent.is_running(self.status)

    def release(self) -> None:
        """Free it; it must have ended."""
        self.agent.release(self.handle)
