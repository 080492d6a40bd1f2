"""The request adapter: its start, and its server in front of a frontend that the test plays."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yarl
from aiohttp import web

from penstock.graph import gateway
from penstock.graph.gateway import Limits
from penstock.local.adapt import adapt
from penstock.local.adapter_launch import MOCKER_LIMIT, note, output_limit, with_adapter
from penstock.local.deployment import Overrides, Program
from penstock.local.launch import arguments
from penstock.local.ports import LOOPBACK, Ports
from penstock.local.request_adapter import rules, server
from penstock.local.request_adapter.client_reads import ClientReads
from penstock.local.request_adapter.errors import CHAT, COMPLETIONS, RESPONSES
from penstock.local.request_adapter.rules import DEFAULT_LIMIT_HEADER, IGNORED_HEADER
from penstock.local.request_adapter.server import Adapter, split
from penstock.manifests.deployment import Role
from penstock.tokenizer import FOLDER
from tests.local.builders import deployment, frontend, mocker
from tests.local.test_adapt import LAPTOP, no_settings, simulate
from tests.support.waiting import LIMIT_S, first


def _programs(*components: Any) -> tuple[Program, ...]:
    graph = deployment(*components)
    local = adapt(graph, LAPTOP, Overrides(), lambda _: FOLDER, simulate, no_settings)
    return local.programs


def test_the_frontend_of_mockers_starts_with_the_adapter_and_a_port_of_its_own() -> None:
    program = _programs(frontend(), mocker("worker", "agg"))[-1]
    argv = arguments(program, {}, {"inner": 21000}, host=LOOPBACK, port=8000)
    assert Path(argv[1]).name == "request_adapter"
    assert argv[argv.index("--adapter-engine") + 1] == "mocker"
    assert argv[argv.index("--adapter-inner-port") + 1] == "21000"
    assert argv[argv.index("--adapter-tokenizer") + 1] == str(FOLDER / "tokenizer.json")
    assert argv[argv.index("--adapter-output-limit") + 1] == str(MOCKER_LIMIT)
    assert argv[-4:] == ["--http-host", LOOPBACK, "--http-port", "8000"]
    assert "--router-mode" in argv


def test_the_frontend_of_engines_on_gpus_is_unchanged() -> None:
    launch = Program(
        name="a",
        component="a",
        role=Role.FRONTEND,
        replicas=1,
        env={},
        grace_s=1,
        argv=("python", "-m", "dynamo.frontend"),
    )
    worker = replace(launch, name="b", role=Role.WORKER, argv=("python", "-m", "dynamo.vllm"))
    assert with_adapter([launch, worker]) == ([launch, worker], None)
    on_cpu = replace(worker, env={"VLLM_CPU_OMP_THREADS_BIND": "nobind"})
    programs, engine = with_adapter([launch, on_cpu])
    assert engine == "vllm"
    assert "request_adapter" in programs[0].argv[1]
    (limited, _), _ = with_adapter(
        [launch, on_cpu], Overrides(limits=Limits(max_messages=7, max_request_kib=9))
    )
    argv = arguments(limited, {}, {"inner": 21000}, host=LOOPBACK, port=8000)
    options, frontends = split(argv[2:])
    assert (options.adapter_max_messages, options.adapter_max_request_kib) == (7, 9)
    assert (options.http_host, options.http_port) == (LOOPBACK, 8000)
    assert frontends[1:] == ["--http-host", LOOPBACK, "--http-port", "21000"]


def test_the_adapter_gets_the_output_limit_of_the_llamacpp_workers() -> None:
    options = {"name": "a", "component": "a", "replicas": 1, "env": {}, "grace_s": 1}
    argv = ("python", "-m", "dynamo.frontend")
    launch = Program(**options, role=Role.FRONTEND, argv=argv)
    argv = ("python", "-m", "penstock.llamacpp", "--config", "/engine.yaml")
    worker = Program(**options, role=Role.WORKER, argv=argv)
    for content, limit in (("n_predict: 512", 512), ("n_parallel: 4", None), ("", None)):
        programs = [launch, replace(worker, files={"/engine.yaml": content})]
        (adapted, _), engine = with_adapter(programs)
        assert engine == "llamacpp"
        assert output_limit(programs, engine) == limit
        argv = arguments(adapted, {}, {"inner": 21000}, host=LOOPBACK, port=8000)
        parsed, _ = split(argv[2:])
        assert parsed.adapter_output_limit == limit
        assert ("sets a missing max_tokens to 512" in note(engine, programs)) == (limit is not None)
    assert output_limit([launch, worker], "vllm") is None


# --- the server ----------------------------------------------------------------------------


@dataclass
class Played:
    """A frontend: ``respond`` handles a request; what it got and lost is recorded."""

    respond: Callable[[web.Request], Awaitable[web.StreamResponse]]
    bodies: list[Any] = field(default_factory=list)
    is_cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "m", "context_window": 50}]})
        self.bodies.append(await request.read())
        try:
            return await self.respond(request)
        except asyncio.CancelledError:
            self.is_cancelled.set()
            raise


# Host → status, without names that `--allow-host` adds.
HOSTS = {
    **dict.fromkeys(
        ("localhost:8000", "LOCALHOST", "127.0.0.1", "10.1.2.3:80", "[::1]:8000", "localhost."), 200
    ),
    **dict.fromkeys(("evil.example", "127.0.0.1.evil.example", "localhost.evil.example"), 421),
    **dict.fromkeys(("evil.example:127", "x@localhost", "localhost:8000:1"), 421),
}


def adapter(
    engine: str, inner: int, outer: int, reads: ClientReads | None = None, **options: Any
) -> Adapter:
    """``options``: of the adapter, without the prefix."""
    defaults = {"engine": engine, "inner-port": inner, "tokenizer": FOLDER / "tokenizer.json"}
    argv = ["--http-host", LOOPBACK, "--http-port", str(outer)]
    for name, value in (defaults | options).items():
        argv += [f"--adapter-{name.replace('_', '-')}", str(value)]
    return Adapter(split(argv)[0], reads)


@asynccontextmanager
async def adapted(played: Played, engine: str = "mocker", **options: Any) -> AsyncIterator[str]:
    """The URL of an adapter in front of ``played``."""
    ports = Ports()
    inner, outer = ports.free(), ports.free()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", played.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, inner).start()
    in_front = adapter(engine, inner, outer, **options)
    await in_front.start()
    try:
        yield f"http://{LOOPBACK}:{outer}"
    finally:
        await runner.cleanup()
        await in_front.stop()


async def post(url: str | yarl.URL, body: Any) -> tuple[int, Any, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with aiohttp.ClientSession() as client, client.post(url, data=data) as answer:
        return answer.status, await answer.read(), answer.headers


async def _ok(_: web.Request) -> web.StreamResponse:
    return web.json_response({"ok": True}, headers={"x-own": "1"})


@pytest.mark.asyncio
async def test_a_request_passes_with_its_default_and_the_response_unchanged() -> None:
    played = Played(_ok)
    async with adapted(played, output_limit=64) as url:
        status, raw, headers = await post(f"{url}{CHAT}", {"model": "m", "temperature": 0.5})
    assert (status, json.loads(raw), headers["x-own"]) == (200, {"ok": True}, "1")
    assert headers[IGNORED_HEADER] == "temperature"
    assert json.loads(played.bodies[0])["max_tokens"] == 64


@pytest.mark.asyncio
@pytest.mark.parametrize("engine", ["mocker", "llamacpp"])
async def test_a_response_states_the_default_output_limit_and_only_that(engine: str) -> None:
    played = Played(_ok)
    limits = {
        CHAT: "max_completion_tokens",
        COMPLETIONS: "max_tokens",
        RESPONSES: "max_output_tokens",
    }
    async with adapted(played, engine, output_limit=64) as url:
        for path, name in limits.items():
            for stream in (False, True):
                _, _, headers = await post(f"{url}{path}", {"model": "m", "stream": stream})
                assert headers[DEFAULT_LIMIT_HEADER] == "64"
                body = {"model": "m", "stream": stream, name: 9}
                _, _, headers = await post(f"{url}{path}", body)
                assert DEFAULT_LIMIT_HEADER not in headers
                assert json.loads(played.bodies[-1]) == body
    async with adapted(played, engine) as url:
        _, _, headers = await post(f"{url}{CHAT}", {"model": "m"})
    assert DEFAULT_LIMIT_HEADER not in headers


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        *((body, "") for body in (b"{", b"[]", b"[" * 30_000 + b"]" * 30_000)),  # Dynamo explains
        # The frontend would replace the bytes, and the rules would not see the parameters.
        (b'{"n": 2, "user": "\xff"}', "UTF-8"),
        (b'{"n": 2}', "'n' with this value is not supported by the mocker"),
    ],
    ids=len,
)
async def test_a_request_that_is_refused_does_not_reach_the_frontend(
    body: bytes, refusal: str
) -> None:
    played = Played(_ok)
    async with adapted(played) as url:
        status, raw, _ = await post(f"{url}{CHAT}", body)
    assert (status, played.bodies) == ((400, []) if refusal else (200, [body]))
    if refusal:
        error = json.loads(raw)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert refusal in error["message"]


async def _internal_error(_: web.Request) -> web.StreamResponse:
    return web.json_response({"message": "Internal server error"}, status=500)


async def _event_error(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b'data: {"error":{"code":500}}\n\n')
    return response


@pytest.mark.asyncio
async def test_an_internal_error_for_a_prompt_above_the_context_becomes_a_400() -> None:
    long = {"model": "m", "messages": [{"role": "user", "content": "Hello " * 200}]}
    for respond in (_internal_error, _event_error):
        async with adapted(Played(respond)) as url:
            status, raw, _ = await post(f"{url}{CHAT}", long)
        assert (status, json.loads(raw)["error"]["code"]) == (400, "context_length_exceeded")
    async with adapted(Played(_internal_error)) as url:
        status, raw, _ = await post(f"{url}{COMPLETIONS}", {"model": "unknown", "prompt": "a"})
    error = json.loads(raw)["error"]
    assert (status, error["type"], error["code"]) == (500, "server_error", None)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (404, "invalid_request_error", "model_not_found"),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (503, "server_error", "service_unavailable"),
    ],
)
@pytest.mark.parametrize("request_body", [b'{"model": "m"}', b"{"])
@pytest.mark.parametrize("is_chunked", [True, False])
async def test_an_error_of_dynamo_or_of_a_worker_is_in_openais_format(
    status: int, kind: str, code: str | None, request_body: bytes, is_chunked: bool
) -> None:
    async def failed(_: web.Request) -> web.StreamResponse:
        body = {"message": "no min_tokens", "type": "Bad Request", "code": status}
        response = web.json_response(body, status=status, headers={"retry-after": "2"})
        if is_chunked:  # as Dynamo
            response.enable_chunked_encoding()
        return response

    async with adapted(Played(failed), "llamacpp") as url:
        got, raw, headers = await post(f"{url}{CHAT}", request_body)
    error = {"message": "no min_tokens", "type": kind, "param": None, "code": code}
    assert (got, json.loads(raw)) == (status, {"error": error})
    assert headers["retry-after"] == "2"
    assert headers.getall("content-type") == ["application/json"]  # as Envoy expects


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (503, "server_error")]
)
async def test_a_stream_that_begins_with_an_error_has_its_status(status: int, kind: str) -> None:
    async def failed(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        error = {"message": "Invalid request", "type": "x", "code": status}
        event = json.dumps({"error": error}, separators=(",", ":"))
        await response.write(f"data: {event}\n\ndata: [DONE]\n\n".encode())
        return response

    async with adapted(Played(failed), "vllm") as url:
        got, raw, headers = await post(f"{url}{CHAT}", {"stream": True})
    error = json.loads(raw)["error"]
    assert (got, error["type"]) == (status, kind)
    assert "penstock logs" in error["message"], "Dynamo's message has no reason"
    assert headers.getall("content-type") == ["application/json"]


LARGE = "hello " * 11_050  # 66,300 bytes; the context of 50 tokens allows 66,336
EMPTY = {"role": "user", "content": ""}
COMPLETION = ("/v1/completions", "prompt")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "param", "value", "options", "is_refused"),
    [
        (CHAT, "messages", [{"role": "user", "content": LARGE}], {}, True),
        (CHAT, "messages", [EMPTY] * 1025, {}, True),
        (CHAT, "messages", [EMPTY] * 1024, {}, False),
        (CHAT, "messages", [EMPTY] * 31, {"max_messages": 30}, True),
        (CHAT, "messages", [EMPTY] * 30, {"max_messages": 30}, False),
        (*COMPLETION, f"{LARGE} with more than 36 bytes in all", {}, True),
        (*COMPLETION, "x" * 66_000, {}, False),
        (*COMPLETION, "x" * 1100, {"max_request_kib": 1}, True),
        (*COMPLETION, "x" * 900, {"max_request_kib": 1}, False),
        (*COMPLETION, ["a prompt"] * 1025, {}, True),
        (*COMPLETION, [1] * 2000, {}, False),  # one prompt, as token ids
        ("/v1/responses", "input", [{"role": "user", "content": "a"}] * 1025, {}, True),
    ],
)
async def test_a_request_that_is_too_large_is_refused_before_it_costs_time(
    path: str, param: str, value: Any, options: dict[str, int], is_refused: bool
) -> None:
    played = Played(_ok)
    async with adapted(played, **options) as url:
        status, raw, _ = await post(f"{url}{path}", {"model": "m", param: value})
    assert len(played.bodies) == (not is_refused)
    if is_refused:
        error = json.loads(raw)["error"]
        assert (status, error["param"], error["code"]) == (413, param, "request_too_large")


def test_the_size_of_a_request_is_that_of_the_gateway() -> None:
    for context in (None, 1, 50, 8192, 40_001, 131_072):
        kib = Limits().request_kib(context)
        assert 0 <= kib * 1024 - rules.most_bytes(context) < 1024
    assert rules.MOST_MESSAGES == gateway.MOST_MESSAGES


def test_an_edit_below_the_limits_of_a_frontend_replaces_no_frontend() -> None:
    lower = Limits(max_messages=1024, max_request_kib=192)
    assert lower.above_defaults(8192) == Limits()
    higher = Limits(max_messages=1025, max_request_kib=193)
    assert higher.above_defaults(8192) == higher
    assert higher.above_defaults(None) == Limits(max_messages=1025)


@pytest.mark.asyncio
async def test_a_request_at_which_the_frontend_hangs_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Such as in a chat template without an end."""
    monkeypatch.setattr(server, "UNANSWERED_S", 0.3)
    ends = asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        if "slow" in await request.text():
            await ends.wait()
        return await _ok(request)

    log: list[str] = []

    async def read() -> str:
        log.append(capfd.readouterr().err)
        return "".join(log)

    slow, quick = (
        {"model": "m", "messages": [{"role": "user", "content": c}]} for c in ("slow", "a")
    )
    async with adapted(Played(hangs)) as url:
        hanging = asyncio.create_task(post(f"{url}{CHAT}", slow))
        assert (await post(f"{url}{CHAT}", quick))[0] == 200
        logged = await first(read, lambda text: "has no response" in text, "the line in the log")
        ends.set()
        assert (await hanging)[0] == 200
    assert logged.startswith(f"request adapter: POST {CHAT} of ")
    assert logged.count("has no response") == 1


