"""The adapter's HTTP server. It runs in the event loop of the frontend, to which it forwards.

One process, so that a kill, a hang or a suspension ends or stops both. The bytes of a response go
to the client as they arrive: to parse each token again would cost as much as Dynamo's HTTP server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import uvloop
from aiohttp import web

from .client_reads import ClientRead, ClientReads
from .errors import PROMPTS, Refusal, no_route, too_long, translated
from .hosts import UNKNOWN_HOST, is_served, not_served, pattern
from .rules import (
    ACCEPT_IGNORED_HEADER,
    LIMITS,
    MOCKER,
    MOST_MESSAGES,
    Body,
    most_bytes,
    review,
    review_size,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LOOPBACK = "127.0.0.1"
BODY_LIMIT = 192 * 2**20  # bytes; Dynamo's default
# Of one hop (RFC 9110), and those that the adapter writes.
HOP = frozenset(
    b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade host expect "
    b"content-length".split()
)
STOP_S = 5.0  # for open responses, after the frontend has ended
UNANSWERED_S = 20.0  # less than the time after which a frontend that hangs is replaced
TEMPLATE_TOKENS = 64  # of the chat template, at most; plus 8 per message
CHUNKED = (b"transfer-encoding", b"chunked")
HEAD_END, LAST_CHUNK = b"\r\n\r\n", b"\r\n0\r\n\r\n"
EVENT = b"data: "
EVENT_ERROR = EVENT + b'{"error"'
NOT_UTF8 = Refusal(message="The body of the request is not valid UTF-8.")
NOT_READY = Refusal(message="the frontend is not ready", code="not_ready", status=503)


# Named so that they are none of the frontend's, such as --model: type, and default.
OPTIONS: dict[str, tuple[type, Any]] = {
    "engine": (str, MOCKER),
    "inner-port": (int, 0),
    "tokenizer": (Path, None),
    "renders-tools": (int, 1),
    "max-messages": (int, MOST_MESSAGES),
    "max-request-kib": (int, None),
    "output-limit": (int, None),
    "allow-hosts": (str, ""),  # separated by commas
}


def split(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The adapter's options, and the argv of the frontend behind it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, (kind, default) in OPTIONS.items():
        parser.add_argument(f"--adapter-{name}", type=kind, default=default)
    parser.add_argument("--http-host", required=True)
    parser.add_argument("--http-port", type=int, required=True)
    options, rest = parser.parse_known_args(argv)
    inner = ["--http-host", LOOPBACK, "--http-port", str(options.adapter_inner_port)]
    return options, ["dynamo.frontend", *rest, *inner]


def main(argv: list[str]) -> None:
    """Run the frontend and the adapter until the frontend ends."""
    options, sys.argv = split(argv)
    uvloop.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    from dynamo.frontend.main import async_main

    adapter = Adapter(options, ClientReads.of_environment())
    await adapter.start()
    try:
        await async_main()  # type: ignore[no-untyped-call]
    finally:
        await adapter.stop()


class Upstream(asyncio.Protocol):
    """A connection to the frontend, for one request at a time. The response follows `pass_on`."""

    _request: web.BaseRequest | None = None
    head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def begin(self, request: web.BaseRequest, read: ClientRead | None) -> None:
        assert request.transport is not None
        self._request, self._read, self._client = request, read, request.transport
        loop = asyncio.get_running_loop()
        self.has_begun: asyncio.Future[None] = loop.create_future()
        """With the head and a part of the body, or at the end."""
        self.has_ended: asyncio.Future[None] = loop.create_future()
        self.head, self.body = b"", b""
        self._is_passed_on, self._size, self._last = False, 0, HEAD_END
        if self.transport.is_closing():
            self._finish()

    def data_received(self, data: bytes) -> None:
        if not self.head:
            self.body += data
            if HEAD_END not in self.body:
                return
            self.head, _, data = self.body.partition(HEAD_END)
            self.body, self._length = b"", self._read_length()
        self._size += len(data)
        self._last = (self._last + data)[-len(LAST_CHUNK) :]
        if self._is_passed_on:
            self._pass(data)
        else:
            self.body += data
        if self.is_complete():
            self._finish()
        elif self.body and not self.has_begun.done():
            self.has_begun.set_result(None)

    def connection_lost(self, _: Exception | None) -> None:
        if self._request is not None:
            self._finish()

    def _finish(self) -> None:
        for future in (self.has_begun, self.has_ended):
            if not future.done():
                future.set_result(None)

    def _read_length(self) -> int | None:
        """Bytes of the body; None: it ends with a last chunk, or with the connection."""
        assert self._request is not None
        if self._request.method == "HEAD" or self.status in (204, 304):
            return 0
        length = dict(self.headers).get(b"content-length")
        return None if length is None else int(length)

    def is_complete(self) -> bool:
        if self._length is not None:
            return self._size >= self._length
        return self.is_framed() and self._last == LAST_CHUNK

    def is_framed(self) -> bool:
        """Whether the client can see where the response ends while the connection stays open."""
        return self._length is not None or CHUNKED in self.headers

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Without that of this connection; names in lower case, as Dynamo's are."""
        lines = (line.partition(b": ") for line in self.head.split(b"\r\n")[1:])
        headers = [(name.lower(), value) for name, _, value in lines]
        return [(name, value) for name, value in headers if name != b"connection"]

    def content(self) -> bytes:
        """What has arrived of the body, without the sizes of its chunks."""
        if CHUNKED not in self.headers:
            return self.body
        content, rest = b"", self.body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            content += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return content

    def pass_on(self, more: dict[str, str]) -> None:
        """``more``: headers to add."""
        first, *_ = self.head.split(b"\r\n", 1)
        lines = [b"%s: %s" % header for header in self.headers]
        lines += [f"{name}: {value}".encode() for name, value in more.items()]
        self._client.write(b"\r\n".join([first, *lines]) + HEAD_END)
        self._is_passed_on = True
        self._pass(self.body)

    def _pass(self, data: bytes) -> None:
        self._client.write(data)
        if self._read is not None:
            self._read.end_ns = time.time_ns()
        if self._client.get_write_buffer_size() > self._client.get_write_buffer_limits()[1]:
            self.transport.pause_reading()
            assert self._request is not None
            self._resumes = asyncio.create_task(self._resume(self._request))

    async def _resume(self, request: web.BaseRequest) -> None:
        """Once the client has read what is buffered for it."""
        now_ns = time.monotonic_ns if self._read is None else self._read.clock_ns
        began = now_ns()
        with contextlib.suppress(ConnectionError, RuntimeError):  # one of the two has left
            await request.writer.drain()
            self.transport.resume_reading()
        if self._read is not None:
            self._read.blocked_ns += now_ns() - began


