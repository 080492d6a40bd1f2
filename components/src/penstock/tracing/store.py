"""The file of recorded traces, and the OTLP receiver on loopback that appends to it.

The file has messages as they were sent, each with its kind and length. The receiver does not
decode them; `read` does. Two files bound the size.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from penstock.files import append

NAME = "traces.otlp"
OLDER = "traces.1.otlp"
FILE_BYTES = 32 * 2**20  # about 3,000 requests of a disaggregated graph, at 11 KB each
_HEAD = struct.Struct(">BI")  # kind, length of the message in bytes
SCHEMA = b"dynamo.request.trace.v1"  # of a request record, in the OTLP log that contains it
TRACES = "/v1/traces"
MOCKER_TRACES = "/mocker/v1/traces"
MOST_BYTES = 64 * 2**20  # of one message; Dynamo sends at most 512 spans at once


class Kind(IntEnum):
    """What a message is: an OTLP request in protobuf, or JSON of the request adapter."""

    DAMAGED = 0  # never written; marks the damaged part of a file
    TRACES = 1
    LOGS = 2
    CLIENT_READS = 3
    MOCKER_TRACES = 4  # of a process that simulates the engine


PATHS = {
    TRACES: Kind.TRACES,
    MOCKER_TRACES: Kind.MOCKER_TRACES,
    "/v1/logs": Kind.LOGS,
    "/penstock/client-reads": Kind.CLIENT_READS,  # `PATH` of local/request_adapter/client_reads.py
}


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


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing for a process that ended during an export."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Receiver:
    """Listens from `__init__` on a free port of ``host`` until `stop`."""

    def __init__(self, folder: Path, host: str) -> None:
        handler = type("Handler", (_Handler,), {"writer": Writer(folder)})
        self._server = _Server((host, 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # the exporters keep their connections
    writer: Writer

    def do_POST(self) -> None:
        """Store one export; also log exports without a request record are acknowledged."""
        kind = PATHS.get(self.path)
        length = self.headers.get("content-length", "")
        if kind is None or not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True  # the body is not read
            self._respond(404 if kind is None else 413)
            return
        body = self.rfile.read(int(length))
        if kind is not Kind.LOGS or SCHEMA in body:
            try:
                self.writer.append(Message(kind=kind, body=body))
            except OSError:  # a full disk: the exporter drops the batch, the graph serves
                self._respond(507)
                return
        self._respond(200)

    def _respond(self, status: int) -> None:
        self.send_response_only(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Nothing: an export is not an event for the operator."""
