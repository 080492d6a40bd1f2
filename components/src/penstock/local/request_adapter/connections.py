"""HTTP/1.1 of the adapter: it reads requests strictly, and passes responses on.

Of a response, only the head is parsed.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from http.client import responses
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from .errors import Refusal

if TYPE_CHECKING:
    from .client_reads import ClientRead

LOOPBACK = "127.0.0.1"
LARGEST_HEAD = 64 * 2**10  # bytes
LARGEST_BODY = 192 * 2**20  # bytes; Dynamo's default
HEAD_END, LAST_CHUNK = b"\r\n\r\n", b"\r\n0\r\n\r\n"
CHUNKED = (b"transfer-encoding", b"chunked")
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# Without what two servers could read differently: folded headers, and CR, LF or NUL in a value.
HEAD = re.compile(
    rb"(%b) (?:https?://[^/?#\s]+)?(/[!\"$-~]*) (HTTP/1\.[01])\r\n((?:%b:[^\r\n\0]*\r\n)*)\r\n"
    % (TOKEN, TOKEN)
)
CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
LENGTH = re.compile(rb"[0-9]{1,12}")
# Of one hop (RFC 9110), and those that the adapter writes.
HOP = tuple(
    b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade host expect "
    b"content-length".split()
)
MALFORMED = Refusal(message="The request is not valid HTTP/1.1.")
HEAD_TOO_LARGE = Refusal(message="The head of the request is too large.", status=431)
BODY_TOO_LARGE = Refusal(message="The body of the request is too large.", status=413)


class RequestError(Exception):
    """A request that gets an error as its response."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


Headers = Sequence[tuple[bytes, bytes]]


def headers_of(lines: bytes) -> Headers:
    """Names in lower case."""
    pairs = (line.partition(b":") for line in lines.split(b"\r\n") if line)
    return [(name.lower(), text.strip(b" \t")) for name, _, text in pairs]


@cache
def lines_of(*names: bytes) -> re.Pattern[bytes]:
    """Matches the lines of headers with these names."""
    return re.compile(rb"(?im)^(?:%b):.*\n" % b"|".join(names))


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    target: str
    version: bytes
    lines: bytes
    """The headers as they arrived, each with CRLF."""
    headers: Headers
    body: bytes

    @cached_property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def stays_open(self) -> bool:
        """Whether the client may send another request on the connection."""
        closes = any(n == b"connection" and b"close" in text.lower() for n, text in self.headers)
        return self.version == b"HTTP/1.1" and not closes

    def encode(self, body: bytes, read: ClientRead | None) -> bytes:
        """For the frontend."""
        head = f"{self.method} {self.target} ".encode() + self.version
        head += b"\r\nhost: localhost\r\ncontent-length: %d\r\n" % len(body)
        if read is None:
            return head + lines_of(*HOP).sub(b"", self.lines) + b"\r\n" + body
        head += f"traceparent: {read.traceparent}\r\n".encode()
        return head + lines_of(*HOP, b"traceparent").sub(b"", self.lines) + b"\r\n" + body


async def read_request(client: Client) -> Request:
    """Raises IncompleteReadError at the end of the connection."""
    try:
        match = HEAD.fullmatch(await client.reader.readuntil(HEAD_END))
    except asyncio.LimitOverrunError as error:
        raise RequestError(HEAD_TOO_LARGE) from error
    if match is None:
        raise RequestError(MALFORMED)
    method, target, version, lines = match.groups()
    headers = headers_of(lines)
    if (b"expect", b"100-continue") in headers:
        client.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return Request(
        method=method.decode(),
        target=target.decode(),
        version=version,
        lines=lines,
        headers=headers,
        body=await _read_body(client.reader, headers),
    )


