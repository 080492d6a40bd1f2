"""Streams against an OpenAI endpoint, each checked from the client's side.

A server's counters cannot tell a truncated stream from a short answer; the client, who asked for a
number of tokens, can. Used by the benchmarks here and by the end-to-end tests.
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


class RefusedError(Exception):
    """A server error in place of a stream."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One stream. ``error`` empty: exactly the tokens asked for, one chunk each, then [DONE].

    ``refused``: what earlier tries were answered, where refused requests are sent again.
    """

    number: int
    error: str
    refused: tuple[str, ...] = ()
    started_s: float
    first_token_s: float
    ended_s: float


@dataclass
class Traffic:
    """``requests`` streams of ``tokens`` tokens, ``concurrency`` at a time; more while ``hold``.

    A request that is refused with a server error, before its first token, is sent again ``retries``
    times: OpenAI's own clients do so twice. A stream that was cut never is.
    ``prefixes`` shared prompt beginnings are dealt out in turn, so that the KV router has something
    to route by. Times are in seconds since the start.
    """

    url: str
    model: str
    requests: int
    concurrency: int
    tokens: int
    prefixes: int = 8
    retries: int = 0
    hold: bool = False
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failures(self) -> list[Outcome]:
        return [o for o in self.outcomes if o.error]

    @property
    def repeated(self) -> list[Outcome]:
        """Those that were refused at first, and sent again."""
        return [o for o in self.outcomes if o.refused]

    async def run(self) -> None:
        limits = httpx.Limits(max_connections=self.concurrency)
        timeout = httpx.Timeout(120)
        numbers = itertools.takewhile(self._goes_on, itertools.count())
        start = time.monotonic()
        async with httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as client:

            async def sender() -> None:
                for number in numbers:
                    self.outcomes.append(await self._request(client, number, start))

            await asyncio.gather(*(sender() for _ in range(self.concurrency)))

    def _goes_on(self, number: int) -> bool:
        return self.hold or number < self.requests

    async def _request(self, client: httpx.AsyncClient, number: int, start: float) -> Outcome:
        refused: list[str] = []
        while True:
            try:
                return await self._stream(client, number, start, tuple(refused))
            except RefusedError as refusal:
                refused.append(str(refusal))
            await asyncio.sleep(0.5 * 2 ** (len(refused) - 1))  # as OpenAI's clients wait

    async def _stream(
        self, client: httpx.AsyncClient, number: int, start: float, refused: tuple[str, ...]
    ) -> Outcome:
        """Raises RefusedError for what is to be sent again."""
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
        except RefusedError as refusal:
            if len(refused) < self.retries:
                raise
            error = str(refusal)
        except (httpx.HTTPError, ValueError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        if not error and chunks != self.tokens:
            error = f"{chunks} tokens streamed, {self.tokens} asked for"
        return Outcome(
            number=number,
            error=error,
            refused=refused,
            started_s=began,
            first_token_s=first,
            ended_s=time.monotonic() - start,
        )

    async def _chunks(
        self, client: httpx.AsyncClient, number: int
    ) -> AsyncIterator[dict[str, Any] | None]:
        """The stream's events; None is [DONE]."""
        async with client.stream(
            "POST", f"{self.url}/chat/completions", json=self._body(number)
        ) as answer:
            if answer.status_code != 200:
                words = f"HTTP {answer.status_code}: {(await answer.aread())[:200]!r}"
                raise RefusedError(words) if answer.status_code >= 500 else ValueError(words)
            async for line in answer.aiter_lines():
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
    """Dynamo sends one chunk a token, then one that says why it stopped, then the usage."""
    return sum(choice.get("finish_reason") is None for choice in chunk.get("choices") or ())


def _usage_error(chunk: dict[str, Any], tokens: int) -> str:
    usage = chunk.get("usage")
    if not isinstance(usage, dict) or usage.get("completion_tokens") == tokens:
        return ""
    return f"usage says {usage.get('completion_tokens')} tokens, {tokens} asked for"