@pytest.mark.asyncio
async def test_a_page_that_was_rebound_to_this_machine_reaches_nothing() -> None:
    """Its own name is in the header Host; localhost and addresses cannot be rebound."""
    played = Played(_ok)
    async with adapted(played) as url, aiohttp.ClientSession() as client:
        for host, status in HOSTS.items():
            body = json.dumps({"model": "m"})
            async with client.post(f"{url}{CHAT}", data=body, headers={"Host": host}) as answer:
                assert (host, answer.status) == (host, status)
    assert len(played.bodies) == list(HOSTS.values()).count(200)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "head",
    ["GET http://localhost/v1/other HTTP/1.1\r\nHost: localhost", "GET /v1/other HTTP/1.0"],
)
async def test_other_forms_of_a_request_are_served(head: str) -> None:
    """An absolute URL, and a client without the header Host."""
    played = Played(_ok)
    async with adapted(played) as url:
        reader, writer = await asyncio.open_connection(LOOPBACK, int(url.rpartition(":")[2]))
        writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode())
        status = await reader.readline()
        writer.close()
    assert b" 200 " in status


async def exchange(url: str, *sent: bytes) -> bytes:
    """All that arrives after each of ``sent``, until the connection ends."""
    reader, writer = await asyncio.open_connection(LOOPBACK, int(url.rpartition(":")[2]))
    for part in sent:
        writer.write(part)
        await writer.drain()
    received = await asyncio.wait_for(reader.read(), LIMIT_S)
    writer.close()
    return received


HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n".encode()
SIZED = HEAD + b"content-length: 2\r\n"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (SIZED + b"content-length: 3\r\n\r\n{}", 400),
        (HEAD + b"content-length: +2\r\n\r\n{}", 400),
        (HEAD + b"content-length: 999999999\r\n\r\n{}", 413),
        (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nx\r\n\r\n", 400),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nfffffff0\r\n", 413),
        (HEAD + b"a: b\r\n folded\r\n\r\n", 400),
        (HEAD + b"a : b\r\n\r\n", 400),
        (HEAD + b"a: b\nhost: evil\r\n\r\n", 400),
        (HEAD + b"a: b\rhost: evil\r\n\r\n", 400),
        (b"GET /v1/a#b HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /v1/a b HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /v1/a HTTP/2.0\r\nhost: localhost\r\n\r\n", 400),
        (HEAD + b"a: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    ],
)
async def test_a_request_that_two_servers_could_read_differently_is_refused(
    request_bytes: bytes, status: int
) -> None:
    played = Played(_ok)
    async with adapted(played, "llamacpp") as url:
        received = await exchange(url, request_bytes)
    assert received.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in received
    assert played.bodies == []


@pytest.mark.asyncio
async def test_requests_of_one_connection_are_answered_in_order() -> None:
    """Chunked, sent together, in pieces, after `100 Continue`, and refused ones."""
    played = Played(_ok)
    chunks = b'transfer-encoding: chunked\r\n\r\n6;a=b\r\n{"a": \r\n2\r\n1}\r\n0\r\nt: 1\r\n\r\n'
    sent = HEAD + chunks + SIZED + b"\r\n{}" + HEAD + b'content-length: 7\r\n\r\n{"echo"'
    refused = b"HEAD /busy_threshold HTTP/1.1\r\nhost: localhost\r\n\r\n"
    last = SIZED + b"expect: 100-continue\r\nconnection: close\r\n\r\n{}"
    async with adapted(played, "llamacpp") as url:
        received = await exchange(url, sent[:200], sent[200:], refused + last)
    assert played.bodies == [b'{"a": 1}', b"{}", b'{"echo"', b"{}"]
    statuses = re.findall(rb"HTTP/1.1 (\d+) ", received)
    assert statuses == [b"200", b"200", b"200", b"404", b"100", b"200"]
    assert received.endswith(b'{"ok": true}')


