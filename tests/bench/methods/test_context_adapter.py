"""The proxy that adds the context length to `/v1/models`, and passes everything else."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest

from penstock.bench.methods.context_adapter import (
    ContextAdapter,
    loopback_environment,
    reported_context,
)
from tests.support.scripted_http import Handle, body_of, respond, send_part, serving

WAIT_S = 10.0
EVENTS = (b"data: {}\n\n", b"data: [DONE]\n\n")


@contextmanager
def adapted(handle: Handle, configured: int | None = None) -> Iterator[httpx.Client]:
    """A client of the adapter in front of a server."""
    with (
        serving(handle) as upstream,
        ContextAdapter(url=upstream, configured=configured).running() as url,
        httpx.Client(base_url=url, timeout=WAIT_S, trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("entry", "configured", "added"),
    [
        ({"context_window": 131072}, None, 131072),
        ({"context_window": 131072}, 4096, 4096),  # the graph limits it
        ({}, 8192, 8192),
        ({}, None, None),
        ({"context_window": 0}, None, None),
        ({"context_window": "131072"}, None, None),
        ({"context_window": True}, None, None),
        ({"max_model_len": 100, "context_window": 200}, None, 100),  # its own stays
        ({"meta": {"n_ctx": 300}, "context_window": 200}, None, None),
    ],
)
def test_the_context_length_is_added_where_the_tool_finds_none(
    entry: dict[str, Any], configured: int | None, added: int | None
) -> None:
    listed = {"object": "list", "data": [{"id": "m", **entry}]}
    with adapted(lambda r: respond(r, json.dumps(listed).encode()), configured) as client:
        answer = client.get("/v1/models").json()["data"][0]
    assert answer.pop("max_model_len", None) == added
    assert answer == {k: v for k, v in {"id": "m", **entry}.items() if k != "max_model_len"}


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b'{"data": 3}', b'{"data": ["m"]}', b""])
def test_another_list_of_models_stays_as_it_is(body: bytes) -> None:
    with adapted(lambda r: respond(r, body), 4096) as client:
        assert client.get("/v1/models").content == body


def test_the_list_of_models_is_requested_without_compression() -> None:
    headers = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        headers.append(request.headers["Accept-Encoding"])
        respond(request, b"{}")

    with adapted(handle) as client:
        client.get("/v1/models", headers={"Accept-Encoding": "gzip"})
        client.get("/v1/other", headers={"Accept-Encoding": "gzip"})
    assert headers == [None, "gzip"]


def test_an_error_of_the_endpoint_is_passed_on() -> None:
    body = b'{"data": [{"id": "m", "context_window": 10}]}'
    with adapted(lambda r: respond(r, body, 401, WWW_Authenticate="Bearer")) as client:
        response = client.get("/v1/models")
    assert (response.status_code, response.content) == (401, body)
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_requests_and_responses_pass_unchanged() -> None:
    received: list[tuple[str, str, str | None, bytes]] = []
    large = os.urandom(20 * 2**20)

    def handle(request: BaseHTTPRequestHandler) -> None:
        body = body_of(request)
        received.append((request.command, request.path, request.headers["Authorization"], body))
        respond(request, body[::-1], 418, X_Own="a", Content_Encoding="gzip")

    with (
        adapted(handle) as client,
        client.stream(
            "PUT", "/v1/x%2Fy?a=1&a=2", content=large, headers={"Authorization": "Bearer k"}
        ) as response,
    ):
        raw = b"".join(response.iter_raw())
    assert received == [("PUT", "/v1/x%2Fy?a=1&a=2", "Bearer k", large)]
    assert (response.status_code, raw) == (418, large[::-1])
    assert response.headers["X-Own"] == "a"


def chunked(request: BaseHTTPRequestHandler) -> None:
    body_of(request)
    request.send_response(200)
    request.send_header("Content-Type", "text/event-stream")
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()


def test_each_part_of_a_stream_is_passed_on_at_once() -> None:
    seen = threading.Event()

    def handle(request: BaseHTTPRequestHandler) -> None:
        chunked(request)
        send_part(request, EVENTS[0])
        assert seen.wait(WAIT_S)  # the second part is sent after the client has the first one
        send_part(request, EVENTS[1])
        send_part(request, b"")

    with adapted(handle) as client, client.stream("POST", "/v1/completions") as response:
        parts = []
        for part in response.iter_raw():
            parts.append(part)
            seen.set()
    assert tuple(parts) == EVENTS


def test_a_stream_that_the_endpoint_cuts_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    def handle(request: BaseHTTPRequestHandler) -> None:
        chunked(request)
        send_part(request, EVENTS[0])
        request.connection.close()

    with adapted(handle) as client, pytest.raises(httpx.HTTPError):
        client.post("/v1/completions")
    assert not caplog.records  # they would be printed


def test_a_client_that_leaves_ends_the_request_of_the_endpoint() -> None:
    ended = threading.Event()

    def handle(request: BaseHTTPRequestHandler) -> None:
        chunked(request)
        send_part(request, EVENTS[0])
        if request.rfile.read(1) == b"":  # until the connection is closed
            ended.set()

    with adapted(handle) as client:
        with client.stream("POST", "/v1/completions") as response:
            next(response.iter_raw())
        assert ended.wait(WAIT_S)


def test_an_endpoint_that_refuses_connections_is_an_error_502() -> None:
    adapter = ContextAdapter(url="http://127.0.0.1:1", configured=10)
    with adapter.running() as url:
        response = httpx.post(f"{url}/v1/completions", json={}, trust_env=False)
    assert response.status_code == 502
    assert "http://127.0.0.1:1 does not respond" in response.json()["error"]["message"]


def test_no_proxy_gets_requests_to_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "example.com")
    assert loopback_environment()["no_proxy"] == "example.com,127.0.0.1"


def test_llamacpps_form_is_read_first() -> None:
    assert reported_context({"meta": {"n_ctx": 5}, "context_window": 9}) == 5
    assert reported_context({"meta": None, "max_model_len": 7}) == 7
