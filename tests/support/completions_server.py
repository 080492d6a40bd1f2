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

from aiohttp import web

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
        app = web.Application(client_max_size=LONGEST_BODY)
        app.add_routes(
            [web.get("/{path:.*}", self._listed), web.post("/{path:.*}", self._completed)]
        )
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0).start()
        self.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
        ready.set()
        await self._ended.wait()
        for connection in runner.server.connections if runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    def _refused(self, request: web.Request) -> web.Response | None:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "no valid key"}, status=401)
        return None

    async def _listed(self, request: web.Request) -> web.Response:
        models = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        return self._refused(request) or web.json_response(models)

    async def _completed(self, request: web.Request) -> web.StreamResponse:
        received_s = self._loop.time()
        if refusal := self._refused(request):
            return refusal
        body = await request.json()
        self.bodies.append(body)
        response = self.script(_input_tokens(body))
        if response.end is End.SILENT:
            await self._ended.wait()  # or until the client closes the connection
        if response.end in (End.SILENT, End.UNANSWERED):
            return _closed(request, web.StreamResponse())
        if response.status != 200:
            return web.json_response({"error": "as scripted"}, status=response.status)
        return await self._streamed(request, body, response, received_s)

    async def _streamed(
        self, request: web.Request, body: Mapping[str, Any], response: Response, received_s: float
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        tokens = body["max_tokens"] - response.missing_tokens
        times_s = response.times_s(tokens)
        if response.end is End.CUT:
            times_s = times_s[: tokens // 2]
        sent_s = []
        for number, due_s in enumerate(times_s, start=1):
            await asyncio.sleep(received_s + due_s - self._loop.time())
            reason = "length" if number == tokens else None
            delta = _delta(body, is_reasoning=number <= response.reasoning_tokens)
            event = _event({"choices": [{**delta, "index": 0, "finish_reason": reason}]})
            sent_s.append(self._loop.time() - received_s)  # before a client that it wakes can run
            await stream.write(event)
        if response.end is End.CUT:
            return _closed(request, stream)
        if response.end is End.COMPLETE:
            self.sent.append(_sent(body, response, sent_s))
            await stream.write(_event({"choices": [], "usage": _usage(body, tokens, response)}))
            await stream.write(b"data: [DONE]\n\n")
        return stream


def _closed(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection after what was sent so far."""
    if request.transport is not None:
        request.transport.close()
    return response


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
    return b"data: " + json.dumps(event).encode() + b"\n\n"
