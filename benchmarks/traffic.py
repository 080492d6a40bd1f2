"""Sends streaming requests to an OpenAI endpoint, and checks each on the client's side.

The counters of a server do not distinguish a truncated stream from a short output; a client that
requested a number of tokens does. Used by the benchmarks and by the end-to-end tests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx


class RejectedError(Exception):
    """A server error instead of a stream."""


@dataclass(frozen=True, kw_only=True)
class StreamResult:
    """The result of one request."""

    number: int
    error: str  # empty: exactly the requested tokens, one chunk each, then [DONE]
    rejections: tuple[str, ...] = ()  # errors of earlier attempts
    started_s: float
    first_token_s: float
    ended_s: float


@dataclass
class Traffic:
    """Streaming requests. Times are in seconds since the start.

    A request that is rejected with a server error before its first token is retried; a truncated
    stream is not.
    """

    url: str
    model: str
    requests: int
    concurrency: int
    tokens: int  # of output, per request
    prefixes: int = 8  # number of shared prefixes, used in turn, for the KV router
    retries: int = 0  # OpenAI's clients retry twice
    hold: bool = False  # keep sending requests after the first `requests`
    results: list[StreamResult] = field(default_factory=list)

    @property
    def failures(self) -> list[StreamResult]:
        return [o for o in self.results if o.error]

    @property
    def retried(self) -> list[StreamResult]:
        """Requests that were retried."""
        return [o for o in self.results if o.rejections]

    async def run(self) -> None:
        limits = httpx.Limits(max_connections=self.concurrency)
        timeout = httpx.Timeout(120)
        numbers = itertools.takewhile(self._goes_on, itertools.count())
        start = time.monotonic()
        async with httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as client:

            async def sender() -> None:
                for number in numbers:
                    self.results.append(await self._request(client, number, start))

            await asyncio.gather(*(sender() for _ in range(self.concurrency)))

    def _goes_on(self, number: int) -> bool:
        return self.hold or number < self.requests

    async def _request(self, client: httpx.AsyncClient, number: int, start: float) -> StreamResult:
        rejections: list[str] = []
        while True:
            try:
                return await self._stream(client, number, start, tuple(rejections))
            except RejectedError as rejection:
                rejections.append(str(rejection))
            await asyncio.sleep(0.5 * 2 ** (len(rejections) - 1))  # as OpenAI's clients wait

    async def _stream(
        self, client: httpx.AsyncClient, number: int, start: float, rejections: tuple[str, ...]
    ) -> StreamResult:
        """RejectedError for a request that is to be retried."""
        began = time.monotonic() - start
        first = began
        chunks = 0
        error = ""
        try:
            async for chunk in self._chunks(client, number):
                if chunk is None:
                    break
                if chunks == 0:
                    first = time.monotonic() - start
                chunks += _tokens(chunk)
                error = error or _usage_error(chunk, self.tokens)
            else:
                error = error or f"ended without [DONE] after {chunks} chunks"
        except RejectedError as rejection:
            if len(rejections) < self.retries:
                raise
            error = str(rejection)
        except (httpx.HTTPError, ValueError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        if not error and chunks != self.tokens:
            error = f"{chunks} tokens streamed, {self.tokens} requested"
        return StreamResult(
            number=number,
            error=error,
            rejections=rejections,
            started_s=began,
            first_token_s=first,
            ended_s=time.monotonic() - start,
        )

    async def _chunks(
        self, client: httpx.AsyncClient, number: int
    ) -> AsyncIterator[dict[str, Any] | None]:
        """The events of the stream; None stands for [DONE]."""
        async with client.stream(
            "POST", f"{self.url}/chat/completions", json=self._body(number)
        ) as response:
            if response.status_code != 200:
                message = f"HTTP {response.status_code}: {(await response.aread())[:200]!r}"
                raise RejectedError(message) if response.status_code >= 500 else ValueError(message)
            async for line in response.aiter_lines():
                if line.startswith("event: error"):
                    raise ValueError("an error event in the stream")
                if line == "data: [DONE]":
                    yield None
                elif line.startswith("data:"):
                    yield json.loads(line[5:])

    def _body(self, number: int) -> dict[str, object]:
        prefix = f"You are assistant {number % self.prefixes}. " + "Keep to the point. " * 40
        return {
            "model": self.model,
            "messages": [
                {"role": "system", "content": prefix},
                {"role": "user", "content": f"Question {number}: how much water flows?"},
            ],
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


def _tokens(chunk: dict[str, Any]) -> int:
    """Dynamo sends one chunk per token, then one with the finish reason, then the usage."""
    return sum(choice.get("finish_reason") is None for choice in chunk.get("choices") or ())


def _usage_error(chunk: dict[str, Any], tokens: int) -> str:
    usage = chunk.get("usage")
    if not isinstance(usage, dict) or usage.get("completion_tokens") == tokens:
        return ""
    return f"usage says {usage.get('completion_tokens')} tokens, {tokens} requested"
