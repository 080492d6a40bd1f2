"""Which requests the benchmarks' client counts as failed, against a server with failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from penstock.cli.drill import TRAFFIC
from penstock.drill.traffic import Ending, RequestKind, StreamResult, Traffic
from tests.support.scripted_http import body_of, respond, serving

TOKEN = b'data: {"choices": [{"finish_reason": null}]}\n\n'
DONE = b"data: [DONE]\n\n"

Responses = list[tuple[int, bytes]]


@dataclass
class Clock:
    """Advanced by the test."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def server(
    responses: Responses, before: Callable[[], None] = lambda: None
) -> AbstractContextManager[str]:
    """Each request gets the next response, after ``before``."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        body_of(request)
        status, body = responses.pop(0)
        before()
        respond(request, body, status, x_penstock_frontend="127.0.0.1:8001")

    return serving(handle)


def one(responses: Responses, retries: int, response_s: float = 0.0) -> StreamResult:
    """``response_s``: how long the server takes for a response."""
    clock = Clock()

    def before() -> None:
        clock.now += response_s

    with server(responses, before) as url:
        traffic = Traffic(
            url, "m", requests=1, concurrency=1, tokens=2, retries=retries,
            clock=clock, sleep=clock.sleep,
        )  # fmt: skip
        asyncio.run(traffic.run())
    (result,) = traffic.results
    assert traffic.failures == ([result] if result.error else [])
    assert traffic.retried == ([result] if result.rejections else [])
    return result


def test_a_rejected_request_is_retried_and_counted() -> None:
    result = one([(500, b"why"), (200, TOKEN + TOKEN + DONE)], retries=2)
    assert result.error == ""
    assert result.rejections == ("HTTP 500: b'why'",)
    assert result.first_token_s == 0.5  # as OpenAI's clients wait


@pytest.mark.parametrize("retries", [0, 2])
def test_a_request_that_is_rejected_each_time_has_failed(retries: int) -> None:
    result = one([(503, b"busy")] * (retries + 1), retries=retries)
    assert result.error == "HTTP 503: b'busy'"
    assert len(result.rejections) == retries
    assert result.ended_s == (0.5 + 1.0 if retries else 0.0)


def test_a_truncated_stream_has_failed_and_is_not_retried() -> None:
    result = one([(200, TOKEN), (200, TOKEN + TOKEN + DONE)], retries=2)
    assert result.error == "ended without [DONE] after 1 chunks"
    assert result.rejections == ()


USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\n'


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (TOKEN + USAGE + DONE, ""),
        (TOKEN + TOKEN + DONE, "ended without a usage chunk after 2 chunks"),
        (TOKEN * 3 + USAGE + DONE, "3 tokens streamed, 2 requested"),
        (
            TOKEN + b'data: {"error": {"message": "lost"}}\n\n' + DONE,
            'the stream reports {"message": "lost"}',
        ),
    ],
)
def test_where_chunks_have_several_tokens_the_usage_counts(stream: bytes, error: str) -> None:
    with server([(200, stream)]) as url:
        traffic = Traffic(url, "m", requests=1, concurrency=1, tokens=2, one_chunk_per_token=False)
        asyncio.run(traffic.run())
    assert [result.error for result in traffic.results] == [error]


FINISH = b'data: {"choices": [{"finish_reason": "tool_calls"}]}\n\n'


@pytest.mark.parametrize("kind", [RequestKind.GUIDED, RequestKind.TOOLS])
@pytest.mark.parametrize(
    ("stream", "error", "ending"),
    [
        (TOKEN + FINISH + DONE, "", Ending.COMPLETE),  # fewer tokens than the limit
        (FINISH + DONE, "", Ending.COMPLETE),
        (TOKEN + DONE, "ended without a finish reason after 1 chunks", Ending.TRUNCATED),
        (DONE, "ended without a finish reason after 0 chunks", Ending.TRUNCATED),
        (TOKEN * 3 + FINISH + DONE, "3 tokens streamed, 2 requested", Ending.DUPLICATED),
    ],
)
def test_a_request_with_a_grammar_ends_with_a_finish_reason(
    kind: RequestKind, stream: bytes, error: str, ending: Ending
) -> None:
    with server([(200, stream)]) as url:
        traffic = Traffic(url, "m", requests=1, concurrency=1, tokens=2, kinds=(kind,))
        asyncio.run(traffic.run())
    assert [(r.error, r.ending, r.kind) for r in traffic.results] == [(error, ending, kind)]


def test_the_kinds_take_turns_and_ask_for_what_they_are() -> None:
    bodies: list[Any] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        bodies.append(json.loads(body_of(request)))
        respond(request, TOKEN + TOKEN + FINISH + DONE, 200)

    with serving(handle) as url:
        traffic = Traffic(
            url, "m", 8, concurrency=1, tokens=2, kinds=tuple(RequestKind), long_tokens=50
        )
        asyncio.run(traffic.run())
    assert [r.kind for r in traffic.results] == [*RequestKind, *RequestKind]
    chat, guided, tools, long = bodies[:4]
    assert guided["response_format"]["type"] == "json_schema"
    assert tools["tool_choice"] == "required"
    assert "response_format" not in chat
    sizes = [len(body["messages"][-1]["content"]) for body in (chat, long)]
    assert sizes[1] - sizes[0] == 50 * len(" the")
    assert tuple(RequestKind) == TRAFFIC


def test_an_invalid_request_is_not_retried() -> None:
    assert one([(400, b"no"), (200, b"")], retries=2).error == "HTTP 400: b'no'"


@pytest.mark.parametrize(
    "chunk",
    [
        b"[]",
        b'"text"',
        b'{"choices": "xy"}',
        b'{"choices": [{"delta": {"content": 5}}]}',
        b"[" * 200_000,
    ],
)
def test_a_malformed_chunk_fails_its_request_only(chunk: bytes) -> None:
    result = one([(200, TOKEN + b"data: " + chunk + b"\n\n" + TOKEN + DONE)], retries=2)
    assert result.ending is Ending.TRUNCATED
    assert result.error


def test_time_in_an_attempt_that_was_retried_counts() -> None:
    """The first attempt gets 503 after three seconds, and the retry succeeds after as many."""
    result = one([(503, b"busy"), (200, TOKEN + TOKEN + DONE)], retries=2, response_s=3.0)
    assert result.error == ""
    assert (result.longest_gap_s, result.gap_ended_s) == (3.0, 3.0)
    assert result.first_token_s == 3.0 + 0.5 + 3.0


def test_the_frontend_and_the_connection_are_noted() -> None:
    result = one([(200, TOKEN + TOKEN + DONE)], retries=0)
    assert result.frontend_port == 8001
    assert result.client_port
    assert one([(503, b"why")], retries=0).client_port is None
