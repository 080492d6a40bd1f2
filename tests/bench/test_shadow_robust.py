"""`bench shadow`: no request, response or full disk ends the run or the proxy of clients."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from penstock.bench.shadow import live as live_module
from penstock.bench.shadow.response import BrokenResponseError, document
from penstock.bench.shadow.verdict import sign_test, smallest_hits
from tests.bench.shadow_server import (
    MODEL,
    MODELS,
    Reply,
    ShadowServer,
    endless,
    prompts,
    reply_of,
    write_requests,
)
from tests.bench.test_shadow_live import CHAT, Clients, asking, compared, live
from tests.support.command_line import penstock
from tests.support.outputs import read_output
from tests.support.scripted_http import begin_chunked, body_of, respond, send_part, serving
from tests.support.waiting import LIMIT_S, wait_for

pytestmark = pytest.mark.slow

INTERRUPTED, UNDECIDED = 130, 21
HELLO = '{"messages": [{"role": "user", "content": "hello"}], "stream": true%s}'


def raw(port: int, head: str, body: bytes = b"") -> bytes:
    """What the proxy sends to a client that writes ``head`` as it is."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
        return client.makefile("rb").read()


@pytest.mark.parametrize(
    "part",
    [
        ', "temperature": NaN',
        ', "user": "\\ud800"',
        ', "tools": 5, "response_format": {"type": []}',
    ],
)
def test_a_request_that_servers_may_reject_is_copied_as_it_is(part: str) -> None:
    body = (HELLO % part).encode()

    def use(clients: Clients) -> None:
        for _ in range(2):
            assert clients.post(CHAT, body)[0] == 200
        clients.end()

    done, _, second = compared(use, "--repeats", "1")
    assert done.returncode == UNDECIDED, done.stderr
    assert [json.dumps(each) for each in second.bodies] == [
        json.dumps(json.loads(body) | {"model": MODEL})
    ] * 2


def test_a_file_of_such_requests_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(HELLO % ', "top_p": NaN, "user": "\\udfff"')
    with ShadowServer().running() as first, ShadowServer().running() as second:
        done = penstock("bench", "shadow", first.url, second.url, "--file", str(file))
    assert done.returncode == UNDECIDED, done.stderr
    assert second.bodies[0]["user"] == "\udfff"


def test_a_key_that_is_not_ascii_is_sent_again_with_the_repeat() -> None:
    keys = []

    class Keyed(ShadowServer):
        def _handle(self, request: BaseHTTPRequestHandler) -> None:
            keys.append(request.headers.get("Authorization"))
            super()._handle(request)

    def use(clients: Clients) -> None:
        body = (HELLO % "").encode()
        head = f"POST {CHAT} HTTP/1.1\nHost: a\nContent-Length: {len(body)}\nConnection: close"
        answer = raw(clients.port, f"{head}\nAuthorization: Bearer \xc3\xa4", body)
        assert answer.startswith(b"HTTP/1.1 200 ")
        clients.end()

    with Keyed().running() as first, ShadowServer().running() as second:
        done = live(first.url, second.url, use)
    assert "compared: 1 of 1 requests, 1 sent to A twice" in done.stdout, done.stderr
    assert keys.count("Bearer \xc3\xa4") == 2  # read as Latin-1


@pytest.mark.parametrize(
    "message",
    ["x", {"tool_calls": ["x"]}, {"tool_calls": 5}, {"tool_calls": [{"function": "f"}]}],
)
def test_a_malformed_choice_is_a_broken_response(message: Any) -> None:
    with pytest.raises(BrokenResponseError, match="a choice of another form"):
        document(json.dumps({"choices": [{"message": message}]}).encode(), 0.1)


def test_tool_calls_without_an_integer_index_have_their_position() -> None:
    calls = [{"index": index, "function": {"name": str(index)}} for index in (None, 1, [2])]
    body = {"choices": [{"message": {"tool_calls": calls}}]}
    response = document(json.dumps(body).encode(), 0.1)
    assert [tool_call.name for tool_call in response.tool_calls] == ["None", "1", "[2]"]


