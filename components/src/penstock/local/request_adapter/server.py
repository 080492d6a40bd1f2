"""The adapter's HTTP server. It runs in the event loop of the frontend, to which it forwards.

One process, so that a kill, a hang or a suspension ends or stops both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from .client_reads import ClientReads
from .connections import LOOPBACK, Client, Request, RequestError, Upstream, read_request
from .errors import PROMPTS, Refusal, no_route, too_long, translated
from .hosts import UNKNOWN_HOST, is_served, not_served, pattern
from .rules import LIMITS, MOCKER, MOST_MESSAGES, Accepted, Body, most_bytes, review, review_size

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STOP_S = 5.0  # for open responses, after the frontend has ended
UNANSWERED_S = 20.0  # less than the time after which a frontend that hangs is replaced
TEMPLATE_TOKENS = 64  # of the chat template, at most; plus 8 per message
EVENT = b"data: "
EVENT_ERROR = EVENT + b'{"error"'
NOT_UTF8 = Refusal(message="The body of the request is not valid UTF-8.")
NOT_READY = Refusal(message="the frontend is not ready", code="not_ready", status=503)


# Named so that they are none of the frontend's, such as --model: type, and default.
OPTIONS: dict[str, tuple[type, Any]] = {
    "engine": (str, MOCKER),
    "inner-port": (int, 0),
    "tokenizer": (Path, None),
    "renders-tools": (int, 1),
    "max-messages": (int, MOST_MESSAGES),
    "max-request-kib": (int, None),
    "output-limit": (int, None),
    "allow-hosts": (str, ""),  # separated by commas
}


def split(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The adapter's options, and the argv of the frontend behind it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, (kind, default) in OPTIONS.items():
        parser.add_argument(f"--adapter-{name}", type=kind, default=default)
    parser.add_argument("--http-host", required=True)
    parser.add_argument("--http-port", type=int, required=True)
    options, rest = parser.parse_known_args(argv)
    inner = ["--http-host", LOOPBACK, "--http-port", str(options.adapter_inner_port)]
    return options, ["dynamo.frontend", *rest, *inner]


def main(argv: list[str]) -> None:
    """Run the frontend and the adapter until the frontend ends."""
    options, sys.argv = split(argv)
    uvloop.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    from dynamo.frontend.main import async_main

    adapter = Adapter(options, ClientReads.of_environment())
    await adapter.start()
    try:
        await async_main()  # type: ignore[no-untyped-call]
    finally:
        await adapter.stop()


class Adapter:
    """Forwards every request to the frontend, and applies the rules of the engine."""

    def __init__(
        self, options: argparse.Namespace, client_reads: ClientReads | None = None
    ) -> None:
        """``options``: of `split`."""
        self._options, self._reads = options, client_reads
        self._hosts = re.compile(pattern(filter(None, options.adapter_allow_hosts.split(","))))
        self._clients: set[Client] = set()
        self._unused: list[Upstream] = []
        self._is_stopping = False
        self._contexts: dict[str, int] = {}
        """Model → its context length in tokens."""

    async def start(self) -> None:
        options, loop = self._options, asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Client(self._serve, self._clients, self._unused),
            options.http_host,
            options.http_port,
            backlog=1024,
        )
        if self._reads is not None:
            self._reads.start()

    async def stop(self) -> None:
        self._is_stopping = True
        self._server.close()
        for client in self._clients:
            if client.is_idle:
                client.transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while self._clients:
                    await asyncio.sleep(0.02)
        for client in self._clients:
            client.transport.abort()
        for upstream in self._unused:
            upstream.transport.abort()
        if self._reads is not None:
            await self._reads.stop()

    async def _serve(self, client: Client) -> None:
        """The requests of a connection, one after the other."""
        stays_open = True
        try:
            while stays_open and not self._is_stopping:
                client.is_idle = True
                request = await read_request(client)
                client.is_idle = False
                stays_open = await self._respond(client, request) and request.stays_open
        except RequestError as error:  # where the next request begins is not known
            client.refuse(error.refusal, is_last=True)
        except asyncio.IncompleteReadError:
            pass  # the client has left
        finally:
            client.transport.close()

    async def _respond(self, client: Client, request: Request) -> bool:
        """Whether the client sees where the response ends without an end of the connection."""
        try:
            body = self._checked(request)
            verdict = Accepted() if body is None else await self._review(request, body)
        except RequestError as error:
            client.refuse(error.refusal, has_body=request.method != "HEAD")
            return True
        raw = request.body
        if body is not None and verdict.changed:
            raw = json.dumps(body | verdict.changed).encode()
        if self._reads is not None and body is not None:
            client.read = self._reads.begin(dict(request.headers), client.transport)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(UNANSWERED_S, _report_unanswered, request)
        try:
            upstream = await client.connect(self._options.adapter_inner_port)
            upstream.send(client, request, raw)
            await upstream.has_begun.wait()
            timer.cancel()
            refusal = await self._refusal(request, body, upstream)
            if refusal is None:
                return await upstream.pass_on(verdict.headers)
            client.refuse(refusal, upstream.lines)
        except OSError:
            client.refuse(NOT_READY)
        finally:
            timer.cancel()
            client.disconnect()
            if self._reads is not None and client.read is not None:
                self._reads.end(client.read)
            client.read = None
        return True

    def _checked(self, request: Request) -> Body | None:
        """The parsed body if there are rules for it."""
        # Browsers send the header Host; HTTP/1.0 has none.
        hosts = [text.decode("latin-1") for name, text in request.headers if name == b"host"]
        if not all(map(self._hosts.fullmatch, hosts)):
            raise RequestError(UNKNOWN_HOST)
        if not is_served(request.path):
            raise RequestError(not_served(request.path))
        if request.method != "POST" or request.path not in LIMITS:
            return None
        try:
            body = json.loads(request.body)
        except UnicodeDecodeError as error:
            raise RequestError(NOT_UTF8) from error  # Dynamo would replace the bytes with U+FFFD
        except (ValueError, RecursionError):
            return None  # Dynamo explains what is wrong with it
        return body if isinstance(body, dict) else None

    async def _review(self, request: Request, body: Body) -> Accepted:
        options, contexts = self._options, await self._context_lengths(body)
        kib = options.adapter_max_request_kib
        most = kib * 1024 if kib else most_bytes(max(contexts.values(), default=None))
        size = len(request.body)
        too_large = review_size(request.path, size, body, most, options.adapter_max_messages)
        verdict = too_large or review(
            request.path,
            body,
            options.adapter_engine,
            renders_tools=bool(options.adapter_renders_tools),
            output_limit=options.adapter_output_limit,
        )
        if isinstance(verdict, Refusal):
            raise RequestError(verdict)
        return verdict

    async def _refusal(
        self, request: Request, body: Body | None, upstream: Upstream
    ) -> Refusal | None:
        """The error for one of Dynamo's, in OpenAI's format; None to pass the response on."""
        if not upstream.head:
            return NOT_READY
        path, status = request.path, upstream.status
        if status >= 400:
            await upstream.has_ended.wait()
        text = upstream.content()
        is_event = text.startswith(EVENT_ERROR)
        if not path.startswith("/v1/") or (status < 400 and not is_event):
            return None
        if not text and (status == 405 or (status == 404 and path not in LIMITS)):
            return no_route(request.method, path, status)
        is_internal = is_event or status == 500
        if body is not None and is_internal and self._options.adapter_engine == MOCKER:
            refusal = await self._too_long(path, body)
            if refusal is not None:
                return refusal
        answer = None
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(text.removeprefix(EVENT).partition(b"\n")[0] if is_event else text)
        return translated(path, status, answer)

    async def _too_long(self, path: str, body: Body) -> Refusal | None:
        """The mocker reports a prompt above the context length as an internal error."""
        limit = (await self._context_lengths(body)).get(str(body.get("model")))
        if limit is None or self._options.adapter_tokenizer is None:
            return None
        leaves = list(_leaves(body.get(PROMPTS[path])))
        text = "\n".join(leaf for leaf in leaves if isinstance(leaf, str))
        encoded = await asyncio.to_thread(lambda: self._tokenizer.encode(text))
        tokens = len(encoded.ids) + sum(isinstance(leaf, int) for leaf in leaves)
        if tokens + TEMPLATE_TOKENS + len(leaves) < limit:
            return None
        return too_long(path, limit, max(tokens, limit + 1))

    async def _context_lengths(self, body: Body) -> dict[str, int]:
        """Read again for a model that is not known yet."""
        if str(body.get("model")) not in self._contexts:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                port = self._options.adapter_inner_port
                self._contexts = await asyncio.to_thread(_listed_context_lengths, port)
        return self._contexts

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        """Loading it can take a second, and most requests need none."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self._options.adapter_tokenizer))


def _listed_context_lengths(port: int) -> dict[str, int]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/models")
        models = json.load(connection.getresponse())["data"]
    known = [model for model in models if isinstance(model.get("context_window"), int)]
    return {str(model["id"]): model["context_window"] for model in known}


def _leaves(value: Any) -> Iterator[Any]:
    """The texts and token ids of a prompt in any form."""
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _report_unanswered(request: Request) -> None:
    """Without the prompt. Dynamo renders each chat template in a thread that cannot be stopped."""
    print(
        f"request adapter: {request.method} {request.path} of {len(request.body):,} bytes has no "
        f"response after {UNANSWERED_S:.0f} s: it waits for a worker, its output is not streamed, "
        "or the model's chat template does not end",
        file=sys.stderr,
        flush=True,
    )
