"""The file of recorded traces: messages as they were sent, each with its kind and length.

The receiver appends and does not decode; `read` decodes. Two files bound the size.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from penstock.files import append

NAME = "traces.otlp"
OLDER = "traces.1.otlp"
FILE_BYTES = 32 * 2**20  # about 3,000 requests of a disaggregated graph, at 11 KB each
_HEAD = struct.Struct(">BI")  # kind, length of the message in bytes


class Kind(IntEnum):
    """What a message is: an OTLP request in protobuf, or JSON of the request adapter."""

    DAMAGED = 0  # never written; marks the damaged part of a file
    TRACES = 1
    LOGS = 2
    CLIENT_READS = 3
    MOCKER_TRACES = 4  # of a process that simulates the engine


STORED = frozenset(Kind) - {Kind.DAMAGED}


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message that the receiver got."""

    kind: Kind
    body: bytes


class Writer:
    """Appends messages; the threads of the receiver share it."""

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._older = folder / NAME, folder / OLDER
        self._limit = file_bytes
        self._lock = threading.Lock()

    def append(self, message: Message) -> None:
        """OSError if the disk is full; the file then keeps its previous content, so that later
        messages can be read."""
        record = _HEAD.pack(message.kind, len(message.body)) + message.body
        with self._lock:
            if self._path.exists() and self._path.stat().st_size + len(record) > self._limit:
                self._path.replace(self._older)
            with self._path.open("ab", buffering=0) as file:
                append(file, record)


def read(folder: Path) -> Iterator[Message]:
    """The messages, oldest first.

    A message that is incomplete ends its file: a process was killed, or the disk was full, while it
    was written.
    """
    for path in (folder / OLDER, folder / NAME):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        yield from _messages(data)


def _messages(data: bytes) -> Iterator[Message]:
    position = 0
    while position + _HEAD.size <= len(data):
        kind, length = _HEAD.unpack_from(data, position)
        start, position = position + _HEAD.size, position + _HEAD.size + length
        if kind not in STORED:
            yield Message(kind=Kind.DAMAGED, body=b"")  # the next message cannot be located
            return
        if position > len(data):
            return
        yield Message(kind=Kind(kind), body=data[start:position])
