"""The adapter's HTTP server. It runs in the event loop of the frontend, to which it forwards.

One process, so that a kill, a hang or a suspension ends or stops both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import uvloop
from aiohttp import web

from .calls import Asked, CorrectedCalls, with_tokens
from .client_reads import ClientRead, ClientReads
from .hosts import UNKNOWN_HOST, is_served, not_served, pattern
from .limits import (
    SizeLimits,
    is_probably_too_long,
)
from .model import TOKENIZER, read_model
from .options import size_limits, split
from .prompt import Body, prompt_ids, prompt_text
from .refusal import Refusal
from .rules import (
    EMBEDDINGS,
    LIMITS,
    MOCKER,
    NOT_UTF8,
    RESPONSES,
    Verdict,
    context_error,
    event_error,
    no_embeddings,
    no_route,
    review,
    too_long,
    unwrapped_error,
)
from .watch import Watch

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEFAULT_LIMITS = SizeLimits()
BODY_LIMIT = 192 * 2**20  # bytes; Dynamo's default
# Of one hop (RFC 9110), and Host and Content-Length, which aiohttp writes.
HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "host", "content-length"),
    }
)
IGNORED_HEADER = "x-penstock-ignored"
DEFAULT_LIMIT_HEADER = "x-penstock-default-max-tokens"
STOP_S = 5.0  # for open responses, after the frontend has ended
# A longer text is not tokenized in this process: it would stand still.
MOST_COUNTED, CHARACTERS_PER_TOKEN = 256 * 2**10, 4
TEMPLATE_TOKENS = 64  # the chat template's own tokens, at most; plus 8 per message
EVENT = b"data: "
EVENT_ERROR = EVENT + b'{"error"'


def main(argv: list[str]) -> None:
    """Run the frontend and the adapter until the frontend ends."""
    options, sys.argv = split(argv)
    uvloop.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    from dynamo.frontend.main import async_main

    upstream = f"http://127.0.0.1:{options.adapter_inner_port}"
    facts = options.adapter_model, options.adapter_template, options.adapter_tool_call_parser
    reads = ClientReads.of_environment()
    adapter = Adapter(
        options.adapter_engine,
        upstream,
        *facts,
        client_reads=reads,
        hosts=options.adapter_allow_host,
        limits=size_limits(options),
        output_limit=options.adapter_output_limit,
    )
    await adapter.start(options.http_host, options.http_port)
    try:
        await async_main()  # type: ignore[no-untyped-call]
    finally:
        await adapter.stop()


class Adapter:
    """Forwards every request to ``upstream``, and applies the rules of ``engine``."""

    def __init__(
        self,
        engine: str,
        upstream: str,
        folder: Path | None = None,
        template: Path | None = None,
        tool_call_parser: str | None = None,
        client_reads: ClientReads | None = None,
        hosts: Iterable[str] = (),
        limits: SizeLimits = DEFAULT_LIMITS,
        output_limit: int | None = None,
    ) -> None:
        """``folder``, ``template`` and ``tool_call_parser``: of the model; see `read_model`.
        ``output_limit``: see `review`."""
        self._engine, self._upstream, self._folder = engine, upstream, folder
        self._reads, self._output_limit = client_reads, output_limit
        self._limits = limits
        self._watch, self._long = Watch(), asyncio.Lock()
        self._context: int | None = None
        self._hosts = re.compile(pattern(hosts))
        self._model = read_model(folder, template, tool_call_parser)
        self._client: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # With cancellation: a client that disconnects must cancel its request in the engine.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=STOP_S
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
        await site.start()
        if self._reads is not None:
            self._reads.start(self._client)
        self._watch.begin()

    async def stop(self) -> None:
        self._watch.end()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            if self._reads is not None:
                await self._reads.stop(self._client)
            await self._client.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        host = request.headers.get("host")  # browsers send it; HTTP/1.0 has none
        if host is not None and not self._hosts.fullmatch(host):
            return _error(UNKNOWN_HOST)
        if not is_served(request.path):
            return _error(not_served(request.path))
        raw = await request.read()
        has_rules = request.method == "POST" and request.path in LIMITS
        if has_rules and not _is_utf8(raw):
            return _error(NOT_UTF8)
        body, verdict = None, Verdict()
        if has_rules:
            context = await self._longest_context()
            param = "input" if request.path == RESPONSES else "messages"
            if refusal := self._limits.refused_unparsed(raw, param, context):
                return _error(refusal)
            with self._watch.on(_name(request, raw)):
                body = _parsed(raw)
                if refusal := self._limits.refused(len(raw), body, context):
                    return _error(refusal)
                if body is not None:
                    facts = self._engine, self._model, self._output_limit
                    verdict = review(request.path, body, *facts)
        if verdict.refusal is not None:
            return _error(verdict.refusal)
        if body is not None and verdict.changed:
            raw = json.dumps(body | dict(verdict.changed)).encode()
        is_long = has_rules and is_probably_too_long(len(raw), self._context)
        read = self._reads.begin(request) if self._reads is not None and has_rules else None
        try:
            async with self._long if is_long else contextlib.nullcontext():
                return await self._forward(request, raw, body, verdict, read)
        except aiohttp.ClientConnectorError:
            return _unavailable()
        finally:
            if self._reads is not None and read is not None:
                self._reads.end(read)

    async def _forward(
        self,
        request: web.Request,
        raw: bytes,
        body: Body | None,
        verdict: Verdict,
        read: ClientRead | None,
    ) -> web.StreamResponse:
        assert self._client is not None
        headers = _passed(request.headers.items())
        if read is not None:
            headers = [(name, value) for name, value in headers if name.lower() != "traceparent"]
            headers.append(("traceparent", read.traceparent))
        url = self._upstream + request.rel_url.raw_path_qs
        asks = self._client.request(
            request.method, url, headers=headers, data=raw or None, allow_redirects=False
        )
        with self._watch.unanswered(_name(request, raw)) as unanswered:
            async with asks as answer:
                first = b""
                if request.path in (*LIMITS, EMBEDDINGS) or _has_no_route(request, answer):
                    first = await answer.content.readany()
                    first += await answer.content.read() if answer.status >= 400 else b""
                    refusal = await self._rewritten(request, body, answer.status, first)
                    if refusal is not None:
                        return _error(refusal, _passed(answer.headers.items()))
                unanswered.cancel()
                calls = None
                if body is not None and verdict.checks_calls:
                    calls = await self._corrected_calls(body)
                return await _pass_on(request, answer, first, verdict, calls, read)

    async def _corrected_calls(self, body: Body) -> CorrectedCalls:
        await asyncio.to_thread(lambda: self._tokenizer)
        return CorrectedCalls(self._decode, Asked.of(body), keeps_tokens=not with_tokens(body))

    async def _rewritten(
        self, request: web.Request, body: Body | None, status: int, first: bytes
    ) -> Refusal | None:
        """The error for one of Dynamo's, in OpenAI's format; None to pass the response on.

        ``first``: all of an error's body, or the beginning of another response.
        """
        path = request.path
        if path == EMBEDDINGS and status == 404:
            return no_embeddings(self._engine)
        if not first and (status == 405 or (status == 404 and path not in LIMITS)):
            return no_route(request.method, path, status)
        refusal = None
        if body is not None and status == 400:
            refusal = context_error(path, _parsed(first))
        elif body is not None and (status == 500 or first.startswith(EVENT_ERROR)):
            refusal = await self._too_long(path, body) if self._engine == MOCKER else None
        if refusal is None and status >= 400:
            return unwrapped_error(path, status, _parsed(first))
        if refusal is None and first.startswith(EVENT_ERROR):
            event, _, _ = first.removeprefix(EVENT).partition(b"\n")
            return event_error(_parsed(event))
        return refusal

    async def _too_long(self, path: str, body: Body) -> Refusal | None:
        """The mocker reports a prompt above the context length as an internal error."""
        limit = (await self._context_lengths()).get(str(body.get("model")))
        tokens = max(prompt_ids(body), await asyncio.to_thread(self._count, prompt_text(body)))
        messages = body.get("messages") or body.get("input")
        count = len(messages) if isinstance(messages, list) else 0
        if limit is None or tokens + TEMPLATE_TOKENS + 8 * count < limit:
            return None
        return too_long(path, limit, max(tokens, limit + 1))

    async def _longest_context(self) -> int | None:
        """Of all models; read once."""
        if self._context is None:
            with contextlib.suppress(aiohttp.ClientError):
                self._context = max((await self._context_lengths()).values(), default=None)
        return self._context

    async def _context_lengths(self) -> dict[str, int]:
        """Model → its context length in tokens."""
        assert self._client is not None
        async with self._client.get(f"{self._upstream}/v1/models") as answer:
            listed = (_parsed(await answer.read()) or {}).get("data") or ()
        known = (entry for entry in listed if isinstance(entry.get("context_window"), int))
        return {str(entry.get("id")): int(entry["context_window"]) for entry in known}

    def _count(self, text: str) -> int:
        if self._folder is None or not text:
            return 0
        if len(text) > MOST_COUNTED:
            return len(text) // CHARACTERS_PER_TOKEN
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens))

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        """Loading it can take a second, and most requests need none."""
        from tokenizers import Tokenizer

        assert self._folder is not None
        return Tokenizer.from_file(str(self._folder / TOKENIZER))


def _name(request: web.Request, raw: bytes) -> str:
    """In the log; without the prompt."""
    return f"{request.method} {request.path} of {len(raw):,} bytes"


def _passed(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in HOP]


async def _pass_on(
    request: web.Request,
    answer: aiohttp.ClientResponse,
    first: bytes,
    verdict: Verdict,
    calls: CorrectedCalls | None,
    read: ClientRead | None,
) -> web.StreamResponse:
    """``first``: the beginning of the body; ``calls``: corrects the calls of the body."""
    headers = _passed(answer.headers.items())
    if verdict.ignored:
        headers.append((IGNORED_HEADER, ", ".join(verdict.ignored)))
    if verdict.default_limit is not None:
        headers.append((DEFAULT_LIMIT_HEADER, str(verdict.default_limit)))
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    response.headers.extend(headers)
    if answer.content_length is not None and calls is None:
        response.content_length = answer.content_length
    await response.prepare(request)
    try:
        async for data in _parts(answer, first, calls):
            if data:  # an empty chunk would end the response
                await (response.write(data) if read is None else read.write(response, data))
    except aiohttp.ClientError:
        # The frontend broke off. The client must see that, not a complete response.
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


async def _parts(
    answer: aiohttp.ClientResponse, first: bytes, calls: CorrectedCalls | None
) -> AsyncIterator[bytes]:
    """The body as it arrives; all at once if its calls are checked and it is no stream."""
    if calls is not None and answer.content_type == "application/json":
        yield calls.body(first + await answer.content.read())
        return
    yield first if calls is None else calls.part(first)
    async for data in answer.content.iter_any():
        yield data if calls is None else calls.part(data)
    if calls is not None:
        yield calls.end()


def _has_no_route(request: web.Request, answer: aiohttp.ClientResponse) -> bool:
    """Dynamo reports such a path of the API in a format of its own, or without a body."""
    return answer.status in (404, 405) and request.path.startswith("/v1/")


def _is_utf8(raw: bytes) -> bool:
    """Dynamo replaces invalid bytes of a prompt with U+FFFD."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parsed(raw: bytes) -> Body | None:
    """None for anything but a JSON object: Dynamo explains what is wrong with it."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _error(refusal: Refusal, headers: Iterable[tuple[str, str]] = ()) -> web.Response:
    """``headers``: of the response that this one replaces, such as Retry-After."""
    response = _json(refusal.body(), refusal.status)
    response.headers.extend((k, v) for k, v in headers if k.lower() != "content-type")
    return response


def _json(body: Body, status: int) -> web.Response:
    """Without a charset, as Dynamo's: Envoy compares the header exactly (`local/envoy.py`)."""
    raw = json.dumps(body).encode()
    return web.Response(body=raw, status=status, content_type="application/json")


def _unavailable() -> web.Response:
    error = {"message": "the frontend is not ready", "type": "server_error"}
    return _json({"error": error | {"param": None, "code": "not_ready"}}, 503)
