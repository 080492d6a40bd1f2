"""The request adapter measures how its clients read, and sends the result to the receiver."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from aiohttp import web

from penstock.local.ports import LOOPBACK, Ports
from penstock.local.request_adapter.client_reads import PATH, PROXY_HEADERS, ClientRead, ClientReads
from penstock.local.request_adapter.errors import CHAT
from tests.local.test_request_adapter import adapter
from tests.support.waiting import LIMIT_S

CHUNK = b"data: " + b"x" * 1000 + b"\n\n"
CHUNKS = 2000
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Frontend:
    """Sends a long stream at once, and receives the measurements."""

    def __init__(self) -> None:
        self.traceparents: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.has_rows = asyncio.Event()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.traceparents.append(request.headers["traceparent"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(CHUNKS):
            await response.write(CHUNK)
        return response

    async def receive(self, request: web.Request) -> web.StreamResponse:
        self.rows += json.loads(await request.read())
        self.has_rows.set()
        return web.Response()


class Clock:
    """A millisecond passes whenever the client reads."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


async def measured(
    traceparent: str = "", header: bytes = b"", clock: Clock | None = None
) -> tuple[Frontend, int]:
    """The frontend after one request, and the bytes that its client read.

    With ``header``, it is the request of a proxy, and no measurement is awaited.
    """
    frontend, app, ports, clock = Frontend(), web.Application(), Ports(), clock or Clock()
    inner, outer = ports.free(), ports.free()
    app.router.add_post(CHAT, frontend.chat)
    app.router.add_post(PATH, frontend.receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, inner).start()
    url = f"http://{LOOPBACK}:{inner}"
    reads = ClientReads(url, export_s=0.01, clock_ns=clock)
    in_front = adapter("mocker", inner, outer, reads)
    await in_front.start()
    try:
        headers = {"traceparent": traceparent, header.decode(): "http"}
        size = await asyncio.to_thread(_read, outer, headers, clock)
        if not header:
            await asyncio.wait_for(frontend.has_rows.wait(), LIMIT_S)
    finally:
        await in_front.stop()
        await runner.cleanup()
    return frontend, size


def _read(port: int, headers: dict[str, str], clock: Clock) -> int:
    body = b'{"model": "m", "max_tokens": 8}'
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name and value)
    size = 0
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((LOOPBACK, port))
        connection.sendall(head.encode() + b"connection: close\r\n\r\n" + body)
        while part := connection.recv(65536):
            size += len(part)
            clock.now_ns += 1_000_000
    return size


@pytest.mark.asyncio
async def test_a_slow_client_is_measured_and_nothing_is_lost() -> None:
    """All time passes while the client reads, and the buffers take a small part of the response."""
    clock = Clock()
    frontend, size = await measured(clock=clock)
    assert size > CHUNKS * len(CHUNK)
    (row,) = frontend.rows
    assert 0.5 < row["blocked_ms"] * 1e6 / clock.now_ns <= 1
    (traceparent,) = frontend.traceparents
    assert traceparent.split("-")[2] == row["span_id"]
    assert traceparent.endswith("-01")


@pytest.mark.asyncio
@pytest.mark.parametrize("flags", ["00", "01", "03", "ff"])
async def test_the_trace_of_the_client_is_kept_and_always_sampled(flags: str) -> None:
    frontend, _ = await measured(f"00-{TRACE}-b7ad6b7169203331-{flags}")
    (traceparent,) = frontend.traceparents
    version, trace, span, sampled = traceparent.split("-")
    assert (version, trace, sampled) == ("00", TRACE, "01")
    assert span != "b7ad6b7169203331"


@pytest.mark.parametrize("sent", ["", f"00-{'0' * 32}-b7ad6b7169203331-01", "00-é-1", "x" * 9000])
def test_a_request_without_a_valid_trace_gets_a_new_one(sent: str) -> None:
    trace = ClientRead.of({b"traceparent": sent.encode()}).trace_id
    assert len(trace) == 32
    assert int(trace, 16)


@pytest.mark.asyncio
@pytest.mark.parametrize("header", [b"", *PROXY_HEADERS])
async def test_a_proxied_request_is_not_measured(header: bytes) -> None:
    frontend, _ = await measured(header=header)
    assert len(frontend.rows) == (0 if header else 1)
    assert len(frontend.traceparents) == 1


def test_a_frontend_without_traces_measures_nothing() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    assert ClientReads.of_environment(endpoint) is None
    assert ClientReads.of_environment({**endpoint, "OTEL_EXPORT_ENABLED": "true"}) is not None


@pytest.mark.asyncio
async def test_a_receiver_that_is_gone_does_not_matter() -> None:
    reads = ClientReads(f"http://{LOOPBACK}:{Ports().free()}")
    await reads.stop()  # nothing to send
    read = ClientRead.of({})
    read.end_ns = 1
    reads.end(read)
    await reads.stop()
