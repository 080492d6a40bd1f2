"""Which slot computes a request, and what the slots' KV caches contain.

llama.cpp keeps the KV of the last request in each slot, and computes only the tokens after the
prefix that a new prompt shares with it. Choosing the slot here makes the content known, so that KV
events describe it exactly. Pure: no I/O, no clock.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Tokens = Sequence[int]


@dataclass(frozen=True)
class Block:
    """A full block of tokens in a KV cache, identified by all tokens up to its end."""

    tokens: tuple[int, ...]
    hash: int
    parent: int | None


@dataclass(frozen=True)
class Changes:
    """Blocks that no slot had before, and blocks that no slot has any more."""

    stored: tuple[Block, ...] = ()
    removed: tuple[int, ...] = ()


def blocks(tokens: Tokens, size: int) -> Iterator[Block]:
    """The full blocks of ``tokens``, in order."""
    parent: int | None = None
    for start in range(0, len(tokens) - size + 1, size):
        part = tuple(tokens[start : start + size])
        data = struct.pack(f"<q{size}I", parent or 0, *part)
        digest = hashlib.blake2b(data, digest_size=8).digest()
        (number,) = struct.unpack("<q", digest)
        yield Block(part, number, parent)
        parent = number


def common_prefix(first: Tokens, second: Tokens) -> int:
    """Number of equal tokens at the beginning."""
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))


@dataclass
class Slots:
    """The slots of one llama.cpp server.

    A slot is free or belongs to one request. Requests wait in the order in which they came.
    """

    count: int
    block_size: int
    content: list[tuple[int, ...]] = field(init=False)
    _free: list[int] = field(init=False)
    _waiting: deque[tuple[Tokens, asyncio.Future[int]]] = field(default_factory=deque)
    _references: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.content = [()] * self.count
        self._free = list(range(self.count))  # the least recently used first

    @property
    def running(self) -> int:
        return self.count - len(self._free)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def used_blocks(self) -> int:
        """Blocks of the requests that are running."""
        busy = set(range(self.count)) - set(self._free)
        return sum(len(self.content[slot]) // self.block_size for slot in busy)

    async def acquire(self, tokens: Tokens) -> int:
        """The slot for a prompt; waits until one is free."""
        if self._free:
            return self._take(tokens)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        entry = (tokens, future)
        self._waiting.append(entry)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(future.result())
            elif entry in self._waiting:
                self._waiting.remove(entry)
            raise

    def shared(self, slot: int, tokens: Tokens) -> int:
        """Number of tokens at the beginning of a prompt that the slot contains."""
        return common_prefix(self.content[slot], tokens)

    def release(self, slot: int) -> None:
        """Give the slot to the next request, or keep it with its content."""
        self._free.append(slot)
        while self._waiting:
            tokens, future = self._waiting.popleft()
            if not future.done():
                future.set_result(self._take(tokens))
                return

    def set_content(self, slot: int, tokens: Tokens) -> Changes:
        """Record what a slot contains now."""
        old = [*blocks(self.content[slot], self.block_size)]
        new = [*blocks(tokens, self.block_size)]
        self.content[slot] = tuple(tokens)
        for block in new:
            self._references[block.hash] += 1
        stored = tuple(b for b in new if self._references[b.hash] == 1)
        for block in old:
            self._references[block.hash] -= 1
        removed = tuple(b.hash for b in old if self._references[b.hash] == 0)
        for number in removed:
            del self._references[number]
        return Changes(stored, removed)

    def _take(self, tokens: Tokens) -> int:
        slot = max(self._free, key=lambda s: self._gain(s, tokens))
        self._free.remove(slot)
        return slot

    def _gain(self, slot: int, tokens: Tokens) -> float:
        """Tokens that need not be computed, less half of those that would be lost. Of equal slots
        the least recently used is first."""
        content = self.content[slot]
        shared = self.shared(slot, tokens)
        return shared - (len(content) - shared) / 2


class KvEvents:
    """Publishes the changes of the slots for Dynamo's router; nothing before the runtime has a
    publisher."""

    def __init__(self, slots: Slots) -> None:
        self._block_size = slots.block_size
        self._publisher: Any = None

    def start(self, publisher: Any) -> None:
        self._publisher = publisher

    def publish(self, changes: Changes) -> None:
        if self._publisher is None:
            return
        if changes.removed:
            self._publisher.publish_removed(list(changes.removed))
        if changes.stored:
            first = changes.stored[0]
            self._publisher.publish_stored(
                token_ids=[token for block in changes.stored for token in block.tokens],
                num_block_tokens=[self._block_size] * len(changes.stored),
                block_hashes=[block.hash for block in changes.stored],
                parent_hash=first.parent,
            )