def test_whole_urls_and_headers_of_one_connection_are_not_forwarded() -> None:
    got: list[tuple[str, dict[str, str]]] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        body_of(request)
        got.append((request.path, dict(request.headers)))
        respond(request, MODELS, X_Long="y" * 20_000, Connection="X-Own", X_Own="1")

    def use(clients: Clients) -> None:
        head = (
            "Host: a\nConnection: close, X-Drop\nX-Drop: 1\nProxy-Authorization: secret\nX-Keep: 1"
        )
        answer = raw(clients.port, f"GET http://other.invalid/v1/models?a=%2F HTTP/1.1\n{head}")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"X-Long: yyy" in answer
        assert b"X-Own" not in answer
        clients.end()

    with serving(handle) as first, ShadowServer().running() as second:
        live(first, second.url, use)
    path, headers = got[-1]
    assert path == "/v1/models?a=%2F"
    assert headers.pop("X-Keep") == "1"
    assert headers.keys() <= {"Host", "Accept"}


def test_a_malformed_request_prints_no_key() -> None:
    def use(clients: Clients) -> None:
        answer = raw(clients.port, "GET / HTTP/1.1\nHost: a\nAuthorization: Bearer secret\x01")
        assert answer.startswith(b"HTTP/1.0 400 ")
        clients.end()

    done, *_ = compared(use)
    assert "secret" not in done.stdout + done.stderr


def test_a_that_breaks_off_breaks_off_for_the_client() -> None:
    def handle(request: BaseHTTPRequestHandler) -> None:
        body_of(request)
        if request.command == "GET":
            respond(request, MODELS)
            return
        begin_chunked(request, Content_Type="text/event-stream")
        send_part(request, b"data: {}\n\n")
        request.close_connection = True

    def use(clients: Clients) -> None:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            clients.post(CHAT, (HELLO % "").encode())
        clients.end()

    with serving(handle) as first, ShadowServer().running() as second:
        done = live(first, second.url, use)
    assert "A: 1 requests failed: the connection ended early" in done.stdout


@pytest.mark.parametrize("signals", [1, 2])
def test_the_end_waits_for_open_streams_and_a_second_ctrl_c_does_not(signals: int) -> None:
    def use(clients: Clients) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", clients.port)
        connection.request("POST", CHAT, b"{}")
        response = connection.getresponse()
        assert response.read(4) == b"data"
        clients.end()
        if signals == 2:
            wait_for(lambda: not clients.listens(), "the end of the proxy")
            assert response.read(20)
            clients.end()
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()

    timeout = ("--request-timeout", "300ms" if signals == 1 else "100s")
    with serving(endless) as first, ShadowServer().running() as second:
        done = live(first, second.url, use, *timeout)
    assert done.returncode == (UNDECIDED if signals == 1 else INTERRUPTED), done.stderr
    assert "verdict: undecided" in done.stdout
    assert ("incomplete: interrupted" in done.stdout) == (signals == 2)


