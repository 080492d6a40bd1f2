"""Sends streaming requests to an OpenAI endpoint, and checks each on the client's side.

The counters of a server do not distinguish a truncated stream from a short output; a client that
requested a number of tokens does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx

from penstock.local.envoy import FRONTEND_HEADER

RETRIED = (408, 409, 429)  # and 5xx, by OpenAI's clients
RETRY_S = 0.5  # as OpenAI's clients wait first


LONG_TOKENS = 4000  # of a long prompt


class RequestKind(StrEnum):
    """What a request asks for."""

    CHAT = "chat"
    GUIDED = "guided"  # output that follows a JSON schema
    TOOLS = "tools"  # a tool call
    LONG = "long"  # a chat with a long prompt

    @property
    def has_grammar(self) -> bool:
        """Whether the output follows a grammar: the number of tokens is not known, and Dynamo does
        not migrate the request (dynamo#7930)."""
        return self in (RequestKind.GUIDED, RequestKind.TOOLS)


_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "liters": {"type": "integer"}},
    "required": ["place", "liters"],
    "additionalProperties": False,
}
_TOOL = {"name": "report_flow", "description": "Report how much water flows", "parameters": _SCHEMA}
_PARAMETERS: Mapping[RequestKind, Mapping[str, object]] = {
    RequestKind.CHAT: {"ignore_eos": True},
    RequestKind.LONG: {"ignore_eos": True},
    RequestKind.GUIDED: {
        "response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": _SCHEMA}}
    },
    RequestKind.TOOLS: {
        "tools": [{"type": "function", "function": _TOOL}],
        "tool_choice": "required",
    },
}


class Ending(StrEnum):
    """How a request ended for its client."""

    # Exactly the requested tokens, or those of a grammar and a finish reason; then [DONE].
    COMPLETE = "complete"
    REJECTED = "rejected"  # an error status instead of a stream
    REFUSED = "refused"  # no response: no connection, or it was closed before the status
    TRUNCATED = "truncated"  # the stream ended before its last token
    DUPLICATED = "duplicated"  # more tokens than requested


class RejectedError(Exception):
    """No stream: an error that OpenAI's clients retry. ``wait_s``: what the server asks for."""

    def __init__(self, message: str, ending: Ending, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.ending, self.wait_s = ending, wait_s


@dataclass(frozen=True, kw_only=True)
class StreamResult:
    """The result of one request."""

    number: int
    kind: RequestKind = RequestKind.CHAT
    error: str  # empty: complete
    ending: Ending = Ending.COMPLETE
    rejections: tuple[str, ...] = ()  # errors of earlier attempts
    rejected_s: float | None = None  # the first of them
    started_s: float  # the first attempt
    first_token_s: float
    ended_s: float
    longest_gap_s: float = 0.0  # without a byte, in any attempt; not between two attempts
    gap_ended_s: float = 0.0
    chunks: int = 0  # with a token
    text: str = ""
    client_port: int | None = None  # of the connection; None: no response
    frontend_port: int | None = None  # None: not known


class _StatusError(Exception):
    """A client error instead of a stream."""


@dataclass
class _Stream:
    """What has arrived in response to a request. Times are those of ``clock``."""

    kind: RequestKind
    tokens: int
    one_chunk_per_token: bool
    clock: Callable[[], float]
    began: float
    first: float | None = None
    last: float = 0.0
    longest_gap: float = 0.0
    gap_ended: float = 0.0
    chunks: int = 0
    text: list[str] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)
    rejected: float | None = None
    error: str = ""
    is_done: bool = False
    has_usage: bool = False
    has_finished: bool = False  # a chunk had a finish reason
    rejection: Ending | None = None
    client_port: int | None = None
    frontend_port: int | None = None

    def attempt(self) -> None:
        self.last = self.clock()

    def waited(self) -> float:
        """Now: something has arrived, or the attempt has ended."""
        now = self.clock()
        if now - self.last > self.longest_gap:
            self.longest_gap, self.gap_ended = now - self.last, now
        self.last = now
        return now

    def accept(self, response: httpx.Response) -> None:
        """Note the connection."""
        address = response.extensions["network_stream"].get_extra_info("client_addr")
        self.client_port = address[1] if address else None
        port = response.headers.get(FRONTEND_HEADER, "").rpartition(":")[2]
        self.frontend_port = int(port) if port.isdigit() else None

    def add(self, chunk: dict[str, Any]) -> None:
        now = self.waited()
        self.first = now if self.first is None else self.first
        self.chunks += _tokens(chunk)
        self.text.append(_text(chunk))
        self.has_usage = self.has_usage or isinstance(chunk.get("usage"), dict)
        self.has_finished = self.has_finished or _has_finished(chunk)
        self.error = self.error or _reported(chunk)
        if not self.kind.has_grammar:
            self.error = self.error or _usage_error(chunk, self.tokens)

    def end(self) -> Ending:
        """Complete ``error``, and say how the request ended."""
        self.waited()
        self.error = self.error or self._missing()
        if self.rejection is not None:
            return self.rejection
        if self.chunks > self.tokens:
            return Ending.DUPLICATED
        if not self.error:
            return Ending.COMPLETE
        # Dynamo sends a tool call in one chunk, at its end.
        return Ending.TRUNCATED if self.chunks or self.kind.has_grammar else Ending.REFUSED

    def _missing(self) -> str:
        """What a stream without an error lacks, or has too much of."""
        after = f"after {self.chunks} chunks"
        if not self.is_done:
            return f"ended without [DONE] {after}"
        if self.kind.has_grammar and not self.has_finished:
            return f"ended without a finish reason {after}"
        if not (self.kind.has_grammar or self.one_chunk_per_token or self.has_usage):
            return f"ended without a usage chunk {after}"
        is_counted = self.one_chunk_per_token and not self.kind.has_grammar
        too_few = is_counted and self.chunks < self.tokens
        if too_few or self.chunks > self.tokens:
            return f"{self.chunks} tokens streamed, {self.tokens} requested"
        return ""