async def _read_body(reader: asyncio.StreamReader, headers: Headers) -> bytes:
    lengths = [text for name, text in headers if name == b"content-length"]
    codings = [text.lower() for name, text in headers if name == b"transfer-encoding"]
    if codings:
        if codings != [b"chunked"] or lengths:
            raise RequestError(MALFORMED)
        return await _read_chunks(reader)
    if len(lengths) > 1 or not all(map(LENGTH.fullmatch, lengths)):
        raise RequestError(MALFORMED)
    length = int(lengths[0]) if lengths else 0
    if length > LARGEST_BODY:
        raise RequestError(BODY_TOO_LARGE)
    return await reader.readexactly(length)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        match = CHUNK_SIZE.fullmatch(await reader.readuntil(b"\r\n"))
        if match is None:
            raise RequestError(MALFORMED)
        size = int(match[1], 16)
        if size == 0:
            break
        if len(body) + size > LARGEST_BODY:
            raise RequestError(BODY_TOO_LARGE)
        body += (await reader.readexactly(size + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # a trailer
    return bytes(body)


class Client(asyncio.Protocol):
    """A connection of a client, whose requests ``serve`` answers one after the other."""

    read: ClientRead | None = None
    """The measurement of the response that is being sent."""

    def __init__(
        self,
        serve: Callable[[Client], Awaitable[None]],
        clients: set[Client],
        unused: list[Upstream],
    ) -> None:
        """``unused``: connections to the frontend without a request."""
        self._serve, self._clients, self._unused = serve, clients, unused
        self._is_full = False
        self.reader = asyncio.StreamReader(LARGEST_HEAD)
        self.upstream: Upstream | None = None
        self.is_idle = True
        """Between two requests."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.reader.set_transport(transport)
        self._clients.add(self)
        self._task = asyncio.ensure_future(self._serve(self))

    def data_received(self, data: bytes) -> None:
        self.reader.feed_data(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._task.cancel()
        self._clients.discard(self)

    def pause_writing(self) -> None:
        """The buffers are full: the client reads more slowly than the frontend writes."""
        self._set_full(True)

    def resume_writing(self) -> None:
        self._set_full(False)

    def _set_full(self, is_full: bool) -> None:
        self._is_full = is_full
        if self.read is not None:
            self.read.note_full(is_full)
        if self.upstream is not None:
            self.upstream.pause(is_full)

    async def connect(self, port: int) -> Upstream:
        """To the frontend; an unused connection, if there is one."""
        while self._unused and self.upstream is None:
            upstream = self._unused.pop()
            self.upstream = None if upstream.transport.is_closing() else upstream
        if self.upstream is None:
            loop = asyncio.get_running_loop()
            _, self.upstream = await loop.create_connection(Upstream, LOOPBACK, port)
        self.upstream.pause(self._is_full)
        return self.upstream

    def disconnect(self) -> None:
        """The frontend cancels a request that has not ended, when the connection ends."""
        upstream, self.upstream = self.upstream, None
        if upstream is not None and upstream.is_reusable:
            upstream.pause(False)
            self._unused.append(upstream)
        elif upstream is not None:
            upstream.transport.abort()

    def refuse(
        self, refusal: Refusal, lines: bytes = b"", *, has_body: bool = True, is_last: bool = False
    ) -> None:
        """``lines``: headers of the response that this one replaces, such as Retry-After.

        Without a charset, as Dynamo's: Envoy compares the header exactly (`local/envoy.py`).
        """
        body = json.dumps(refusal.body()).encode()
        head = f"HTTP/1.1 {refusal.status} {responses.get(refusal.status, '')}\r\n".encode()
        head += lines_of(*HOP, b"content-type").sub(b"", lines)
        head += b"connection: close\r\n" * is_last
        head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(head + body * has_body)


class Upstream(asyncio.Protocol):
    """A connection to the frontend, for one request at a time. The response follows `pass_on`."""

    def __init__(self) -> None:
        self.has_begun, self.has_ended = asyncio.Event(), asyncio.Event()
        """With the head and a part of the body; with all of it, or with the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        self.has_begun.set()
        self.has_ended.set()

    def pause(self, is_paused: bool) -> None:
        if not self.transport.is_closing() and is_paused == self.transport.is_reading():
            (self.transport.pause_reading if is_paused else self.transport.resume_reading)()

    def send(self, client: Client, request: Request, body: bytes) -> None:
        self._client, self._is_last = client, request.version != b"HTTP/1.1"
        self.has_begun.clear()
        self.has_ended.clear()
        self.head, self.lines, self._body = b"", b"", b""
        self._expects_body = request.method != "HEAD"
        self._is_passed_on, self._size, self._last = False, 0, HEAD_END
        self.transport.write(request.encode(body, self._client.read))

    def data_received(self, data: bytes) -> None:
        if not self.head:
            self._body += data
            if HEAD_END not in self._body:
                return
            end = self._body.index(HEAD_END)
            data, head = self._body[end + len(HEAD_END) :], self._body[: end + 2]
            self._body = b""
            self._parse_head(head)
        self._size += len(data)
        self._last = (self._last + data)[-len(LAST_CHUNK) :]
        if self._is_passed_on:
            self._pass(data)
        else:
            self._body += data
        if self._is_complete:
            self.has_ended.set()
            self.has_begun.set()
        elif self._body:
            self.has_begun.set()

    def _parse_head(self, head: bytes) -> None:
        self.head, _, self.lines = head.partition(b"\r\n")
        self.status, headers = int(self.head.split(b" ", 2)[1]), headers_of(self.lines)
        length = dict(headers).get(b"content-length")
        if not self._expects_body or self.status in (204, 304):
            length = b"0"
        self._length = None if length is None else int(length)
        """Bytes of the body; None: it ends with a last chunk, or with the connection."""
        self._is_chunked = CHUNKED in headers
        self._is_framed = length is not None or self._is_chunked

    @property
    def is_reusable(self) -> bool:
        is_open = bool(self.head) and not self.transport.is_closing()
        return is_open and not self._is_last and self._is_framed and self._is_complete

    @property
    def _is_complete(self) -> bool:
        if self._length is not None:
            return self._size >= self._length
        return self._is_framed and self._last == LAST_CHUNK

    def content(self) -> bytes:
        """What has arrived of the body, without the sizes of its chunks."""
        if not self._is_chunked:
            return self._body
        content, rest = b"", self._body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            content += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return content

    async def pass_on(self, more: Mapping[str, str]) -> bool:
        """Whether the client sees where the response ends without an end of the connection.

        ``more``: headers to add.
        """
        added = "".join(f"{name}: {text}\r\n" for name, text in more.items()).encode()
        lines = lines_of(b"connection").sub(b"", self.lines) + added
        self._is_passed_on = True
        self._pass(self.head + b"\r\n" + lines + b"\r\n" + self._body)
        await self.has_ended.wait()
        if self._is_framed and not self._is_complete:
            self._client.transport.abort()  # the client must not take it for a complete response
        return self._is_framed

    def _pass(self, data: bytes) -> None:
        self._client.transport.write(data)
        if self._client.read is not None:
            self._client.read.end_ns = time.time_ns()