def limited(*words: str) -> CompletedProcess[str]:
    """With files of at most 4 kB, as on a full disk."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
        "from penstock.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-B", "-c", script, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_full_disk_loses_no_verdict_and_the_file_continues(tmp_path: Path) -> None:
    results, count = tmp_path / "results.jsonl", 40
    file = write_requests(tmp_path / "r.jsonl", prompts(count))
    with ShadowServer().running() as first, ShadowServer().running() as second:
        words = ("bench", "shadow", first.url, second.url, "--file", str(file))
        done = limited(*words, "--results", str(results))
        assert f"warning: {results} cannot be written: " in done.stderr
        assert done.stderr.count("warning") == 1
        assert f"compared: {count} of {count} requests, {count} sent" in done.stdout, done.stderr
        assert results.stat().st_size <= 4096
        sent = len(second.bodies)
        done = penstock(*words, "--results", str(results))
        assert f"compared: {count} of {count} requests, {count} sent" in done.stdout
        assert 0 < len(second.bodies) - sent < count


def test_memory_is_bounded_and_clients_are_served_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MOST_KEPT", 5 * live_module.PAIR_BYTES)

    def use(clients: Clients) -> None:
        asking(prompts(80), ends=False)(clients)
        assert are_kept.wait(LIMIT_S)
        clients.end()

    answered: list[str] = []
    are_kept = threading.Event()

    def answer(prompt: str, _: object) -> Reply:
        answered.append(prompt)
        if len(answered) == 6:  # with five responses, the memory is full
            are_kept.set()
        return reply_of(prompt)

    done, _, second = compared(use, "--repeats", "0", "--concurrency", "1", second=answer)
    assert 5 <= len(second.bodies) <= 5 + 1 + live_module.WAITING
    assert done.stderr.count("requests still go to A, but no more are copied") == 1


def test_each_selected_request_is_counted_once_when_the_comparison_ends() -> None:
    """Also those that wait, and a stream that is open, when enough requests are compared."""
    count = 5

    def use(clients: Clients) -> None:
        clients.chat_at_once(prompts(40))

    done, *_ = compared(use, "--requests", str(count), "--concurrency", "1", "--json")
    document = read_output("bench", done.stdout)
    mirror = document["mirror"]
    lost = mirror["skipped"] + mirror["disconnected"] + mirror["unreadable"]
    assert document["compared"] == count
    assert mirror["selected"] == count + lost


def test_a_request_in_the_batch_format_is_no_request_of_a_client() -> None:
    """A rejects it, so B must not get the request inside it."""
    body = {"custom_id": "alice@example.com", "url": CHAT, "body": json.loads(HELLO % "")}

    def use(clients: Clients) -> None:
        clients.post(CHAT, json.dumps(body).encode())
        clients.end()

    done, _, second = compared(use, "--repeats", "0")
    assert all("custom_id" in each for each in second.bodies)
    assert "alice" not in done.stdout + done.stderr


def test_headers_that_aiohttp_would_change_are_refused() -> None:
    def use(clients: Clients) -> None:
        answer = raw(clients.port, "GET / HTTP/1.1\nHost: a\nConnection: close\nX-Name: a\xe4b")
        assert answer.startswith(b"HTTP/1.1 400 ")
        clients.end()

    done, *_ = compared(use)
    assert done.returncode == UNDECIDED, done.stderr


def test_a_url_with_a_password_is_refused_and_not_printed() -> None:
    with ShadowServer().running() as first, ShadowServer().running() as second:
        url = first.url.replace("://", "://user:secret@")
        done = penstock("bench", "shadow", url, second.url, "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert "the URL of A contains a user name or a password" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_an_existing_results_file_becomes_private(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.touch(0o644)
    file = write_requests(tmp_path / "requests.jsonl", prompts(2))
    with ShadowServer().running() as first, ShadowServer().running() as second:
        urls = (first.url, second.url)
        penstock("bench", "shadow", *urls, "--file", str(file), "--results", str(results))
    assert results.stat().st_mode & 0o077 == 0


def test_the_tests_of_rates_are_fast_with_many_requests() -> None:
    """`comb` for each term would need more than an hour."""
    assert sign_test(25_100, 24_900) == pytest.approx(0.3735, abs=1e-4)
    assert smallest_hits(20_000, 100, 50, 0.001) is not None


def test_a_model_that_a_does_not_list_is_also_unknown_to_b() -> None:
    def serve(prompt: str, body: Any) -> Reply:
        return reply_of(prompt) if body["model"] == MODEL else Reply(status=404)

    def use(clients: Clients) -> None:
        asking(prompts(12), ends=False)(clients)
        assert clients.chat("x", model="misspelled")[0] == 404
        clients.end()

    first, second = ShadowServer(script=serve), ShadowServer(model="own name of B")
    second.script = lambda prompt, body: (
        reply_of(prompt) if body["model"] == second.model else Reply(status=404)
    )
    with first.running(), second.running():
        done = live(first.url, second.url, use, "--json")
    document = read_output("bench", done.stdout)
    assert (document["verdict"], document["both_failed"]) == ("no_findings", 1), done.stderr
    assert {body["model"] for body in second.bodies} == {"own name of B", "misspelled"}


def test_a_model_that_a_serves_without_listing_it_becomes_that_of_b() -> None:
    done, _, second = compared(asking(prompts(12), model="loaded later"))
    assert done.returncode == 0, done.stderr
    assert {body["model"] for body in second.bodies} == {MODEL}
