"""A reverse proxy on loopback: forwards each request to A, and gives copies to `LiveComparison`.

The client gets A's bytes as they arrive. Copies are made after A's response is complete, so that B
cannot delay it. The proxy ends after a number of requests, after a time, or with Ctrl-C. Copies and
repeats that wait are then still sent while clients are served. A second Ctrl-C ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from penstock.bench.methods.context_adapter import (
    HOP,
    NO_BODY,
    bad_gateway,
    error_response,
    forwarding_session,
)
from penstock.bench.run import INTERRUPTED
from penstock.bench.shadow.client import both_connected
from penstock.bench.shadow.live import Exchange, LiveComparison
from penstock.bench.shadow.response import Recording
from penstock.errors import PortInUseError, Problem

# The proxy has already answered `Expect: 100-continue` itself.
NOT_FORWARDED = HOP | {"expect", "proxy-authorization"}
LONGEST_HEADER = 2**16  # bytes; a server behind it may permit as much
NOT_CONNECTED = "the connection was refused or failed"
ENDED_EARLY = "the connection ended early"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_S = 0.5  # for requests that are canceled
OF_A = web.ResponseKey("of_a", frozenset)  # names of the headers that A sent


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where the proxy listens, and for how long."""

    host: str
    port: int
    """0 for any free port."""
    duration_s: float | None
    """None for no limit."""


class _ClientGoneError(Exception):
    """The client closed its connection."""


@asynccontextmanager
async def listening(live: LiveComparison, listen: Listen, *, drain_s: float) -> AsyncIterator[str]:
    """The proxy's URL. PortInUseError. At the end, open responses have ``drain_s`` to end; after an
    exception, none."""
    url = live.run.endpoints[0].url
    async with forwarding_session(
        url,
        cookie_jar=aiohttp.DummyCookieJar(),
        max_line_size=LONGEST_HEADER,
        max_field_size=LONGEST_HEADER,
    ) as session:
        proxy = _Proxy(url, live, session)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        app.on_response_prepare.append(_remove_added_headers)
        runner = web.AppRunner(
            app,
            handler_cancellation=True,  # a client that disconnects cancels its request at A
            access_log=None,
            shutdown_timeout=STOP_S,
            logger=_silent(),
            auto_decompress=False,
            max_line_size=LONGEST_HEADER,
            max_field_size=LONGEST_HEADER,
        )
        await runner.setup()
        site = web.TCPSite(runner, listen.host, listen.port)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            message = f"cannot listen on {listen.host}:{listen.port}: {error.strerror or error}"
            fix = "Choose another port; with port 0, any free port is used."
            problem = Problem(place="--listen", message=message, fix=fix)
            raise PortInUseError(problem) from None
        try:
            yield f"http://{listen.host}:{runner.addresses[0][1]}"
            await site.stop()
            await proxy.drain(drain_s)
        finally:
            await runner.cleanup()