@dataclass
class Traffic:
    """Streaming requests. Times are in seconds since the start.

    As OpenAI's clients do, a request is sent again if there was no connection or a temporary error
    instead of a stream; a truncated stream is not.
    """

    url: str
    model: str
    requests: int
    concurrency: int
    tokens: int  # of output, per request
    kinds: tuple[RequestKind, ...] = (RequestKind.CHAT,)  # used in turn
    long_tokens: int = LONG_TOKENS  # of the prompt of `LONG`, approximately
    prefixes: int = 8  # number of shared prefixes, used in turn, for the KV router
    retries: int = 0  # OpenAI's clients retry twice
    retry_s: float = RETRY_S  # before the first retry; twice as long before each further one
    until_stopped: bool = False  # keep sending requests after the first `requests`
    prompts: int | None = None  # number of different prompts; None: each request has its own
    headers: Mapping[str, str] = field(default_factory=dict)
    trust_env: bool = False  # proxies and certificates of the environment; not for loopback
    one_chunk_per_token: bool = True  # false if a chunk can contain several tokens
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # before a request is sent again
    results: list[StreamResult] = field(default_factory=list)

    @property
    def failures(self) -> list[StreamResult]:
        return [o for o in self.results if o.error]

    @property
    def retried(self) -> list[StreamResult]:
        """Requests that were retried."""
        return [o for o in self.results if o.rejections]

    async def run(self, start: float | None = None) -> None:
        """Send the requests; ``start``: zero of the results' times, by default now."""
        limits = httpx.Limits(max_connections=self.concurrency)
        timeout = httpx.Timeout(120)
        numbers = itertools.takewhile(self._goes_on, itertools.count())
        start = self.clock() if start is None else start
        async with httpx.AsyncClient(
            limits=limits, timeout=timeout, headers=dict(self.headers), trust_env=self.trust_env
        ) as client:

            async def sender() -> None:
                for number in numbers:
                    self.results.append(await self._request(client, number, start))

            await asyncio.gather(*(sender() for _ in range(self.concurrency)))

    def _goes_on(self, number: int) -> bool:
        return self.until_stopped or number < self.requests

    async def _request(self, client: httpx.AsyncClient, number: int, start: float) -> StreamResult:
        stream = _Stream(
            kind=self._kind(number),
            tokens=self.tokens,
            one_chunk_per_token=self.one_chunk_per_token,
            clock=self.clock,
            began=self.clock(),
        )
        while (wait_s := await self._attempt(client, number, stream)) is not None:
            await self.sleep(wait_s)
        ending = stream.end()
        first = stream.began if stream.first is None else stream.first
        return StreamResult(
            number=number,
            kind=stream.kind,
            error=stream.error,
            ending=ending,
            rejections=tuple(stream.rejections),
            rejected_s=None if stream.rejected is None else stream.rejected - start,
            started_s=stream.began - start,
            first_token_s=first - start,
            ended_s=self.clock() - start,
            longest_gap_s=stream.longest_gap,
            gap_ended_s=stream.gap_ended - start,
            chunks=stream.chunks,
            text="".join(stream.text),
            client_port=stream.client_port,
            frontend_port=stream.frontend_port,
        )

    async def _attempt(
        self, client: httpx.AsyncClient, number: int, stream: _Stream
    ) -> float | None:
        """The seconds to wait before the next attempt; None: the request has ended."""
        stream.attempt()
        try:
            async with contextlib.aclosing(self._chunks(client, number, stream)) as chunks:
                async for chunk in chunks:
                    if chunk is None:
                        stream.is_done = True
                        break
                    stream.add(chunk)
        except RejectedError as rejection:
            if len(stream.rejections) < self.retries:
                now = stream.waited()
                stream.rejected = now if stream.rejected is None else stream.rejected
                stream.rejections.append(str(rejection))
                return rejection.wait_s or self.retry_s * 2 ** (len(stream.rejections) - 1)
            stream.error, stream.rejection = str(rejection), rejection.ending
        except _StatusError as status:
            stream.error, stream.rejection = str(status), Ending.REJECTED
        # The last three: JSON of another shape than a chunk's.
        except (httpx.HTTPError, ValueError, TypeError, AttributeError, RecursionError) as problem:
            stream.error = f"{type(problem).__name__}: {problem}"
        return None

    async def _chunks(
        self, client: httpx.AsyncClient, number: int, stream: _Stream
    ) -> AsyncGenerator[dict[str, Any] | None]:
        """The events of the stream; None stands for [DONE]."""
        url = f"{self.url}/chat/completions"
        request = client.build_request("POST", url, json=self._body(number))
        try:
            response = await client.send(request, stream=True)
        except httpx.HTTPError as error:
            message = f"{type(error).__name__}: {error}"
            raise RejectedError(message, Ending.REFUSED) from error
        async with contextlib.aclosing(response):
            if response.status_code != 200:
                raise await _rejection(response)
            stream.accept(response)
            async for line in response.aiter_lines():
                if line.startswith("event: error"):
                    raise ValueError("an error event in the stream")
                if line == "data: [DONE]":
                    yield None
                elif line.startswith("data:"):
                    yield json.loads(line[5:])

    def _kind(self, number: int) -> RequestKind:
        number = number if self.prompts is None else number % self.prompts
        return self.kinds[number % len(self.kinds)]

    def _body(self, number: int) -> dict[str, object]:
        kind = self._kind(number)
        if self.prompts is not None:
            number %= self.prompts
        prefix = f"You are assistant {number % self.prefixes}. " + "Keep to the point. " * 40
        is_long = kind is RequestKind.LONG
        more = " the" * self.long_tokens if is_long else ""  # about a token each
        return {
            "model": self.model,
            "messages": [
                {"role": "system", "content": prefix},
                {"role": "user", "content": f"Question {number}: how much water flows?{more}"},
            ],
            "max_tokens": self.tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **_PARAMETERS[kind],
        }


