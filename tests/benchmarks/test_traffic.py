"""What counts as a lost request: the benchmarks' client against a server that refuses and cuts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from traffic import Outcome, Traffic

LOOPBACK = "127.0.0.1"
TOKEN = b'data: {"choices": [{"finish_reason": null}]}\n\n'
DONE = b"data: [DONE]\n\n"


@contextmanager
def server(answers: list[tuple[int, bytes]]) -> Iterator[str]:
    """Each request gets the next answer."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = answers.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

    listening = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{listening.server_address[1]}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def one(answers: list[tuple[int, bytes]], retries: int) -> Outcome:
    with server(answers) as url:
        traffic = Traffic(url, "m", requests=1, concurrency=1, tokens=2, retries=retries)
        asyncio.run(traffic.run())
    (outcome,) = traffic.outcomes
    assert traffic.failures == ([outcome] if outcome.error else [])
    assert traffic.repeated == ([outcome] if outcome.refused else [])
    return outcome


def test_a_refused_request_is_sent_again_and_counted() -> None:
    outcome = one([(500, b"why"), (200, TOKEN + TOKEN + DONE)], retries=2)
    assert outcome.error == ""
    assert outcome.refused == ("HTTP 500: b'why'",)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_request_that_is_refused_each_time_is_lost(retries: int) -> None:
    outcome = one([(503, b"busy")] * (retries + 1), retries=retries)
    assert outcome.error == "HTTP 503: b'busy'"
    assert len(outcome.refused) == retries


def test_a_stream_that_was_cut_is_lost_and_not_sent_again() -> None:
    outcome = one([(200, TOKEN), (200, TOKEN + TOKEN + DONE)], retries=2)
    assert outcome.error == "ended without [DONE] after 1 chunks"
    assert outcome.refused == ()


def test_a_request_that_is_wrong_is_not_sent_again() -> None:
    assert one([(400, b"no"), (200, b"")], retries=2).error == "ValueError: HTTP 400: b'no'"
