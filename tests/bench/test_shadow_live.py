"""`penstock bench shadow --listen`: clients get A's bytes, and B cannot delay or change them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from penstock.bench.shadow import client
from penstock.local.ports import Ports
from tests.bench.shadow_server import (
    MODEL,
    MODELS,
    Reply,
    Script,
    ShadowServer,
    endless,
    prompts,
    reply_of,
)
from tests.support.command_line import penstock
from tests.support.outputs import read_output
from tests.support.scripted_http import body_of, send_part, serving
from tests.support.waiting import LIMIT_S, wait_for

USAGE, PORT_IN_USE, NOT_VERIFIED, FINDING, UNDECIDED = 2, 9, 13, 20, 21
CHAT = "/v1/chat/completions"
COUNT = 40


class Clients:
    """Uses the proxy in a thread, while the command runs in the main one."""

    def __init__(self, use: Callable[[Clients], None]) -> None:
        self.port = Ports().free()
        self._use = use
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_over = threading.Event()

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("POST" if body else "GET", path, body or None, sent)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def chat(self, prompt: str, **more: Any) -> tuple[int, bytes]:
        message = {"role": "user", "content": prompt}
        body = {"model": MODEL, "messages": [message], "stream": True, "temperature": 0} | more
        return self.post(CHAT, json.dumps(body).encode(), Authorization="Bearer of-the-client")

    def chat_at_once(self, texts: Sequence[str]) -> None:
        """Without an error if the proxy ends before all are served."""
        with ThreadPoolExecutor(len(texts)) as pool:
            pool.map(self.chat, texts)

    def listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self) -> None:
        if not self._is_over.is_set():  # else it would interrupt pytest
            os.kill(os.getpid(), signal.SIGINT)

    def _run(self) -> None:
        try:
            wait_for(lambda: self._is_over.is_set() or self.listens(), "the proxy to listen")
            if not self._is_over.is_set():
                self._use(self)
        except (AssertionError, OSError, http.client.HTTPException) as error:
            self._error = error
            self.end()

    @contextmanager
    def running(self) -> Iterator[int]:
        self._thread.start()
        try:
            yield self.port
        finally:
            self._is_over.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


def asking(texts: Sequence[str], *, ends: bool = True, **more: Any) -> Callable[[Clients], None]:
    """Clients that ask these questions, one after the other, and are all served."""

    def use(clients: Clients) -> None:
        for text in texts:
            assert clients.chat(text, **more)[0] == 200
        if ends:
            clients.end()

    return use


def live(
    first: str, second: str, use: Callable[[Clients], None], *options: str
) -> CompletedProcess[str]:
    with Clients(use).running() as port:
        address = f"127.0.0.1:{port}"
        return penstock("bench", "shadow", first, second, "--listen", address, *options)


def compared(
    use: Callable[[Clients], None], *options: str, second: Script | None = None
) -> tuple[CompletedProcess[str], ShadowServer, ShadowServer]:
    servers = ShadowServer(), ShadowServer(script=second or ShadowServer().script)
    with ExitStack() as opened:
        urls = [opened.enter_context(server.running()).url for server in servers]
        return live(urls[0], urls[1], use, *options), *servers


@pytest.mark.slow
def test_equal_deployments_have_no_finding_and_no_text_is_stored(tmp_path: Path) -> None:
    use = asking(prompts(COUNT), ends=False)
    done, first, second = compared(use, "--requests", str(COUNT), "--json")
    assert done.returncode == 0, done.stderr
    document = read_output("bench", done.stdout)
    assert document["verdict"] == "no_findings"
    assert (document["compared"], document["repeated"]) == (COUNT, COUNT)
    assert document["mirror"]["selected"] == document["mirror"]["forwarded"] == COUNT
    assert sorted(second.prompts) == sorted(prompts(COUNT))
    assert sorted(first.prompts) == sorted(prompts(COUNT) * 2)
    assert "question" not in done.stdout + done.stderr
    assert "An answer" not in done.stdout + done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_the_run_and_prints_the_verdict_which_a_second_run_continues(
    tmp_path: Path,
) -> None:
    results = tmp_path / "results.jsonl"

    def other(prompt: str, _: object) -> Reply:
        return Reply(text=reply_of(prompt).text.upper())

    for total in (20, 40):
        done, *_ = compared(asking(prompts(20)), "--results", str(results), second=other)
        assert done.returncode == FINDING, done.stderr
        assert f"compared: {total} of {total} requests, {total} sent to A twice" in done.stdout
        assert "verdict: B differs from A: text" in done.stdout
    assert results.stat().st_mode & 0o077 == 0
    assert "An answer to question 3" in results.read_text()  # the responses, as the option says
    assert '"messages"' not in results.read_text()


class Raw:
    """A server that sends the same bytes to everyone, and records what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, dict[str, str], bytes]] = []

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = body_of(request)
        self.got.append((request.command, request.path, dict(request.headers), body))
        if request.path == "/v1/models":
            request.send_response_only(200)
            request.send_header("Content-Length", str(len(MODELS)))
            request.end_headers()
            request.wfile.write(MODELS)
            return
        status = int(request.headers.get("X-Status", "200"))
        request.send_response_only(status)
        request.send_header("X-Own", "of A")
        request.send_header("Set-Cookie", "a=1")
        request.send_header("Set-Cookie", "b=2")
        request.send_header("content-type", "text/event-stream")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for part in (b": comment\n\n", b"data: \xff not JSON\r\n\r\n", b"data: [DO", b"NE]\n\n"):
            send_part(request, part)
        send_part(request, b"")


