"""How long clients take to read their responses, for the receiver of `up --trace`.

Dynamo's spans do not show it: a response of megabytes fits into the buffers between the frontend
and its client. So a traced frontend has small buffers towards its clients, and this module measures
how long they are full.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

PATH = "/penstock/client-reads"
MOST = 10_000  # measurements that wait for an export; the receiver is in the process of `up`
SOCKET_BYTES = 64 * 1024
BUFFER_BYTES = 16 * 1024
# Sent by proxies such as the Envoy that `up` starts. A proxy buffers the response, so its reading
# says nothing about the client.
PROXY_HEADERS = (b"x-forwarded-proto", b"x-forwarded-for", b"forwarded", b"via")
TRACEPARENT = re.compile(rb"00-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(kw_only=True)
class ClientRead:
    """One response. Its span ID is the parent of Dynamo's span, which identifies the request."""

    trace_id: str
    is_measured: bool
    clock_ns: Callable[[], int] = time.monotonic_ns
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))
    blocked_ns: int = 0
    """Time in which the buffers towards the client were full."""
    _full_since_ns: int | None = None
    end_ns: int = 0
    """When the last byte was in these buffers; ns since the epoch."""

    @classmethod
    def of(
        cls, headers: Mapping[bytes, bytes], clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> ClientRead:
        """Keeps the client's trace ID if it is valid."""
        valid = TRACEPARENT.fullmatch(headers.get(b"traceparent", b""))
        return cls(
            trace_id=valid["trace"].decode() if valid else secrets.token_hex(16),
            is_measured=not any(name in headers for name in PROXY_HEADERS),
            clock_ns=clock_ns,
        )

    @property
    def traceparent(self) -> str:
        """With the sampled flag: `up --trace` records also requests that the client does not
        sample.

        Dynamo 1.6.1 exports no spans for the flag "not sampled", and ignores headers with flags
        that it does not know.
        """
        return f"00-{self.trace_id}-{self.span_id}-01"

    def note_full(self, is_full: bool) -> None:
        """Whether the buffers are full from now on."""
        now_ns = self.clock_ns()
        if self._full_since_ns is not None:
            self.blocked_ns += now_ns - self._full_since_ns
        self._full_since_ns = now_ns if is_full else None


class ClientReads:
    """Measures responses, and sends the measurements to the receiver at ``url`` every
    ``export_s``."""

    def __init__(
        self,
        url: str,
        *,
        export_s: float = 1.0,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._receiver, self._export_s, self._clock_ns = urlsplit(url).netloc, export_s, clock_ns
        self._ended: list[ClientRead] = []
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of_environment(cls, env: Mapping[str, str] = os.environ) -> ClientReads | None:
        """None if the frontend exports no traces."""
        url = env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        return cls(url) if url and env.get("OTEL_EXPORT_ENABLED") == "true" else None

    def begin(self, headers: Mapping[bytes, bytes], transport: asyncio.Transport) -> ClientRead:
        """``headers``: of the request; ``transport``: to its client."""
        read = ClientRead.of(headers, self._clock_ns)
        if read.is_measured:
            transport.set_write_buffer_limits(high=BUFFER_BYTES)
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        return read

    def end(self, read: ClientRead) -> None:
        if read.is_measured and read.end_ns and len(self._ended) < MOST:
            self._ended.append(read)

    def start(self) -> None:
        self._task = asyncio.create_task(self._export_always())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await asyncio.to_thread(self._export)

    async def _export_always(self) -> None:
        while True:
            await asyncio.sleep(self._export_s)
            await asyncio.to_thread(self._export)

    def _export(self) -> None:
        reads, self._ended = self._ended, []
        if not reads:
            return
        rows = [
            {"span_id": read.span_id, "end_ns": read.end_ns, "blocked_ms": read.blocked_ns / 1e6}
            for read in reads
        ]
        connection = HTTPConnection(self._receiver, timeout=5)
        # The receiver ends with `up`, and a full disk is no reason to serve less.
        with contextlib.closing(connection), contextlib.suppress(OSError, HTTPException):
            connection.request("POST", PATH, json.dumps(rows))
            connection.getresponse()
