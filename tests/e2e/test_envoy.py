"""Which responses of frontends the local Envoy repeats, changes or passes on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import ClassVar

import httpx
import pytest

from penstock.environments import environments_root
from penstock.local.envoy import Envoy
from penstock.local.launch import fill
from penstock.local.ports import Ports
from penstock.local.services import envoy_binary
from tests.local.test_request_adapter import HOSTS
from tests.support.scripted_http import QuietServer

pytestmark = pytest.mark.needs("envoy")

CHUNKED = b"0\r\n\r\n"  # no chunk but the last
CHAT = "/v1/chat/completions"


class Frontend(BaseHTTPRequestHandler):
    """A scripted frontend. ``fails``: port → status; 0 closes the connection."""

    status: ClassVar[int] = 200
    body: ClassVar[bytes] = b"{}"
    fails: ClassVar[dict[int, int]] = {}
    ports: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.path == "/health":
            self._send(200, b"{}")
            return
        Frontend.ports.append(port)
        if Frontend.fails.get(port) == 0:
            self.connection.close()  # a reset before the first byte
            return
        if port in Frontend.fails:
            self._send(Frontend.fails[port], b"{}")
            return
        self._send(Frontend.status, Frontend.body)

    def do_POST(self) -> None:
        self.do_GET()

    def _send(self, status: int, body: bytes) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(status)
        if body == CHUNKED:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(len(body)))
        if body.startswith(b"{"):
            self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[list[int]]:
    servers = [QuietServer(("127.0.0.1", 0), Frontend) for _ in range(2)]
    for server in servers:
        Thread(target=server.serve_forever, daemon=True).start()
    yield [server.server_address[1] for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "envoy.log"


@pytest.fixture(scope="module")
def endpoint(
    upstream: list[int], log: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    binary = envoy_binary(environments_root())
    assert binary is not None
    ports = Ports()
    port, health = ports.free(), ports.free()
    folder = tmp_path_factory.mktemp("envoy")
    envoy = Envoy(binary, folder, "127.0.0.1", port, hosts=["gpu-1.example.com"])
    argv = [fill(part, {"health": health}) for part in envoy.program().argv]
    envoy.list_frontends(upstream)
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stderr=output)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_it_serves(url)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_serves(url: str) -> None:
    for _ in range(300):
        try:
            if httpx.get(f"{url}/v1/models").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise TimeoutError(url)


@pytest.fixture(autouse=True)
def _reset() -> None:
    Frontend.status, Frontend.body, Frontend.fails = 200, b"{}", {}
    Frontend.ports.clear()


def post(url: str, model: str = "m") -> httpx.Response:
    return httpx.post(url, json={"model": model})


@pytest.mark.parametrize(("host", "status"), [*HOSTS.items(), ("GPU-1.example.com:80", 200)])
def test_only_names_of_this_machine_are_served(endpoint: str, host: str, status: int) -> None:
    response = httpx.post(endpoint + CHAT, json={"model": "m"}, headers={"Host": host})
    assert response.status_code == status
    if status == 421:
        assert response.json()["error"]["code"] == "unknown_host"
        assert "--allow-host NAME" in response.json()["error"]["message"]


def test_the_settings_of_frontends_cannot_be_reached(endpoint: str) -> None:
    before = len(Frontend.ports)
    for path in ("/busy_threshold", "/v1/../busy_threshold", "/engine/control"):
        assert httpx.post(f"{endpoint}{path}", json={}).status_code == 404
    assert len(Frontend.ports) == before
    assert httpx.get(f"{endpoint}/metrics").status_code == 200


def test_the_empty_404_of_a_model_without_workers_becomes_a_503(endpoint: str) -> None:
    Frontend.status, Frontend.body = 404, b""
    response = post(endpoint + CHAT)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert response.json()["error"]["code"] == "service_unavailable"


@pytest.mark.parametrize(("status", "seconds"), [(429, "2"), (503, "5")])
def test_a_temporary_error_gets_retry_after_and_the_body_of_openai(
    endpoint: str, status: int, seconds: str
) -> None:
    Frontend.status, Frontend.body = status, b'{"message": "busy"}'
    response = post(endpoint + CHAT)
    assert (response.status_code, response.headers["retry-after"]) == (status, seconds)
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_an_empty_404_in_chunks_becomes_a_503_too(endpoint: str) -> None:
    Frontend.status, Frontend.body = 404, CHUNKED
    assert post(endpoint + CHAT).status_code == 503


def test_a_large_request_is_sent_to_another_frontend(endpoint: str, upstream: list[int]) -> None:
    Frontend.fails = {upstream[0]: 503}
    for _ in range(4):
        response = httpx.post(endpoint + CHAT, json={"prompt": "x" * 3_000_000})
        assert response.status_code == 200


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, b'{"error": "no model m"}'), ("/v1/nothing", b""), ("/nothing", b"")]
)
def test_another_404_stays(endpoint: str, path: str, body: bytes) -> None:
    Frontend.status, Frontend.body = 404, body
    response = post(endpoint + path, "unknown")
    assert (response.status_code, response.content) == (404, body)


@pytest.mark.parametrize(
    "request_body",
    [
        b'{"model":"seen", "messages": []}',
        b'{"messages": [{"content": "\\"model\\": \\"other\\""}], "model" : "seen"}',
    ],
)
def test_a_404_for_a_model_that_was_just_served_becomes_a_503(
    endpoint: str, request_body: bytes
) -> None:
    statuses = []
    for status in (200, 404):
        Frontend.status, Frontend.body = status, b'{"message": "Model not found"}'
        statuses.append(httpx.post(endpoint + CHAT, content=request_body))
    assert [response.status_code for response in statuses] == [200, 503]
    assert statuses[1].headers["retry-after"] == "5"
    assert post(endpoint + CHAT, "other").status_code == 404


def test_a_body_without_a_length_is_passed_on(endpoint: str, log: Path) -> None:
    response = httpx.post(endpoint + CHAT, content=iter([b'{"model"', b':"chunked"}']))
    assert response.status_code == 200
    assert "bad argument" not in log.read_text()


@pytest.mark.parametrize("status", [0, 500, 503])
def test_another_frontend_serves_what_one_cannot(
    endpoint: str, upstream: list[int], status: int
) -> None:
    Frontend.fails = {upstream[0]: status}
    # Envoy chooses the frontend at random: few requests may all miss the one that fails.
    for _ in range(60):
        assert post(endpoint + CHAT).status_code == 200
        if set(Frontend.ports) == set(upstream):
            break
    assert set(Frontend.ports) == set(upstream)


@pytest.mark.parametrize("status", [400, 429, 501])
def test_the_error_of_a_request_is_passed_on_once(endpoint: str, status: int) -> None:
    Frontend.status = status
    assert post(endpoint + CHAT).status_code == status
    assert len(Frontend.ports) == 1


def test_a_request_that_fails_everywhere_is_tried_three_times(
    endpoint: str, upstream: list[int]
) -> None:
    Frontend.fails = dict.fromkeys(upstream, 500)
    response = post(endpoint + CHAT)
    assert (response.status_code, response.headers["retry-after"]) == (500, "5")
    assert len(Frontend.ports) == 3
