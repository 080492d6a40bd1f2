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
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx

RETRIED = (408, 409, 429)  # and 5xx, by OpenAI's clients


class Ending(StrEnum):
    """How a request ended for its client."""

    COMPLETE = "complete"  # exactly the requested tokens, then [DONE]
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
    error: str  # empty: exactly the requested tokens, one chunk each, then [DONE]
    ending: Ending = Ending.COMPLETE
    rejections: tuple[str, ...] = ()  # errors of earlier attempts
    started_s: float
    first_token_s: float
    ended_s: float
    longest_gap_s: float = 0.0  # between two chunks, or before the first
    chunks: int = 0  # with a token
    text: str = ""


class _StatusError(Exception):
    """A client error instead of a stream."""


@dataclass
class _Stream:
    """What has arrived of one response. Times are those of `time.monotonic`."""

    tokens: int
    began: float
    one_chunk_per_token: bool = True
    first: float = 0.0
    last: float = 0.0
    longest_gap: float = 0.0
    chunks: int = 0
    text: list[str] = field(default_factory=list)
    error: str = ""
    is_done: bool = False
    has_usage: bool = False
    rejection: Ending | None = None

    def __post_init__(self) -> None:
        self.first = self.last = self.began

    def add(self, chunk: dict[str, Any]) -> None:
        now = time.monotonic()
        self.longest_gap = max(self.longest_gap, now - self.last)
        self.last = now
        if self.chunks == 0:
            self.first = now
        self.chunks += _tokens(chunk)
        self.text.append(_text(chunk))
        self.has_usage = self.has_usage or isinstance(chunk.get("usage"), dict)
        self.error = self.error or _usage_error(chunk, self.tokens)

    def end(self) -> Ending:
        """Complete ``error``, and say how the request ended."""
        self.longest_gap = max(self.longest_gap, time.monotonic() - self.last)
        if not self.error and not self.is_done:
            self.error = f"ended without [DONE] after {self.chunks} chunks"
        if not self.error and not (self.one_chunk_per_token or self.has_usage):
            self.error = f"ended without a usage chunk after {self.chunks} chunks"
        too_few = self.one_chunk_per_token and self.chunks < self.tokens
        if not self.error and (too_few or self.chunks > self.tokens):
            self.error = f"{self.chunks} tokens streamed, {self.tokens} requested"
        if self.rejection is not None:
            return self.rejection
        if self.chunks > self.tokens:
            return Ending.DUPLICATED
        if not self.error:
            return Ending.COMPLETE
        return Ending.TRUNCATED if self.chunks else Ending.REFUSED


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
    prefixes: int = 8  # number of shared prefixes, used in turn, for the KV router
    retries: int = 0  # OpenAI's clients retry twice
    until_stopped: bool = False  # keep sending requests after the first `requests`
    prompts: int | None = None  # number of different prompts; None: each request has its own
    headers: Mapping[str, str] = field(default_factory=dict)
    trust_env: bool = False  # proxies and certificates of the environment; not for loopback
    one_chunk_per_token: bool = True  # false if a chunk can contain several tokens
    results: list[StreamResult] = field(default_factory=list)

    @property
    def failures(self) -> list[StreamResult]:
        return [o for o in self.results if o.error]

    @property
    def retried(self) -> list[StreamResult]:
        """Requests that were retried."""
        return [o for o in self.results if o.rejections]

    async def run(self, start: float | None = None) -> None:
        """Send the requests; ``start``: zero of the results' clock, by default now (monotonic)."""
        limits = httpx.Limits(max_connections=self.concurrency)
        timeout = httpx.Timeout(120)
        numbers = itertools.takewhile(self._goes_on, itertools.count())
        start = time.monotonic() if start is None else start
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
        rejections: list[str] = []
        while True:
            try:
                return await self._stream(client, number, start, tuple(rejections))
            except RejectedError as rejection:
                rejections.append(str(rejection))
                wait_s = rejection.wait_s
            # As OpenAI's clients wait.
            await asyncio.sleep(wait_s or 0.5 * 2 ** (len(rejections) - 1))

    async def _stream(
        self, client: httpx.AsyncClient, number: int, start: float, rejections: tuple[str, ...]
    ) -> StreamResult:
        """RejectedError for a request that is to be retried."""
        stream = _Stream(
            tokens=self.tokens,
            began=time.monotonic(),
            one_chunk_per_token=self.one_chunk_per_token,
        )
        try:
            async for chunk in self._chunks(client, number):
                if chunk is None:
                    stream.is_done = True
                    break
                stream.add(chunk)
        except RejectedError as rejection:
            if len(rejections) < self.retries:
                raise
            stream.error, stream.rejection = str(rejection), rejection.ending
        except _StatusError as status:
            stream.error, stream.rejection = str(status), Ending.REJECTED
        except (httpx.HTTPError, ValueError) as problem:
            stream.error = f"{type(problem).__name__}: {problem}"
        ending = stream.end()
        return StreamResult(
            number=number,
            error=stream.error,
            ending=ending,
            rejections=rejections,
            started_s=stream.began - start,
            first_token_s=stream.first - start,
            ended_s=time.monotonic() - start,
            longest_gap_s=stream.longest_gap,
            chunks=stream.chunks,
            text="".join(stream.text),
        )

    async def _chunks(
        self, client: httpx.AsyncClient, number: int
    ) -> AsyncIterator[dict[str, Any] | None]:
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
            async for line in response.aiter_lines():
                if line.startswith("event: error"):
                    raise ValueError("an error event in the stream")
                if line == "data: [DONE]":
                    yield None
                elif line.startswith("data:"):
                    yield json.loads(line[5:])

    def _body(self, number: int) -> dict[str, object]:
        if self.prompts is not None:
            number %= self.prompts
        prefix = f"You are assistant {number % self.prefixes}. " + "Keep to the point. " * 40
        return {
            "model": self.model,
            "messages": [
                {"role": "system", "content": prefix},
                {"role": "user", "content": f"Question {number}: how much water flows?"},
            ],
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
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


def _text(chunk: dict[str, Any]) -> str:
    choices = chunk.get("choices") or ()
    return "".join((choice.get("delta") or {}).get("content") or "" for choice in choices)


def _usage_error(chunk: dict[str, Any], tokens: int) -> str:
    usage = chunk.get("usage")
    if not isinstance(usage, dict) or usage.get("completion_tokens") == tokens:
        return ""
    return f"usage reports {usage.get('completion_tokens')} output tokens, {tokens} were requested"