async def _rejection(response: httpx.Response) -> Exception:
    message = f"HTTP {response.status_code}: {(await response.aread())[:200]!r}"
    if response.status_code < 500 and response.status_code not in RETRIED:
        return _StatusError(message)
    after = response.headers.get("retry-after", "")
    return RejectedError(message, Ending.REJECTED, float(after) if after.isdigit() else None)


def _tokens(chunk: dict[str, Any]) -> int:
    """Dynamo sends a chunk per token, then one with the finish reason, then the usage. A chunk has
    several tokens if only together they are a character."""
    return sum(choice.get("finish_reason") is None for choice in chunk.get("choices") or ())


def _has_finished(chunk: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in chunk.get("choices") or ())


def _text(chunk: dict[str, Any]) -> str:
    choices = chunk.get("choices") or ()
    return "".join([(choice.get("delta") or {}).get("content") or "" for choice in choices])


def _reported(chunk: dict[str, Any]) -> str:
    """The error that the server sends instead of a chunk; empty for a chunk."""
    error = chunk.get("error")
    return f"the stream reports {json.dumps(error)[:300]}" if error else ""


def _usage_error(chunk: dict[str, Any], tokens: int) -> str:
    usage = chunk.get("usage")
    if not isinstance(usage, dict) or usage.get("completion_tokens") == tokens:
        return ""
    return f"usage reports {usage.get('completion_tokens')} output tokens, {tokens} were requested"