@pytest.mark.asyncio
async def test_hop_headers_do_not_reach_the_frontend() -> None:
    seen: list[Any] = []

    async def note(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers)
        return await _ok(request)

    hop = b"connection: x-a, close\r\nte: trailers\r\nupgrade: h2c\r\nproxy-connection: x\r\n"
    async with adapted(Played(note)) as url:
        await exchange(
            url, b"GET /v1/x HTTP/1.1\r\nHost: localhost:1\r\nx-b: 1\r\n" + hop + b"\r\n"
        )
    (headers,) = seen
    assert (headers["host"], headers["x-b"]) == ("localhost", "1")
    assert not {"te", "upgrade", "connection", "proxy-connection"} & {n.lower() for n in headers}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path",
    [
        *("/busy_threshold", "/v1/../busy_threshold", "/engine/control"),
        *("/v1/./chat/completions", "/v1/x/%2e%2e/chat/completions"),  # rules are by the path
    ],
)
async def test_no_request_changes_the_frontend(path: str) -> None:
    played = Played(_ok)
    async with adapted(played) as url:
        status, raw, _ = await post(yarl.URL(url + path, encoded=True), {})
    assert (status, json.loads(raw)["error"]["code"]) == (404, "unknown_url")
    assert not played.bodies


UNSUPPORTED = "unsupported_endpoint"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "sent", "status", "code", "words"),
    [
        ("/v1/images/generations", 404, 404, UNSUPPORTED, "/v1/chat/completions"),
        (CHAT, 405, 405, UNSUPPORTED, "POST"),
        ("/v1/models/m", 405, 405, UNSUPPORTED, "POST"),
        ("/v1/nope", {"message": "Route not found: /v1/nope"}, 404, None, "/v1/nope"),
        ("/v1/embeddings", {"message": "Model not found"}, 400, UNSUPPORTED, "/v1/embeddings"),
    ],
)
async def test_a_path_without_such_a_method_or_model_is_an_error_in_openais_format(
    path: str, sent: Any, status: int, code: str | None, words: str
) -> None:
    """``sent``: the status of an empty response, or the JSON of one with status 404."""

    async def failed(_: web.Request) -> web.StreamResponse:
        headers = {"Allow": "GET"}
        if isinstance(sent, int):
            return web.Response(status=sent, headers=headers)
        return web.json_response(sent, status=404, headers=headers)

    async with adapted(Played(failed)) as url:
        got, raw, headers = await post(f"{url}{path}", {})
    error = json.loads(raw)["error"]
    assert (got, error["code"], headers["Allow"]) == (status, code, "GET")
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]


