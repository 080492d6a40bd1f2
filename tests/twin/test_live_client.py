"""The twin's client, against a server whose responses the test chooses."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from penstock.twin.twin import LiveClient, LiveError
from penstock.workload import Request
from tests.support.scripted_http import body_of, respond, serving

REQUEST = Request(at_ms=0.0, input_tokens=100, output_tokens=2, blocks=(7, 8))


class Server:
    """Streams ``tokens`` chunks with ``usage``; ``bodies``: the requests."""

    def __init__(
        self, status: int = 200, tokens: int = 2, usage: tuple[int, int] = (100, 2)
    ) -> None:
        self.status, self.tokens, self.usage = status, tokens, usage
        self.bodies: list[dict[str, Any]] = []

    def answer(self) -> bytes:
        if self.status != 200:
            return b"why"
        token = {"choices": [{"text": "a", "finish_reason": None}], "usage": None}
        end = {"choices": [{"text": "", "finish_reason": "length"}], "usage": None}
        details = {"cached_tokens": 64}
        usage = {"prompt_tokens": self.usage[0], "completion_tokens": self.usage[1]}
        last = {"choices": [], "usage": {**usage, "prompt_tokens_details": details}}
        events = [*[token] * self.tokens, end, last]
        return b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = body_of(request)
        if body:  # else it is asked whether it listens
            self.bodies.append(json.loads(body))
        respond(request, self.answer() if body else b"", self.status if body else 200)


def ask(server: Server, *requests: Request, speed: float = 1.0) -> list[Any]:
    with serving(server.handle) as url:
        client = LiveClient(url=f"{url}/v1", model="m", speed=speed)
        return list(asyncio.run(client.serve(requests)))


def test_exact_tokens_are_requested_and_counted() -> None:
    server = Server()
    (served,) = ask(server, REQUEST)
    (body,) = server.bodies
    assert (len(body["prompt"]), body["max_tokens"], body["ignore_eos"]) == (100, 2, True)
    assert (served.input_tokens, served.tokens, served.cached_tokens) == (100, 2, 64)
    assert served.arrived_ms <= served.first_ms <= served.ended_ms


def test_a_request_of_a_trace_without_blocks_has_its_prompt() -> None:
    server = Server()
    ask(server, Request(at_ms=0.0, input_tokens=100, output_tokens=2, blocks=()))
    assert len(server.bodies[0]["prompt"]) == 100


def test_latencies_are_in_simulated_time() -> None:
    later = Request(at_ms=10.0, input_tokens=100, output_tokens=2, blocks=(1, 2))
    _, second = ask(Server(), REQUEST, later, speed=0.1)
    assert second.arrived_ms >= 9.9  # 100 ms of real time


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Server(status=503), "HTTP 503: b'why'"),
        (Server(usage=(100, 1)), r"expected \(100, 2\), got \(100, 1\)"),
        (Server(usage=(101, 2)), r"got \(101, 2\)"),
        (Server(tokens=0), "input and output tokens"),
    ],
)
def test_a_response_that_does_not_match_the_request_is_an_error(server: Server, words: str) -> None:
    with pytest.raises(LiveError, match=words):
        ask(server, REQUEST)


def test_a_missing_server_is_an_error() -> None:
    with serving(Server().handle) as url:
        pass
    with pytest.raises(LiveError, match="ConnectError"):
        asyncio.run(LiveClient(url=f"{url}/v1", model="m").serve([REQUEST]))