def raw_exchange(port: int, path: str, body: bytes, status: int) -> tuple[bytes, bytes]:
    """Head and body of the response; both without the size of chunks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"X-Status": str(status), "Authorization": "Bearer secret", "X-Tenant": "t"}
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    head = f"{response.status} {response.reason} {response.getheaders()}".encode()
    data = response.read()
    connection.close()
    return head, data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, b'{"messages": [{"role": "user", "content": "a"}]}', 200),
        (CHAT, b'{"messages": [{"role": "user", "content": "a"}]}', 429),
        (CHAT, b"\xff not JSON", 400),
        ("/v1/embeddings?a=%2F&b=%20", b"{}", 500),
    ],
)
def test_a_client_gets_the_same_bytes_as_without_the_proxy(
    path: str, body: bytes, status: int
) -> None:
    raw, second, received = Raw(), ShadowServer(), []
    with serving(raw.handle) as first, second.running():
        direct = raw_exchange(int(first.rpartition(":")[2]), path, body, status)

        def use(clients: Clients) -> None:
            received.append(raw_exchange(clients.port, path, body, status))
            clients.end()

        done = live(first, second.url, use, "--repeats", "0")
    assert received == [direct]
    without, through = (each for each in raw.got if each[0] == "POST")
    hosts = [each[2].pop("Host") for each in (without, through)]
    assert without == through, done.stderr
    assert hosts == [first.removeprefix("http://")] * 2
    assert len(second.bodies) == body.startswith(b'{"messages"')
    assert done.returncode == UNDECIDED


@pytest.mark.slow
def test_a_hanging_b_delays_no_client_and_its_copies_are_bounded() -> None:
    """All clients are served before B responds to anything."""
    released, served = threading.Event(), []

    def hang(prompt: str, _: object) -> Reply:
        assert released.wait(LIMIT_S)
        return reply_of(prompt)

    def use(clients: Clients) -> None:
        for prompt in prompts(80):
            served.append(clients.chat(prompt)[0])
        assert not released.is_set()
        released.set()
        clients.end()

    done, _, second = compared(use, "--concurrency", "2", "--repeats", "0", second=hang)
    assert served == [200] * 80
    copies = 64 + 2
    assert len(second.bodies) == copies, done.stderr
    assert f"not compared: {80 - copies} requests, as B was too slow" in done.stdout


def test_a_b_that_dies_is_a_finding_and_a_serves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE_S", 0.01)
    first, dying = ShadowServer(), ShadowServer(dies_after=3)
    with first.running(), dying.running():
        done = live(first.url, dying.url, asking(prompts(10)), "--concurrency", "1")
    assert done.returncode == FINDING, done.stderr
    assert "verdict: B differs from A: B unreachable, only one succeeds" in done.stdout
    assert "no longer responds: the connection ended early; requests still go to A" in done.stderr


def test_an_outage_of_b_is_named_once_for_all_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE_S", 0.01)

    def use(clients: Clients) -> None:
        clients.chat_at_once(prompts(12))
        clients.end()

    first, dying = ShadowServer(), ShadowServer(dies_after=1)
    with first.running(), dying.running():
        done = live(first.url, dying.url, use, "--concurrency", "6")
    assert done.returncode == FINDING, done.stderr
    assert done.stderr.count("no longer responds") == 1


@pytest.mark.slow
def test_sampled_texts_are_not_compared_but_their_structure_is() -> None:
    def use(clients: Clients) -> None:
        for number, prompt in enumerate(prompts(COUNT)):
            clients.chat(prompt, temperature=0.7 if number % 2 else 0)
        clients.end()

    def second(prompt: str, body: Any) -> Reply:
        text = reply_of(prompt).text
        return Reply(text=text.upper() if body["temperature"] else text, finish_reason="length")

    done, *_ = compared(use, second=second)
    assert f"text: not compared in {COUNT // 2} requests without temperature 0" in done.stdout
    assert "verdict: B differs from A: finish reason" in done.stdout
    assert done.returncode == FINDING


def test_a_client_that_disconnects_cancels_its_request_at_a() -> None:
    cancelled = threading.Event()

    def handle(request: BaseHTTPRequestHandler) -> None:
        endless(request)
        if request.command == "POST":
            cancelled.set()

    def use(clients: Clients) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", clients.port)
        connection.request("POST", CHAT, b"{}")
        assert connection.getresponse().read(4) == b"data"
        connection.close()
        assert cancelled.wait(LIMIT_S)
        clients.end()

    second = ShadowServer()
    with serving(handle) as first, second.running():
        done = live(first, second.url, use)
    assert cancelled.is_set()
    assert not second.bodies
    assert "not compared: 1 requests, as the client closed the connection" in done.stdout


def test_only_a_share_is_copied_and_other_paths_and_bodies_are_not() -> None:
    def use(clients: Clients) -> None:
        for prompt in prompts(COUNT):
            clients.chat(prompt)
        assert clients.post("/v1/models", b"")[0] == 200
        clients.end()

    done, _, second = compared(use, "--share", "0.25", "--repeats", "0", "--json")
    mirror = read_output("bench", done.stdout)["mirror"]
    assert mirror["forwarded"] == COUNT + 1
    assert 0 < len(second.bodies) == mirror["selected"] < COUNT


def test_b_never_gets_the_keys_of_clients() -> None:
    raw, first = Raw(), ShadowServer(key="of-the-client")
    with serving(raw.handle) as second, first.running(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "of-the-client")
        patch.setenv("OPENAI_API_KEY_B", "of-b")
        live(first.url, second, asking(["hello"]), "--repeats", "0")
    keys = {headers.get("Authorization") for command, _, headers, _ in raw.got if command == "POST"}
    assert keys == {"Bearer of-b"}


def test_wrong_addresses_and_endpoints_are_reported() -> None:
    server = ShadowServer()
    with server.running(), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = ("bench", "shadow", server.url)
        done = penstock(*command, server.url, "--listen", address)
        assert done.returncode == PORT_IN_USE
        assert f"--listen: cannot listen on {address}: " in done.stderr
        done = penstock(*command, "http://127.0.0.1:9", "--listen", "127.0.0.1:0")
        assert done.returncode == NOT_VERIFIED
    for options, message in (
        (("--listen", "0.0.0.0:80"), "'0.0.0.0:80' is not on loopback; write 127.0.0.1:PORT"),
        (("--listen", "127.0.0.1:x"), "'x' is not a port from 0 to 65535"),
        (("--listen", "127.0.0.1:0", "--as-sent"), "--as-sent needs --file"),
        (("--listen", "127.0.0.1:0", "--model", "m"), "--model needs --file"),
        (("--listen", "127.0.0.1:0", "--file", "x"), "not allowed with"),
        (("--file", "x", "--duration", "1m"), "--duration needs --listen"),
        (("--file", "x", "--share", "0.5"), "--share needs --listen"),
    ):
        done = penstock("bench", "shadow", "http://a", "http://b", *options)
        assert done.returncode == USAGE
        assert message in done.stderr