@pytest.mark.asyncio
@pytest.mark.parametrize("body", [b"", b"busy", b'{"error": {"message": "a"}}', b"[]"])
async def test_an_error_in_another_format_is_passed_on(body: bytes) -> None:
    async def failed(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=404)

    async with adapted(Played(failed), "llamacpp") as url:
        assert (await post(f"{url}{CHAT}", {}))[:2] == (404, body)


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"data: {}\n\n")
    await asyncio.Event().wait()
    return response


@pytest.mark.asyncio
async def test_a_client_that_disconnects_cancels_the_request() -> None:
    played = Played(_endless)
    async with adapted(played) as url:
        async with aiohttp.ClientSession() as client, client.post(f"{url}{CHAT}", json={}) as got:
            assert await got.content.readany()
        await asyncio.wait_for(played.is_cancelled.wait(), LIMIT_S)
    assert len(played.bodies) == 1


@pytest.mark.asyncio
async def test_a_stream_that_the_frontend_breaks_off_does_not_end_as_a_complete_one() -> None:
    has_begun = asyncio.Event()

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: {}\n\n")
        await has_begun.wait()
        assert request.transport is not None
        request.transport.abort()
        return response

    async with (
        adapted(Played(broken)) as url,
        aiohttp.ClientSession() as client,
        client.post(f"{url}{CHAT}", json={}) as got,
    ):
        assert await got.content.readany()
        has_begun.set()
        with pytest.raises(aiohttp.ClientError):
            await got.read()


@pytest.mark.asyncio
async def test_a_frontend_that_does_not_listen_yet_is_a_503() -> None:
    ports = Ports()
    outer = ports.free()
    alone = adapter("mocker", ports.free(), outer)
    await alone.start()
    try:
        status, raw, _ = await post(f"http://{LOOPBACK}:{outer}{CHAT}", {})
    finally:
        await alone.stop()
    assert (status, json.loads(raw)["error"]["code"]) == (503, "not_ready")
