"""The context length that an endpoint serves, and an HTTP proxy on loopback that adds it to
`/v1/models`, and changes nothing else.

agentperf-local looks for `max_model_len`, which Dynamo's frontend does not send. `agentperf.py`
starts this proxy in a thread. A request that breaks off on one side is broken off on the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from penstock.verify.target import LOOPBACK, ProbeTarget

DYNAMO = "context_window"  # the key of Dynamo's frontend
VLLM = "max_model_len"  # of vLLM and SGLang
LLAMACPP = "n_ctx"  # in the object `meta`
HOST = "127.0.0.1"
# Of one hop (RFC 9110), and Host, which names the other server.
HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "host"),
    }
)
NO_BODY = frozenset({204, 304})
CONNECT_S = 15.0
STOP_S = 1.0  # for open responses


def reported_context(model: Mapping[str, Any]) -> int | None:
    """In tokens. ``model``: one entry of `/v1/models`. None if it does not contain a positive
    integer."""
    meta = model.get("meta")
    llamacpp = meta.get(LLAMACPP) if isinstance(meta, Mapping) else None
    for tokens in (llamacpp, model.get(VLLM), model.get(DYNAMO)):
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0:
            return tokens
    return None


def served_context(url: str, name: str) -> int | None:
    """In tokens, of model ``name`` at ``url`` (without `/v1`); None if it is not reported."""
    endpoint = ProbeTarget(url=url)
    try:
        listed = endpoint.get("/v1/models").body.get("data")
    finally:
        endpoint.close()
    entries = [
        entry for entry in listed or () if isinstance(entry, dict) and entry.get("id") == name
    ]
    return reported_context(entries[0]) if entries else None


@dataclass(frozen=True, kw_only=True)
class ContextAdapter:
    """``url``: of the endpoint, without `/v1`."""

    url: str
    configured: int | None
    """The context length of the graph in tokens; None for a URL."""

    @contextmanager
    def running(self) -> Iterator[str]:
        """The adapter's own URL, until the end."""
        started: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.new_event_loop()
        ended = asyncio.Event()
        thread = threading.Thread(
            target=_run, args=[loop, self._serve(started, ended)], name="context-adapter"
        )
        thread.start()
        try:
            yield asyncio.run_coroutine_threadsafe(started.get(), loop).result()
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()
            loop.close()

    async def _serve(self, started: asyncio.Queue[str], ended: asyncio.Event) -> None:
        async with forwarding_session(self.url, force_close=True) as session:
            server = web.Server(
                lambda request: self._answer(request, session),
                handler_cancellation=True,  # a client that closes its connection ends its request
            )
            runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
            await runner.setup()
            site = web.TCPSite(runner, HOST, 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            started.put_nowait(f"http://{host}:{port}")
            await ended.wait()
            await runner.cleanup()

    async def _answer(
        self, request: web.BaseRequest, session: aiohttp.ClientSession
    ) -> web.StreamResponse:
        is_list = request.method == "GET" and request.path.rstrip("/") == "/v1/models"
        headers = _passed(request.headers)
        if is_list:
            headers.popall("Accept-Encoding", None)  # it is read here
        try:
            upstream = await session.request(
                request.method,
                f"{self.url}{request.raw_path}",
                headers=headers,
                data=request.content if request.can_read_body else None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return bad_gateway(f"{self.url} does not respond: {error or type(error).__name__}")
        async with upstream:
            if is_list:
                return await self._models(upstream)
            return await _streamed(request, upstream)

    async def _models(self, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        try:
            body = await upstream.read()
        except aiohttp.ClientError as error:
            return bad_gateway(f"{self.url} sent no complete /v1/models: {error}")
        headers = _passed(upstream.headers)
        headers.popall("Content-Length", None)
        if upstream.status == 200 and "Content-Encoding" not in headers:
            body = self.with_context(body)
        return web.Response(status=upstream.status, body=body, headers=headers)

    def with_context(self, body: bytes) -> bytes:
        """``body`` of `/v1/models`, with `max_model_len` in each entry that lacks a context length
        in a form that agentperf-local reads. Anything else stays as it is."""
        try:
            listed = json.loads(body)
        except ValueError:
            return body
        entries = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(entries, list):
            return body
        added = [self._add_to(entry) for entry in entries if isinstance(entry, dict)]
        return json.dumps(listed).encode() if any(added) else body

    def _add_to(self, entry: dict[str, Any]) -> bool:
        has_own = VLLM in entry or LLAMACPP in (entry.get("meta") or {})
        known = [n for n in (reported_context(entry), self.configured) if n is not None]
        if has_own or not known:
            return False
        entry[VLLM] = min(known)
        return True


def _run(loop: asyncio.AbstractEventLoop, main: Any) -> None:
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main)


def _passed(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP)


def bad_gateway(message: str) -> web.Response:
    return error_response(502, "bad_gateway", message)


def error_response(status: int, kind: str, message: str) -> web.Response:
    """An error in OpenAI's format."""
    error = {"error": {"message": message, "type": kind, "code": status}}
    return web.json_response(error, status=status)


def forwarding_session(
    url: str, *, force_close: bool = False, **more: Any
) -> aiohttp.ClientSession:
    """For requests to ``url``, whose headers and bodies are passed on. ``more``: of aiohttp."""
    return aiohttp.ClientSession(
        # Long responses have no time limit here: the client has its own.
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
        connector=aiohttp.TCPConnector(limit=0, force_close=force_close),
        auto_decompress=False,  # bodies pass unchanged
        trust_env=httpx.URL(url).host not in LOOPBACK,  # a proxy must not see loopback
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        **more,
    )


async def _streamed(
    request: web.BaseRequest, upstream: aiohttp.ClientResponse
) -> web.StreamResponse:
    """Each part as it comes; a response that breaks off is broken off."""
    response = web.StreamResponse(status=upstream.status, reason=upstream.reason)
    response.headers.update(_passed(upstream.headers))
    await response.prepare(request)
    try:
        if request.method != "HEAD" and upstream.status not in NO_BODY:
            async for part in upstream.content.iter_any():
                await response.write(part)
    except (aiohttp.ClientError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
        return response
    with contextlib.suppress(ConnectionError):
        await response.write_eof()
    return response


def loopback_environment() -> dict[str, str]:
    """This process's environment, in which no proxy gets requests to the adapter."""
    known = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    hosts = ",".join(part for part in (known, HOST) if part)
    return {**os.environ, "NO_PROXY": hosts, "no_proxy": hosts}
