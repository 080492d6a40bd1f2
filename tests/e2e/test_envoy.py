"""Which responses of frontends the local Envoy repeats, changes or passes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from penstock.environments import environments_root
from penstock.local.envoy import Envoy
from penstock.local.launch import fill
from penstock.local.ports import Ports
from penstock.local.services import envoy_binary
from tests.local.test_request_adapter import HOSTS
from tests.support.scripted_http import body_of, respond, serving
from tests.support.waiting import wait_for

pytestmark = pytest.mark.needs("envoy")

CHUNKED = b"0\r\n\r\n"  # no chunk but the last
CHAT = "/v1/chat/completions"
JSON = "application/json"


@dataclass
class Script:
    """What both frontends respond, and the ports of those that were asked."""

    status: int = 200
    body: bytes = b"{}"
    fails: dict[int, int] = field(default_factory=dict)
    """Port → status; 0 closes the connection."""
    ports: list[int] = field(default_factory=list)

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        port = request.server.server_address[1]
        body_of(request)
        is_health = request.path == "/health"
        if not is_health:
            self.ports.append(port)
        if self.fails.get(port) == 0 and not is_health:
            request.close_connection = True  # before the first byte of a response
        elif is_health or port in self.fails:
            respond(request, b"{}", 200 if is_health else self.fails[port], Content_Type=JSON)
        elif self.body == CHUNKED:
            request.send_response(self.status)
            request.send_header("Transfer-Encoding", "chunked")
            request.end_headers()
            request.wfile.write(CHUNKED)
        else:
            media = {"Content_Type": JSON} if self.body.startswith(b"{") else {}
            respond(request, self.body, self.status, **media)


SCRIPT = Script()


@pytest.fixture(scope="module")
def upstream() -> Iterator[list[int]]:
    with serving(SCRIPT.respond) as first, serving(SCRIPT.respond) as second:
        yield [int(url.rpartition(":")[2]) for url in (first, second)]


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
        wait_for(lambda: _serves(url), url, look_s=0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def _serves(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/models").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(autouse=True)
def _reset() -> None:
    SCRIPT.status, SCRIPT.body, SCRIPT.fails = 200, b"{}", {}
    SCRIPT.ports.clear()


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
    before = len(SCRIPT.ports)
    for path in ("/busy_threshold", "/v1/../busy_threshold", "/engine/control"):
        assert httpx.post(f"{endpoint}{path}", json={}).status_code == 404
    assert len(SCRIPT.ports) == before
    assert httpx.get(f"{endpoint}/metrics").status_code == 200


def test_the_empty_404_of_a_model_without_workers_becomes_a_503(endpoint: str) -> None:
    SCRIPT.status, SCRIPT.body = 404, b""
    response = post(endpoint + CHAT)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert response.json()["error"]["code"] == "service_unavailable"


@pytest.mark.parametrize(("status", "seconds"), [(429, "2"), (503, "5")])
def test_a_temporary_error_gets_retry_after_and_the_body_of_openai(
    endpoint: str, status: int, seconds: str
) -> None:
    SCRIPT.status, SCRIPT.body = status, b'{"message": "busy"}'
    response = post(endpoint + CHAT)
    assert (response.status_code, response.headers["retry-after"]) == (status, seconds)
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_an_empty_404_in_chunks_becomes_a_503_too(endpoint: str) -> None:
    SCRIPT.status, SCRIPT.body = 404, CHUNKED
    assert post(endpoint + CHAT).status_code == 503


def test_a_large_request_is_sent_to_another_frontend(endpoint: str, upstream: list[int]) -> None:
    SCRIPT.fails = {upstream[0]: 503}
    for _ in range(4):
        response = httpx.post(endpoint + CHAT, json={"prompt": "x" * 3_000_000})
        assert response.status_code == 200


@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, b'{"error": "no model m"}'), ("/v1/nothing", b""), ("/nothing", b"")]
)
def test_another_404_stays(endpoint: str, path: str, body: bytes) -> None:
    SCRIPT.status, SCRIPT.body = 404, body
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
        SCRIPT.status, SCRIPT.body = status, b'{"message": "Model not found"}'
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
    SCRIPT.fails = {upstream[0]: status}
    # Envoy chooses the frontend at random: few requests may all miss the one that fails.
    for _ in range(60):
        assert post(endpoint + CHAT).status_code == 200
        if set(SCRIPT.ports) == set(upstream):
            break
    assert set(SCRIPT.ports) == set(upstream)


@pytest.mark.parametrize("status", [400, 429, 501])
def test_the_error_of_a_request_is_passed_on_once(endpoint: str, status: int) -> None:
    SCRIPT.status = status
    assert post(endpoint + CHAT).status_code == status
    assert len(SCRIPT.ports) == 1


def test_a_request_that_fails_everywhere_is_tried_three_times(
    endpoint: str, upstream: list[int]
) -> None:
    SCRIPT.fails = dict.fromkeys(upstream, 500)
    response = post(endpoint + CHAT)
    assert (response.status_code, response.headers["retry-after"]) == (500, "5")
    assert len(SCRIPT.ports) == 3