class _Proxy:
    def __init__(self, url: str, live: LiveComparison, session: aiohttp.ClientSession) -> None:
        self._url, self._live, self._session = url, live, session
        self._is_ending, self._open = False, 0
        self._idle = asyncio.Event()

    async def drain(self, timeout_s: float) -> None:
        """Wait until no request is open, or until ``timeout_s`` is over."""
        self._is_ending = True
        if self._open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_s)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self._open += 1
        try:
            return await self._handle(request)
        finally:
            self._open -= 1
            if self._is_ending and not self._open:
                self._idle.set()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._live.counts.forwarded += 1
        if not all(_is_utf8(value) for _, value in request.raw_headers):
            # aiohttp would drop the bytes.
            message = "bench shadow forwards only headers in UTF-8"
            return error_response(400, "invalid_request_error", message)
        is_selected = self._live.selects(request.method, request.rel_url.raw_path)
        recording, body, is_ended = Recording(), b"", False
        try:
            body = await request.content.read()
            response, is_ended = await self._forward(request, body, recording), True
        except _ClientGoneError:
            return web.Response()  # the client is gone
        finally:
            if is_selected and (is_ended or recording.is_done):
                self._live.add(
                    Exchange(
                        path=request.rel_url.raw_path,
                        body=body,
                        authorization=request.headers.get("Authorization", ""),
                        recording=recording,
                    )
                )
            elif is_selected and self._is_ending:
                self._live.uncount()
            elif is_selected:
                self._live.counts.disconnected += 1
        return response

    async def _forward(
        self, request: web.Request, body: bytes, recording: Recording
    ) -> web.StreamResponse:
        recording.began()
        try:
            upstream = await self._session.request(
                request.method,
                URL(f"{self._url}{_path_of(request)}", encoded=True),
                headers=_passed(request.raw_headers),
                data=body or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            recording.failed(NOT_CONNECTED)
            return bad_gateway(f"endpoint A does not respond: {error or type(error).__name__}")
        async with upstream:
            recording.started(upstream.status, upstream.headers)
            return await self._streamed(request, upstream, recording)

    async def _streamed(
        self, request: web.Request, upstream: aiohttp.ClientResponse, recording: Recording
    ) -> web.StreamResponse:
        """Each part as it comes; a response that breaks off is broken off."""
        response = web.StreamResponse(status=upstream.status, reason=upstream.reason)
        response.headers.update(_passed(upstream.raw_headers))
        if self._is_ending:
            response.force_close()  # a client that goes on would prevent the end
        response[OF_A] = frozenset(name.lower() for name in upstream.headers)
        try:
            await response.prepare(request)
            if request.method != "HEAD" and upstream.status not in NO_BODY:
                await _pass_on(response, upstream, recording)
            await response.write_eof()
        except (aiohttp.ClientConnectionResetError, ConnectionError):
            raise _ClientGoneError from None
        except aiohttp.ClientError:
            recording.failed(ENDED_EARLY)
            if request.transport is not None:
                request.transport.abort()
        return response


async def _pass_on(
    response: web.StreamResponse, upstream: aiohttp.ClientResponse, recording: Recording
) -> None:
    while part := await _part(upstream):
        recording.add(part)
        await response.write(part)


async def _part(upstream: aiohttp.ClientResponse) -> bytes:
    """What has arrived; empty at the end. aiohttp.ClientPayloadError if A breaks off."""
    try:
        return await upstream.content.readany()
    except ConnectionError as error:
        raise aiohttp.ClientPayloadError(str(error)) from None


def _passed(raw: tuple[tuple[bytes, bytes], ...]) -> CIMultiDict[str]:
    """With the names as they were sent: aiohttp's parsed headers change their case."""
    decoded = [(name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in raw]
    named = [value for name, value in decoded if name.lower() == "connection"]
    dropped = NOT_FORWARDED | {name.strip().lower() for value in named for name in value.split(",")}
    return CIMultiDict((name, value) for name, value in decoded if name.lower() not in dropped)


def _path_of(request: web.Request) -> str:
    """With the query. A client that treats this server as a forward proxy sends a whole URL."""
    is_path = request.raw_path.startswith("/")
    return request.raw_path if is_path else request.rel_url.raw_path_qs


def _silent() -> logging.Logger:
    """aiohttp logs malformed requests with their headers, in which keys can be."""
    logger = logging.Logger(__name__)
    logger.addHandler(logging.NullHandler())
    return logger


async def _remove_added_headers(_: web.Request, response: web.StreamResponse) -> None:
    """aiohttp adds these if they are missing."""
    sent = response.get(OF_A)
    if sent is not None:
        for name in ("Content-Type", "Date", "Server"):
            if name.lower() not in sent:
                response.headers.popall(name, None)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def mirror(live: LiveComparison, listen: Listen) -> str:
    """Serve until the end; the results are in ``live``. Returns what ended it early; empty if
    nothing did. PortInUseError."""
    try:
        asyncio.run(_mirror(live, listen))
    except asyncio.CancelledError:
        return INTERRUPTED
    return ""


async def _mirror(live: LiveComparison, listen: Listen) -> None:
    run, ended = live.run, asyncio.Event()
    async with AsyncExitStack() as opened:
        connections = both_connected(run.endpoints, run.timeout_s)
        first, second = await opened.enter_async_context(connections)
        opened.enter_context(_signals(live, ended))  # also while the proxy ends
        proxy = listening(live, listen, drain_s=run.timeout_s)
        url = await opened.enter_async_context(proxy)
        live.say(f"{url} forwards to {run.endpoints[0]}, with copies to {run.endpoints[1]}")
        live.say("Ctrl-C ends the comparison and prints the verdict")
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(live.work(first, second)) for _ in range(run.concurrency)]
            await _until_end(live, ended, listen.duration_s)
            await live.finish()
            for worker in workers:
                worker.cancel()


async def _until_end(live: LiveComparison, ended: asyncio.Event, duration_s: float | None) -> None:
    waiting = [asyncio.create_task(ended.wait()), asyncio.create_task(live.until_enough())]
    await asyncio.wait(waiting, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


@contextmanager
def _signals(live: LiveComparison, ended: asyncio.Event) -> Iterator[None]:
    """The first signal sets ``ended``, the second one cancels this task. Signals that are ignored,
    as `nohup` does, stay ignored."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if ended.is_set() and task is not None:
            task.cancel()
        else:
            live.say("ending: sending what waits; press Ctrl-C again to end at once")
            ended.set()

    before = {each: signal.getsignal(each) for each in SIGNALS}
    used = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    for number in used:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in used:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
