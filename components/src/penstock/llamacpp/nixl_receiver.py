"""The decode worker's side of KV transfers with NIXL: READs into memory files, one after another.

All calls of NIXL are made in one thread, so that a READ does not block the worker's other streams.
"""

from __future__ import annotations

import asyncio
import base64
import mmap
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.llamacpp.nixl_agent import (
    Agent,
    AgentError,
    DisconnectedError,
    Read,
    Region,
    region,
)
from penstock.llamacpp.nixl_sender import BACKEND, KEY_BYTES, NAME, read_limit_s
from penstock.llamacpp.transfer import TransferError

POLL_S = 0.0005
MOST_PEERS = 64  # prefill workers that exited long ago are forgotten
# Each attempt to connect to a worker that has exited leaves a socket open in UCX 1.22. The handles
# of such a worker expire after 60 s.
RECONNECT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Source:
    """A handle of `NixlSender`."""

    agent: str
    metadata: bytes
    address: int
    size: int
    """Without the key."""
    key: bytes

    @classmethod
    def read(cls, handle: Mapping[str, Any]) -> Self:
        if handle.get("backend") != BACKEND:
            raise TransferError(f"the KV was sent with {handle.get('backend')}, not {BACKEND}")
        try:
            source = cls(
                agent=str(handle["agent"]),
                metadata=base64.b64decode(handle["metadata"], validate=True),
                address=int(handle["address"]),
                size=int(handle["bytes"]),
                key=bytes.fromhex(handle["key"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TransferError(f"invalid handle: {error!r}") from None
        if source.address <= 0 or source.size <= 0 or len(source.key) != KEY_BYTES:
            raise TransferError(f"invalid handle: {source.size} bytes at {source.address}")
        return source


@dataclass
class Target:
    """Registered memory of this process that a READ writes into."""

    agent: Agent
    memory: mmap.mmap
    registration: Any

    @classmethod
    def of(cls, agent: Agent, memory: mmap.mmap) -> Self:
        return cls(agent, memory, agent.register(region(memory)))

    def close(self) -> None:
        self.agent.deregister(self.registration)
        self.memory.close()


@dataclass
class NixlReceiver:
    agent: Agent
    limit_s: Callable[[int], float] = read_limit_s
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="nixl")
    )
    _peers: dict[str, None] = field(default_factory=dict)
    """The least recently used first."""
    _disconnected: dict[str, float] = field(default_factory=dict)
    """Peer → time at which it could not be reached."""
    _stalled: dict[str, tuple[Read, Target]] = field(default_factory=dict)
    """Peer → a READ that has passed its limit and may still write into its memory."""

    @asynccontextmanager
    async def opened(self, handle: Mapping[str, Any]) -> AsyncIterator[int]:
        source = Source.read(handle)
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, self._fetch, source)
        try:
            file = await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close_result)
            raise
        try:
            yield file
        finally:
            os.close(file)

    def discard(self, handle: Mapping[str, Any]) -> None:
        with suppress(TransferError):
            self._thread.submit(self._notify, Source.read(handle))

    def _fetch(self, source: Source) -> int:
        """A new memory file with the KV."""
        file = os.memfd_create(NAME)
        try:
            os.ftruncate(file, source.size + KEY_BYTES)
            self._read(source, mmap.mmap(file, source.size + KEY_BYTES))
            if os.pread(file, KEY_BYTES, source.size) != source.key:
                raise TransferError("the prefill worker has dropped the KV of this request")
            os.ftruncate(file, source.size)
        except BaseException as error:
            os.close(file)
            if isinstance(error, (OSError, OverflowError)):
                raise TransferError(f"no memory for {source.size} bytes: {error}") from None
            raise
        return file

    def _read(self, source: Source, memory: mmap.mmap) -> None:
        """Fill the memory, and close it."""
        self._free_stalled()
        target = Target.of(self.agent, memory)
        try:
            peer = self._peer(source)
            if peer in self._stalled:
                raise TransferError(f"an earlier READ from {peer} has not ended")
            remote = Region(source.address, len(memory))
            read = self.agent.read(region(memory), peer, remote, source.key)
        except AgentError as error:
            self._failed(source.agent, error)
            target.close()
            raise TransferError(str(error)) from None
        except TransferError:
            target.close()
            raise
        self._wait(read, target, source)

    def _wait(self, read: Read, target: Target, source: Source) -> None:
        """Until the READ has ended, within its limit."""
        limit_s = self.limit_s(source.size)
        deadline = time.monotonic() + limit_s
        try:
            while read.is_running():
                if time.monotonic() > deadline:
                    self._stalled[source.agent] = (read, target)
                    raise TransferError(f"{source.agent} did not send the KV within {limit_s:g} s")
                time.sleep(POLL_S)
        except AgentError as error:
            self._end(read, target)
            self._failed(source.agent, error)
            raise TransferError(str(error)) from None
        self._end(read, target)
        if time.monotonic() > deadline:  # this process was stopped, and the buffer may be reused
            raise TransferError(f"reading the KV took more than {limit_s:g} s")

    def _end(self, read: Read, target: Target) -> None:
        with suppress(AgentError):
            read.release()
        target.close()

    def _free_stalled(self) -> None:
        for peer, (read, target) in [*self._stalled.items()]:
            try:
                if read.is_running():
                    continue
            except AgentError as error:
                self._failed(peer, error)
            del self._stalled[peer]
            self._end(read, target)

    def _peer(self, source: Source) -> str:
        since = self._disconnected.get(source.agent)
        if since is not None and time.monotonic() - since < RECONNECT_S:
            raise TransferError(f"{source.agent} has exited, or cannot be reached")
        peer = self.agent.add_peer(source.metadata)
        self._peers.pop(peer, None)
        self._peers[peer] = None
        if peer != source.agent:
            raise AgentError(f"the metadata is that of {peer}, not of {source.agent}")
        for oldest in [*self._peers][:-MOST_PEERS]:
            if oldest not in self._stalled:
                self._forget(oldest)
        return peer

    def _failed(self, peer: str, error: AgentError) -> None:
        self._forget(peer)
        if isinstance(error, DisconnectedError):
            now = time.monotonic()
            recent = {p: at for p, at in self._disconnected.items() if now - at < RECONNECT_S}
            self._disconnected = {**recent, peer: now}

    def _forget(self, peer: str) -> None:
        self._peers.pop(peer, None)
        self.agent.remove_peer(peer)

    def _notify(self, source: Source) -> None:
        """Without the notification, the KV expires."""
        try:
            self.agent.notify(self._peer(source), source.key)
        except AgentError as error:
            self._failed(source.agent, error)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _close_result(future: asyncio.Future[int]) -> None:
    if not future.cancelled() and future.exception() is None:
        os.close(future.result())
