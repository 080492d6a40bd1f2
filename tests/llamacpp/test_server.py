"""Requests to llama.cpp's server, which the test plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument

from penstock.llamacpp.config import LlamaCppConfig
from penstock.llamacpp.server import LlamaServer, SlotError, optional
from tests.support.waiting import LIMIT_S

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[LlamaServer]:
    app = web.Application()
    app.router.add_post("/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    server = LlamaServer(SimpleNamespace(listening_address=f"http://127.0.0.1:{port}"))
    try:
        yield server
    finally:
        await server.close()
        await runner.cleanup()


def streaming(*events: dict[str, Any]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    return handle


def answering(status: int, text: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    return handle


@dataclass
class Endless:
    """A stream with one event, which does not end."""

    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Its connection was closed."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"content": "a"}\n\n')
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended.set()
        return response


def error(message: str) -> str:
    return json.dumps({"error": {"code": 400, "message": message}})


async def collect(server: LlamaServer) -> list[dict[str, Any]]:
    return [event async for event in server.stream({"prompt": [1]})]


def test_a_stream_is_its_events() -> None:
    async def test() -> None:
        async with serving(streaming({"content": "a"}, {"content": "é\n"})) as server:
            assert await collect(server) == [{"content": "a"}, {"content": "é\n"}]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("handler", "kind", "message"),
    [
        (answering(400, error("bad grammar")), InvalidArgument, "bad grammar"),
        (answering(503, "loading"), EngineShutdown, "loading"),
        (streaming({"error": {"message": "no memory"}}), EngineShutdown, "no memory"),
    ],
)
def test_an_invalid_request_and_a_failure_have_different_errors(
    handler: Handler, kind: type[Exception], message: str
) -> None:
    async def test() -> None:
        async with serving(handler) as server:
            with pytest.raises(kind, match=message):
                await collect(server)

    asyncio.run(test())


def test_a_failed_restore_is_not_the_clients_mistake() -> None:
    async def test() -> None:
        async with serving(answering(400, error("invalid slot save file"))) as server:
            with pytest.raises(SlotError, match="invalid slot save file"):
                await server.restore(0, 5)

    asyncio.run(test())


def test_streams_that_run_when_the_server_closes_are_migrated() -> None:
    """EngineShutdown is the error upon which the frontend asks another worker."""

    async def test() -> None:
        has_event = asyncio.Event()

        async def read(server: LlamaServer) -> None:
            async for _ in server.stream({"prompt": [1]}):
                has_event.set()  # it then waits for the next one

        async with serving(Endless().handle) as server:
            running = asyncio.create_task(read(server))
            await has_event.wait()
            await server.close()
            with pytest.raises(EngineShutdown):
                await asyncio.wait_for(running, LIMIT_S)
            with pytest.raises(EngineShutdown):
                await collect(server)

    asyncio.run(test())


def test_requests_that_wait_when_the_server_closes_are_migrated() -> None:
    async def test() -> None:
        has_request = asyncio.Event()

        async def hang(request: web.Request) -> web.StreamResponse:
            has_request.set()
            await asyncio.Event().wait()
            return web.Response()

        async with serving(hang) as server:
            running = asyncio.create_task(collect(server))
            await has_request.wait()
            await server.close()
            with pytest.raises(EngineShutdown):
                await asyncio.wait_for(running, LIMIT_S)

    asyncio.run(test())


def test_a_server_that_dies_is_a_failure_to_migrate() -> None:
    async def die(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def test() -> None:
        async with serving(die) as server:
            with pytest.raises(EngineShutdown):
                await collect(server)

    asyncio.run(test())


def test_leaving_a_stream_closes_its_connection() -> None:
    """llama.cpp cancels the task of a connection that ends."""

    async def test() -> None:
        endless = Endless()
        async with serving(endless.handle) as server:
            stream = server.stream({})
            assert await anext(stream) == {"content": "a"}
            await stream.aclose()
            await asyncio.wait_for(endless.has_ended.wait(), LIMIT_S)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("options", "set_"),
    [
        ({}, {}),
        ({"n_gpu_layers": -1, "n_ubatch": 64}, {"n_gpu_layers": 9999, "n_ubatch": 64}),
        ({"n_gpu_layers": 0}, {"n_gpu_layers": 0}),
        ({"n_gpu_layers": 24}, {"n_gpu_layers": 24}),
    ],
)
def test_all_layers_are_a_number_for_llama_cpp(
    options: dict[str, int], set_: dict[str, int]
) -> None:
    """For llama.cpp, -1 means as many layers as fit into the memory."""
    assert optional(LlamaCppConfig(**options)) == set_
