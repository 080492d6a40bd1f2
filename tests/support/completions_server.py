"""An OpenAI server of completions and chat that streams as the test says, and records what it sent.

It runs in a thread of the test, and recognizes a request by the number of its input tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import Any

LOOPBACK = "127.0.0.1"
LONGEST_BODY = 2**24  # bytes
MODEL = "scripted"


class End(Enum):
    """How a response ends."""

    COMPLETE = auto()
    WITHOUT_USAGE = auto()
    """After its tokens, without a count of them and without `[DONE]`."""
    CUT = auto()
    """The connection is closed after half of the tokens."""
    UNANSWERED = auto()
    """The connection is closed before the response."""
    SILENT = auto()
    """Nothing is sent until the client closes the connection."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """What a request gets."""

    first_s: float = 0.02
    gap_s: float = 0.005
    """Between two tokens."""
    stalls_s: Mapping[int, float] = field(default_factory=dict)
    """Additional time before the token with this number."""
    status: int = 200
    end: End = End.COMPLETE
    missing_tokens: int = 0
    """Of those that were requested."""
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """Of a chat response: its first tokens, which are reasoning."""

    def times_s(self, tokens: int) -> list[float]:
        """When each token is sent, from the request on."""
        stalled = [
            sum(took for at, took in self.stalls_s.items() if at <= n) for n in range(tokens)
        ]
        return [self.first_s + n * self.gap_s + stalled[n] for n in range(tokens)]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """Times of a complete response, in ms since the request was received."""

    input_tokens: int
    tokens: int
    first_ms: float
    last_ms: float
    longest_gap_ms: float
    first_output_ms: float | None
    """The first token after reasoning; None without one."""


Script = Callable[[int], Response]


@dataclass(kw_only=True)
class CompletionsServer:
    """``script``: the response to a request with this number of input tokens."""

    script: Script
    key: str = ""
    """The API key that it requires."""
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    url: str = ""
    """While it runs."""
    _connections: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[CompletionsServer]:
        ready = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)))
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            self.end()
            thread.join()

    def end(self) -> None:
        """Close all connections, as a server that is killed does, and accept no other."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._ended.set)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, LOOPBACK, 0, limit=LONGEST_BODY)
        self.url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await self._ended.wait()
        server.close()
        for task, connection in self._connections.items():
            connection.transport.abort()
            task.cancel()
        await asyncio.gather(*self._connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        ends = (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError)
        with contextlib.suppress(*ends):
            while await self._answered(reader, writer):
                pass
        writer.close()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether another request can follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        received_s = self._loop.time()
        if self.key and headers.get("authorization") != f"bearer {self.key}".lower():
            _respond(writer, 401, {"error": "no valid key"})
        elif head[0].startswith("GET"):
            _respond(writer, 200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            return await self._completed(json.loads(body), received_s, reader, writer)
        return True

    async def _completed(
        self,
        request: Mapping[str, Any],
        received_s: float,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        self.bodies.append(request)
        response = self.script(_input_tokens(request))
        if response.end is End.SILENT:
            await reader.read()
        if response.end in (End.SILENT, End.UNANSWERED):
            return False
        if response.status != 200:
            _respond(writer, response.status, {"error": "as scripted"})
            return True
        return await self._streamed(request, response, received_s, writer)

    async def _streamed(
        self,
        request: Mapping[str, Any],
        response: Response,
        received_s: float,
        writer: asyncio.StreamWriter,
    ) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        tokens = request["max_tokens"] - response.missing_tokens
        times_s = response.times_s(tokens)
        if response.end is End.CUT:
            times_s = times_s[: tokens // 2]
        sent_s = []
        for number, due_s in enumerate(times_s, start=1):
            await asyncio.sleep(received_s + due_s - self._loop.time())
            reason = "length" if number == tokens else None
            delta = _delta(request, is_reasoning=number <= response.reasoning_tokens)
            event = _event({"choices": [{**delta, "index": 0, "finish_reason": reason}]})
            sent_s.append(self._loop.time() - received_s)  # before a client that it wakes can run
            writer.write(event)
            await writer.drain()
        if response.end is End.CUT:
            return False
        if response.end is End.COMPLETE:
            self.sent.append(_sent(request, response, sent_s))
            writer.write(_event({"choices": [], "usage": _usage(request, tokens, response)}))
            writer.write(_chunk(b"data: [DONE]\n\n"))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _input_tokens(request: Mapping[str, Any]) -> int:
    """Of a completion its token ids, of a chat request its words."""
    if "messages" in request:
        return sum(len(message["content"].split()) for message in request["messages"])
    return len(request["prompt"])


def _delta(request: Mapping[str, Any], *, is_reasoning: bool) -> Mapping[str, Any]:
    """A token, in the form of the API of the request."""
    if "messages" in request:
        return {"delta": {"reasoning_content" if is_reasoning else "content": "a"}}
    return {"text": "a"}


def _sent(request: Mapping[str, Any], response: Response, sent_s: list[float]) -> Sent:
    gaps = [later - earlier for earlier, later in pairwise(sent_s)]
    output_s = sent_s[response.reasoning_tokens :]
    return Sent(
        input_tokens=_input_tokens(request),
        tokens=len(sent_s),
        first_ms=sent_s[0] * 1000,
        last_ms=sent_s[-1] * 1000,
        longest_gap_ms=max(gaps, default=0.0) * 1000,
        first_output_ms=output_s[0] * 1000 if output_s else None,
    )


def _usage(request: Mapping[str, Any], tokens: int, response: Response) -> Mapping[str, Any]:
    prompt = _input_tokens(request)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
        "prompt_tokens_details": {"cached_tokens": response.cached_tokens},
    }


def _event(more: Mapping[str, Any]) -> bytes:
    is_chat = any("delta" in choice for choice in more["choices"])
    kind = "chat.completion.chunk" if is_chat else "text_completion"
    event = {"id": "x", "object": kind, "model": MODEL, **more}
    return _chunk(b"data: " + json.dumps(event).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _respond(writer: asyncio.StreamWriter, status: int, body: Mapping[str, Any]) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} As-Scripted\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
