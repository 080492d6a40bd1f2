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

from penstock.bench.shadow.response import (
    BrokenResponseError,
    ShadowResponse,
    StreamReader,
    document,
    failed,
    is_stream,
    refused,
)
from penstock.verify.target import LOOPBACK

KEY, KEY_OF_SECOND = "OPENAI_API_KEY", "OPENAI_API_KEY_B"
CONNECT_S = 15.0
Headers = Mapping[bytes, bytes]
ATTEMPTS, PAUSE_S = 3, 1.0  # of asking whether an endpoint still responds


class OutageError(Exception):
    """The endpoint no longer responds."""

    def __init__(self, endpoint: ShadowEndpoint, reason: str) -> None:
        super().__init__(f"{endpoint} no longer responds: {reason}")
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class ShadowEndpoint:
    name: str
    """A or B."""
    url: str
    """Without `/v1`."""
    model: str | None
    """Name of the model in its requests; None keeps that of the request."""
    listed: tuple[str, ...] = ()
    """With `--listen`, the models that A listed before the first request."""

    def __str__(self) -> str:
        return f"{self.name} ({self.url})"

    @property
    def key(self) -> str:
        """API key from the environment; empty if there is none."""
        own_key = os.environ.get(KEY_OF_SECOND) if self.name == "B" else None
        return own_key or os.environ.get(KEY) or ""


class Client:
    """``timeout_s``: of one request."""

    def __init__(self, endpoint: ShadowEndpoint, timeout_s: float, http: httpx.AsyncClient) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._http = http

    async def send(
        self, path: str, body: Mapping[str, Any], headers: Headers | None = None
    ) -> ShadowResponse:
        """The response; one with an `error` if there is no complete one. ``headers``: in addition
        to the key. OutageError if the endpoint does not respond to `/v1/models` either."""
        began = time.monotonic()
        error = ""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._sent(path, body, headers or {}, began)
        except BrokenResponseError as broken:
            return failed(str(broken), _since(began))
        except RecursionError:
            return failed("the request is nested too deeply", _since(began))
        except TimeoutError:
            error = f"no complete response within {self._timeout_s:g} s"
        except httpx.InvalidURL:
            return failed("a redirect to an invalid URL", _since(began))
        except httpx.HTTPError as http_error:
            error = _reason(http_error)
        await self._require_up(error)
        return failed(error, _since(began))

    async def _sent(
        self, path: str, body: Mapping[str, Any], headers: Headers, began: float
    ) -> ShadowResponse:
        url = f"{self.endpoint.url}{path}"
        # Not `json=`, which rejects NaN and half of a surrogate pair, and clients may send them.
        content = json.dumps(dict(body)).encode()
        sent = {b"Content-Type": b"application/json", **headers}
        async with self._http.stream("POST", url, content=content, headers=sent) as response:
            if response.status_code != 200:
                return refused(response.status_code, await response.aread(), _since(began))
            if is_stream(response.headers.get("content-type", "")):
                return await _streamed(response, began)
            data = await response.aread()
            return document(data, _since(began))

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
        raise OutageError(self.endpoint, error)


@asynccontextmanager
async def connected(endpoint: ShadowEndpoint, timeout_s: float) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    async with httpx.AsyncClient(
        timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
        limits=httpx.Limits(max_connections=None),
        trust_env=httpx.URL(endpoint.url).host not in LOOPBACK,  # a proxy must not see loopback
        verify=httpx.create_ssl_context(),
        headers=headers,
    ) as http:
        yield Client(endpoint, timeout_s, http)


@asynccontextmanager
async def both_connected(
    endpoints: tuple[ShadowEndpoint, ShadowEndpoint], timeout_s: float
) -> AsyncIterator[tuple[Client, Client]]:
    first, second = endpoints
    async with connected(first, timeout_s) as to_first, connected(second, timeout_s) as to_second:
        yield to_first, to_second


async def _streamed(response: httpx.Response, began: float) -> ShadowResponse:
    reader = StreamReader()
    async for data in response.aiter_bytes():
        reader.feed(data, _since(began))
        if reader.is_complete:
            break
    return reader.response(_since(began))


def _since(began: float) -> float:
    return time.monotonic() - began


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "the connection was refused or failed"
    if isinstance(error, httpx.TimeoutException):
        return "no response in time"
    return "the connection ended early"
