"""Sends requests to one endpoint and reads the responses."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from penstock.bench.shadow.response import Assembler, BrokenResponseError, ShadowResponse
from penstock.verify.target import LOOPBACK

KEY, KEY_OF_SECOND = "OPENAI_API_KEY", "OPENAI_API_KEY_B"
CONNECT_S = 15.0
ATTEMPTS, PAUSE_S = 3, 1.0  # of asking whether an endpoint still responds
REJECTED = frozenset({400, 404, 413, 422})
DETAIL_CHARACTERS = 300
LONGEST_LINE = 2**26  # characters of one event; a response that never ends must not fill the memory


class OutageError(Exception):
    """The endpoint no longer responds; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class ShadowEndpoint:
    name: str
    """A or B."""
    url: str
    """Without `/v1`."""
    model: str | None
    """Name of the model in its requests; None keeps that of the request."""

    def __str__(self) -> str:
        return f"{self.name} ({self.url})"

    @property
    def key(self) -> str:
        """API key from the environment; empty if there is none."""
        own = os.environ.get(KEY_OF_SECOND) if self.name == "B" else None
        return own or os.environ.get(KEY) or ""


class Client:
    """``timeout_s``: of one request."""

    def __init__(self, endpoint: ShadowEndpoint, timeout_s: float, http: httpx.AsyncClient) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._http = http

    async def send(self, path: str, body: Mapping[str, Any]) -> ShadowResponse:
        """The response; one with an `error` if there is no complete one. OutageError if the
        endpoint does not respond to `/v1/models` either."""
        began = time.monotonic()
        error = ""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._sent(path, body, began)
        except BrokenResponseError as broken:
            return _failed(str(broken), began)
        except TimeoutError:
            error = f"no complete response within {self._timeout_s:g} s"
        except httpx.InvalidURL:
            return _failed("a redirect to an invalid URL", began)
        except httpx.HTTPError as http_error:
            error = _reason(http_error)
        await self._require_up(error)
        return _failed(error, began)

    async def _sent(self, path: str, body: Mapping[str, Any], began: float) -> ShadowResponse:
        url = f"{self.endpoint.url}{path}"
        async with self._http.stream("POST", url, json=dict(body)) as response:
            status = response.status_code
            if status != 200:
                detail = (await response.aread()).decode(errors="replace")[:DETAIL_CHARACTERS]
                reason = f"HTTP {status}"
                if response.is_redirect:
                    reason += ", a redirect, which is not followed"
                found = _failed(reason, began, detail)
                return found if status not in REJECTED else _rejected(found)
            kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
            if kind == "text/event-stream":
                return await _streamed(response, began)
            if kind != "application/json":
                raise BrokenResponseError(f"the response is {kind or 'without a type'}, not JSON")
            return _document(await response.aread(), began)

    async def _require_up(self, error: str) -> None:
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE_S)
            try:
                async with asyncio.timeout(CONNECT_S):
                    await self._http.get(f"{self.endpoint.url}/v1/models")
                return
            except (httpx.HTTPError, TimeoutError):
                continue
        raise OutageError(f"{self.endpoint} no longer responds: {error}")


@asynccontextmanager
async def connected(endpoint: ShadowEndpoint, timeout_s: float) -> AsyncIterator[Client]:
    local = httpx.URL(endpoint.url).host in LOOPBACK
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    async with httpx.AsyncClient(
        timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
        limits=httpx.Limits(max_connections=None),
        trust_env=not local,  # a proxy must not see loopback
        verify=httpx.create_ssl_context(),
        headers=headers,
    ) as http:
        yield Client(endpoint, timeout_s, http)


async def _streamed(response: httpx.Response, began: float) -> ShadowResponse:
    found, is_complete = Assembler(), False
    async for data in _events(response):
        if data == "[DONE]":
            is_complete = True
            break
        found.add(_parsed(data), time.monotonic() - began)
    if not is_complete and not found.finish_reason:
        raise BrokenResponseError("the stream ended early")
    return found.response(time.monotonic() - began, is_stream=True)


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    """Data of the events of a stream. Comments are skipped."""
    async for line in response.aiter_lines():
        if len(line) > LONGEST_LINE:
            raise BrokenResponseError("an event of the stream is too long")
        if line.startswith("event:") and line.removeprefix("event:").strip() == "error":
            raise BrokenResponseError("an error in the stream")
        if line.startswith("data:"):
            yield line.removeprefix("data:").strip()


def _document(data: bytes, began: float) -> ShadowResponse:
    found, took_s = Assembler(), time.monotonic() - began
    found.add(_parsed(data.decode(errors="replace")), took_s)
    return found.response(took_s, is_stream=False)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BrokenResponseError("the response is not JSON") from None


def _failed(error: str, began: float, detail: str = "") -> ShadowResponse:
    took_ms = (time.monotonic() - began) * 1000
    return ShadowResponse(error=error, detail=detail, e2e_ms=took_ms)


def _rejected(found: ShadowResponse) -> ShadowResponse:
    return ShadowResponse(
        error=found.error, detail=found.detail, e2e_ms=found.e2e_ms, is_rejected=True
    )


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "the connection was refused or failed"
    if isinstance(error, httpx.TimeoutException):
        return "no response in time"
    return "the connection ended early"
