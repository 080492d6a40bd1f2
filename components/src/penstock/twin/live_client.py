"""Send the requests of a workload to an endpoint at their arrival times, and measure latencies.

Prompts are token ids, so that no tokenizer changes their lengths and shared prefixes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from penstock.simulate.window import ServedRequest
from penstock.workload import Request
from penstock.workload.request import prompt, with_blocks

TIMEOUT_S = 300.0


class LiveError(Exception):
    """A response that does not match its request."""


@dataclass(frozen=True, kw_only=True)
class LiveClient:
    """A client of one model at an endpoint."""

    url: str
    """Base URL, with `/v1`."""
    model: str
    speed: float = 1.0
    """Simulated seconds per real second."""

    async def serve(self, requests: Sequence[Request], salt: str = "") -> list[ServedRequest]:
        """Send the requests, which all have an arrival time; the results are in simulated time.

        ``salt`` changes the prompts, so that no cache has them. LiveError when a response does not
        have exactly the requested tokens.
        """
        bodies = [
            self._body(request, salt) for request in with_blocks(requests)
        ]  # before the clock starts
        limits = httpx.Limits(max_connections=None)
        timeout = httpx.Timeout(TIMEOUT_S / self.speed)
        async with httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as client:
            try:
                await client.get(
                    f"{self.url}/models"
                )  # a client's first request takes 50 ms longer
                begin = asyncio.get_running_loop().time()
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._one(client, begin, request, body))
                        for request, body in zip(requests, bodies, strict=True)
                    ]
            except (httpx.HTTPError, ExceptionGroup) as error:
                raise LiveError(_first_message(error)) from None
        return [task.result() for task in tasks]

    def _body(self, request: Request, salt: str) -> bytes:
        body = {
            "model": self.model,
            "prompt": prompt(request, salt),
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(body).encode()

    async def _one(
        self, client: httpx.AsyncClient, begin: float, request: Request, body: bytes
    ) -> ServedRequest:
        clock = asyncio.get_running_loop().time
        assert request.at_ms is not None, "a later turn has no fixed arrival time"
        await asyncio.sleep(begin + request.at_ms / 1000 / self.speed - clock())
        sent, times, usage = clock(), list[float](), dict[str, Any]()
        headers = {"content-type": "application/json"}
        async with client.stream(
            "POST", f"{self.url}/completions", content=body, headers=headers
        ) as response:
            if response.status_code != 200:
                raise LiveError(f"HTTP {response.status_code}: {(await response.aread())[:200]!r}")
            async for line in response.aiter_lines():
                chunk = _chunk(line)
                if any(choice.get("text") for choice in chunk.get("choices") or ()):
                    times.append(clock())
                usage = chunk.get("usage") or usage
        _require_tokens(request, usage, times)
        first, last = times[0], times[-1]
        tokens = request.output_tokens
        scale = 1000 * self.speed
        details = usage.get("prompt_tokens_details") or {}
        return ServedRequest(
            arrived_ms=(sent - begin) * scale,
            ended_ms=(last - begin) * scale,
            first_ms=(first - begin) * scale,
            tokens=tokens,
            ttft_ms=(first - sent) * scale,
            itl_ms=(last - first) * scale / (tokens - 1) if tokens > 1 else None,
            prefill_queue_ms=0.0,
            decode_queue_ms=None,
            input_tokens=request.input_tokens,
            cached_tokens=details.get("cached_tokens") or 0,
        )


def _first_message(error: Exception) -> str:
    first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return str(first) if isinstance(first, LiveError) else f"{type(first).__name__}: {first}"


def _chunk(line: str) -> dict[str, Any]:
    """An event of the stream; {} for lines without JSON, such as [DONE]."""
    if line.startswith("event: error"):
        raise LiveError("the stream contains an error event")
    return dict(json.loads(line[5:])) if line.startswith("data: {") else {}


def _require_tokens(request: Request, usage: dict[str, Any], times: Sequence[float]) -> None:
    actual = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    expected = (request.input_tokens, request.output_tokens)
    if actual != expected or not times:
        raise LiveError(f"input and output tokens: expected {expected}, got {actual}")