class PassedOn(web.StreamResponse):
    """A response that the client already has."""

    def __init__(self, *, stays_open: bool) -> None:
        super().__init__()
        self._stays_open = stays_open

    @property
    def keep_alive(self) -> bool:
        return self._stays_open

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


class Adapter:
    """Forwards every request to the frontend, and applies the rules of the engine."""

    def __init__(
        self, options: argparse.Namespace, client_reads: ClientReads | None = None
    ) -> None:
        """``options``: of `split`."""
        self._options, self._reads = options, client_reads
        self._hosts = re.compile(pattern(filter(None, options.adapter_allow_hosts.split(","))))
        self._idle: list[Upstream] = []
        self._contexts: dict[str, int] = {}
        """Model → its context length in tokens."""

    async def start(self) -> None:
        loop = asyncio.get_running_loop()

        def request(message: Any, *parts: Any) -> web.BaseRequest:
            body, protocol, writer, task = parts
            return web.BaseRequest(
                message, body, protocol, writer, task, loop, client_max_size=BODY_LIMIT
            )

        # With cancellation: a client that disconnects must cancel its request in the engine.
        server = web.Server(
            self._handle, request_factory=request, handler_cancellation=True, access_log=None
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
        await self._runner.setup()
        host, port = self._options.http_host, self._options.http_port
        await web.TCPSite(self._runner, host, port, backlog=1024).start()
        if self._reads is not None:
            self._reads.start()

    async def stop(self) -> None:
        await self._runner.cleanup()
        for upstream in self._idle:
            upstream.transport.abort()
        if self._reads is not None:
            await self._reads.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        host = request.headers.get("host")  # browsers send it; HTTP/1.0 has none
        if host is not None and not self._hosts.fullmatch(host):
            return _error(UNKNOWN_HOST)
        if not is_served(request.path):
            return _error(not_served(request.path))
        raw = await request.read()
        if request.method != "POST" or request.path not in LIMITS:
            return await self._forward(request, raw, None, {})
        try:
            body = json.loads(raw)
        except UnicodeDecodeError:
            return _error(NOT_UTF8)  # Dynamo would replace invalid bytes of a prompt with U+FFFD
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):  # Dynamo explains what is wrong with it
            return await self._forward(request, raw, None, {})
        verdict = await self._too_large(request.path, len(raw), body) or review(
            request.path,
            body,
            self._options.adapter_engine,
            renders_tools=bool(self._options.adapter_renders_tools),
            output_limit=self._options.adapter_output_limit,
            accepts_ignored=ACCEPT_IGNORED_HEADER in request.headers,
        )
        if isinstance(verdict, Refusal):
            return _error(verdict)
        if verdict.changed:
            raw = json.dumps(body | verdict.changed).encode()
        return await self._forward(request, raw, body, verdict.headers)

    async def _too_large(self, path: str, size: int, body: Body) -> Refusal | None:
        kib, contexts = self._options.adapter_max_request_kib, await self._context_lengths(body)
        most = kib * 1024 if kib else most_bytes(max(contexts.values(), default=None))
        return review_size(path, size, body, most, self._options.adapter_max_messages)

    async def _forward(
        self, request: web.BaseRequest, raw: bytes, body: Body | None, more: dict[str, str]
    ) -> web.StreamResponse:
        """``body``: of ``raw``, if it has rules; ``more``: headers to add to the response."""
        read = self._reads.begin(request) if self._reads is not None and body is not None else None
        loop = asyncio.get_running_loop()
        timer = loop.call_later(UNANSWERED_S, _report_unanswered, request, len(raw))
        try:
            upstream = await self._connection()
        except ConnectionRefusedError:
            timer.cancel()
            return _error(NOT_READY)
        try:
            upstream.begin(request, read)
            upstream.transport.write(_head(request, len(raw), read) + raw)
            await upstream.has_begun
            timer.cancel()
            if not upstream.head:
                return _error(NOT_READY)
            if upstream.status >= 400:
                await upstream.has_ended
            refusal = await self._translated(request, body, upstream)
            if refusal is not None:
                return _error(refusal, upstream.headers)
            upstream.pass_on(more)
            await upstream.has_ended
            is_framed = upstream.is_framed()
            if is_framed and not upstream.is_complete() and request.transport is not None:
                request.transport.abort()  # the client must not take it for a complete response
            return PassedOn(stays_open=request.keep_alive and is_framed)
        finally:
            timer.cancel()
            self._release(upstream, request.version)
            if self._reads is not None and read is not None:
                self._reads.end(read)

    async def _connection(self) -> Upstream:
        """One that has no request, or a new one."""
        while self._idle:
            upstream = self._idle.pop()
            if not upstream.transport.is_closing():
                return upstream
        loop, port = asyncio.get_running_loop(), self._options.adapter_inner_port
        _, upstream = await loop.create_connection(Upstream, LOOPBACK, port)
        return upstream

    def _release(self, upstream: Upstream, version: tuple[int, int]) -> None:
        """The frontend cancels a request that has not ended, when the connection ends."""
        is_kept = bool(upstream.head) and version >= (1, 1)
        if is_kept and upstream.is_framed() and upstream.is_complete():
            self._idle.append(upstream)
        else:
            upstream.transport.abort()

    async def _translated(
        self, request: web.BaseRequest, body: Body | None, upstream: Upstream
    ) -> Refusal | None:
        """The error for one of Dynamo's, in OpenAI's format; None to pass the response on."""
        path, status, text = request.path, upstream.status, upstream.content()
        if not path.startswith("/v1/"):
            return None
        if not text and (status == 405 or (status == 404 and path not in LIMITS)):
            return no_route(request.method, path, status)
        is_event = text.startswith(EVENT_ERROR)
        if status < 400 and not is_event:
            return None
        if (
            body is not None
            and self._options.adapter_engine == MOCKER
            and (is_event or status == 500)
        ):
            refusal = await self._too_long(path, body)
            if refusal is not None:
                return refusal
        text = text.removeprefix(EVENT).partition(b"\n")[0] if is_event else text
        with contextlib.suppress(ValueError, RecursionError):
            return translated(path, status, json.loads(text))
        return translated(path, status, None)

    async def _too_long(self, path: str, body: Body) -> Refusal | None:
        """The mocker reports a prompt above the context length as an internal error."""
        limit = (await self._context_lengths(body)).get(str(body.get("model")))
        if limit is None or self._options.adapter_tokenizer is None:
            return None
        leaves = list(_leaves(body.get(PROMPTS[path])))
        text = "\n".join(leaf for leaf in leaves if isinstance(leaf, str))
        encoded = await asyncio.to_thread(lambda: self._tokenizer.encode(text))
        tokens = len(encoded.ids) + sum(isinstance(leaf, int) for leaf in leaves)
        if tokens + TEMPLATE_TOKENS + len(leaves) < limit:
            return None
        return too_long(path, limit, max(tokens, limit + 1))

    async def _context_lengths(self, body: Body) -> dict[str, int]:
        """Read again for a model that is not known yet."""
        if str(body.get("model")) not in self._contexts:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                port = self._options.adapter_inner_port
                self._contexts = await asyncio.to_thread(_listed_context_lengths, port)
        return self._contexts

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        """Loading it can take a second, and most requests need none."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self._options.adapter_tokenizer))


def _listed_context_lengths(port: int) -> dict[str, int]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/models")
        models = json.load(connection.getresponse())["data"]
    known = [model for model in models if isinstance(model.get("context_window"), int)]
    return {str(model["id"]): model["context_window"] for model in known}


def _leaves(prompt: Any) -> Iterator[Any]:
    """The texts and token ids of a prompt in any form."""
    if isinstance(prompt, list | dict):
        for item in prompt.values() if isinstance(prompt, dict) else prompt:
            yield from _leaves(item)
    else:
        yield prompt


def _report_unanswered(request: web.BaseRequest, size: int) -> None:
    """Without the prompt. Dynamo renders each chat template in a thread that cannot be stopped."""
    print(
        f"request adapter: {request.method} {request.path} of {size:,} bytes has no response after "
        f"{UNANSWERED_S:.0f} s: it waits for a worker, its output is not streamed, or the model's "
        "chat template does not end",
        file=sys.stderr,
        flush=True,
    )


def _head(request: web.BaseRequest, size: int, read: ClientRead | None) -> bytes:
    """Of the request to the frontend."""
    left_out = HOP if read is None else HOP | {b"traceparent"}
    target, version = request.rel_url.raw_path_qs, request.version
    lines = [f"{request.method} {target} HTTP/{version.major}.{version.minor}".encode()]
    lines += [b"%s: %s" % h for h in request.raw_headers if h[0].lower() not in left_out]
    lines += [b"host: localhost", b"content-length: %d" % size]
    lines += [] if read is None else [f"traceparent: {read.traceparent}".encode()]
    return b"\r\n".join(lines) + HEAD_END


def _error(refusal: Refusal, headers: Iterable[tuple[bytes, bytes]] = ()) -> web.Response:
    """``headers``: of the response that this one replaces, such as Retry-After.

    Without a charset, as Dynamo's: Envoy compares the header exactly (`local/envoy.py`).
    """
    kept = {
        name.decode(): value.decode("latin-1")
        for name, value in headers
        if name not in (*HOP, b"content-type")
    }
    raw = json.dumps(refusal.body()).encode()
    return web.Response(
        body=raw, status=refusal.status, headers=kept, content_type="application/json"
    )
