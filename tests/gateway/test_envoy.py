"""The real Envoy with the generated configuration, in front of fake frontends.

With real graphs behind it: tests/e2e/test_gateway.py.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.gateway import envoy as envoy_config
from penstock.gateway.envoy import BUFFER, Config, LocalSetup, config
from penstock.gateway.model import load_gateway
from penstock.gateway.policy import Policy, build_policy
from penstock.local import run_envoy
from penstock.local.ports import Ports
from tests.gateway.fakes import Frontend, never_reads
from tests.gateway.samples import BACKENDS, EXAMPLE, ODD, PLANTED, SHADOW, local, policy

pytestmark = pytest.mark.needs("envoy")

KEYS = {"alice": PLANTED, "bob": f"{PLANTED}-bob"}
TWO = "backends: [{release: stable, weight: 50}, {release: canary, weight: 50}]\n"
LIMITED = BACKENDS + "rate_limit: {requests: 3, unit: hour, per: client}\n"
# More than the sockets between Envoy and a shadow that does not read can hold.
COUNTED = policy(BACKENDS + "max_messages: 20\n")
LARGE = BACKENDS + SHADOW.replace("20", "100") + "max_request_kib: 8192\n"
TOGETHER = LIMITED.replace("per: client", "per: everyone")


def bearer(client: str = "alice") -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[client]}"}


@contextmanager
def serving(
    policy: Policy,
    buffered: bool = True,
    *,
    edit: Callable[[list[Config]], None] = lambda _: None,
    **ports: int,
) -> Iterator[httpx.Client]:
    """A client of Envoy with the policy's configuration; keeps its connection.

    ``edit``: changes the listener's filters.
    """
    ports = {"listen": Ports().free(), **ports}
    setup = local(policy, KEYS, **ports)
    configuration = config(policy, setup) if buffered else without_buffer(policy, setup)
    edit(configuration["static_resources"]["listeners"][0]["filter_chains"][0]["filters"])
    with run_envoy.start_envoy(run_envoy.require_envoy(), configuration, KEYS) as envoy:
        envoy.wait_until_listening(setup.listen)
        url = f"http://127.0.0.1:{setup.listen.port}"
        with httpx.Client(base_url=url, trust_env=False, timeout=3) as client:
            yield client


def without_buffer(policy: Policy, setup: LocalSetup) -> dict[str, object]:
    configuration = config(policy, setup)
    chain = configuration["static_resources"]["listeners"][0]["filter_chains"][0]
    manager = chain["filters"][-1]["typed_config"]
    manager["http_filters"] = [f for f in manager["http_filters"] if f["name"] != BUFFER]
    return configuration


@pytest.mark.parametrize(
    "routed",
    [
        *(policy(rest) for rest in (BACKENDS, ODD, TOGETHER, TWO + SHADOW)),
        build_policy(load_gateway(EXAMPLE)),
    ],
)
def test_envoy_accepts_the_configuration(tmp_path: Path, routed: Policy) -> None:
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps(config(routed, local(routed))))
    argv = [str(run_envoy.require_envoy()), "--mode", "validate", "-c", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {PLANTED}x"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {PLANTED}"},
        {"x-api-key": PLANTED},
        {"x-penstock-client": "alice"},
    ],
)
def test_without_a_known_key_no_frontend_is_reached(headers: dict[str, str]) -> None:
    with Frontend("stable") as stable, Frontend("candidate") as shadow:
        routed = policy(BACKENDS + SHADOW.replace("20", "100"))
        ports = {"stable": stable.port, "candidate": shadow.port}
        with serving(routed, **ports) as client:
            answer = client.post("/v1/chat/completions", json={}, headers=headers)
            assert answer.status_code == 401
            assert client.post("/v1/chat/completions", headers=bearer()).status_code == 200
            shadow.wait_for_requests(1)
    assert (len(stable.seen), len(shadow.seen)) == (1, 1)


@pytest.mark.parametrize(
    "name",
    [
        *("x-dynamo-request-priority", "X-Dynamo-Request-Strict-Priority"),
        *("x-dynamo-worker-instance-id", "x-worker-instance-id", "x-dp-rank"),
        *("x-dynamo-prefill-instance-id", "x-prefill-instance-id", "x-prefill-dp-rank"),
        *("x-dynamo-dp-rank", "x-dynamo-prefill-dp-rank", "x-data-parallel-rank"),
        *("x-dynamo-meta-policy-class", "x-tenant-id"),
    ],
)
def test_no_client_controls_the_router(name: str) -> None:
    sent = {name: "1", "x-dynamo-session-id": "s", "x-request-id": "r", **bearer()}
    with Frontend("stable") as stable, Frontend("candidate") as shadow:
        routed = policy(BACKENDS + SHADOW.replace("20", "100"))
        with serving(routed, stable=stable.port, candidate=shadow.port) as client:
            assert client.post("/v1/chat/completions", headers=sent).status_code == 200
            shadow.wait_for_requests(1)
    for seen in (*stable.seen, *shadow.seen):
        names = {header.lower() for header in seen}
        assert name.lower() not in names
        assert {"x-dynamo-session-id", "x-request-id"} <= names


def test_headers_that_never_end_are_given_up() -> None:
    def shorten(filters: Any) -> None:
        assert filters[-1]["typed_config"]["request_headers_timeout"] == "10s"
        filters[-1]["typed_config"]["request_headers_timeout"] = "0.3s"

    with (
        Frontend("stable") as stable,
        serving(policy(BACKENDS), edit=shorten, stable=stable.port) as client,
        socket.create_connection((client.base_url.host, int(client.base_url.port or 0))) as slow,
    ):
        slow.settimeout(10)
        slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n")
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
    assert not stable.seen


def test_connections_above_the_cap_are_closed() -> None:
    def lower(filters: Any) -> None:
        assert filters[0]["typed_config"]["max_connections"] == 16_384
        filters[0]["typed_config"]["max_connections"] = 2

    with (
        Frontend("stable") as stable,
        serving(policy(BACKENDS), edit=lower, stable=stable.port) as client,
        ExitStack() as stack,
    ):
        address = client.base_url.host, int(client.base_url.port or 0)
        assert client.post("/v1/chat/completions", headers=bearer()).status_code == 200
        stack.enter_context(socket.create_connection(address))
        third = stack.enter_context(socket.create_connection(address))
        third.settimeout(10)
        assert third.recv(100) == b""
        assert client.post("/v1/chat/completions", headers=bearer()).status_code == 200


def test_a_key_is_accepted_with_or_without_bearer_and_not_forwarded() -> None:
    with Frontend("stable") as stable, Frontend("candidate") as shadow:
        routed = policy(BACKENDS + SHADOW.replace("20", "100"))
        ports = {"stable": stable.port, "candidate": shadow.port}
        with serving(routed, **ports) as client:
            assert client.get("/v1/models", headers=bearer("bob")).text == "stable"
            headers = {"Authorization": PLANTED, "x-penstock-client": "bob"}
            assert client.get("/v1/models", headers=headers).text == "stable"
        shadow.wait_for_requests(2)
    for seen in (stable.seen, shadow.seen):  # copies may overtake each other
        assert sorted(request["x-penstock-client"] for request in seen) == ["alice", "bob"]
        assert PLANTED not in str(seen)


@pytest.mark.parametrize(("rest", "bob"), [(LIMITED, 200), (TOGETHER, 429)])
def test_above_the_limit_no_frontend_is_reached(rest: str, bob: int) -> None:
    with Frontend("stable") as stable:
        with serving(policy(rest), stable=stable.port) as client:
            wrong = {"Authorization": "Bearer wrong"}
            assert client.get("/v1/models", headers=wrong).status_code == 401  # does not count
            statuses = [client.get("/v1/models", headers=bearer()).status_code for _ in range(5)]
            assert statuses == [200, 200, 200, 429, 429]
            spoofed = bearer() | {"x-penstock-client": "another-client"}
            assert client.get("/v1/models", headers=spoofed).status_code == 429
            assert client.get("/v1/models", headers=bearer("bob")).status_code == bob
        assert len(stable.seen) == 3 + (bob == 200)


@pytest.mark.parametrize(
    "path", ["/metrics", "/health", "/v1x", "/v1/../metrics", "/v1/%2e%2e/live"]
)
def test_only_the_openai_api_is_reached(path: str) -> None:
    with Frontend("stable") as stable:
        with serving(policy(), stable=stable.port) as client:
            raw = httpx.URL(client.base_url, raw_path=path.encode())
            assert client.get(raw, headers=bearer()).status_code == 404
        assert stable.seen == []


def test_a_request_above_the_size_limit_is_rejected_and_one_below_arrives() -> None:
    routed = policy(BACKENDS + "max_request_kib: 100\n")
    with Frontend("stable") as stable:
        with serving(routed, stable=stable.port) as client:
            for kib, status in ((99, 200), (101, 413)):
                content = b"x" * kib * 1024
                answer = client.post("/v1/x", content=content, headers=bearer())
                assert answer.status_code == status
        assert len(stable.seen) == 1


ROLE = {"role": "user", "content": ""}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"messages": [ROLE] * 20}, 200),
        ({"messages": [ROLE] * 21}, 413),
        ({"input": [ROLE] * 21}, 413),
        ({"prompt": ["x"] * 21}, 413),
        ({"prompt": [[1, 2]] * 21}, 413),
        ({"prompt": [1] * 5000}, 200),  # token ids
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 30}]}, 200),
        ({"tools": [{"function": {"enum": ["x"] * 30}}] * 30, "messages": [ROLE]}, 200),
        ({"tools": [], "messages": [ROLE] * 21}, 413),
        ({"model": "tools", "messages": [ROLE] * 21}, 413),
        ({"tools": "messages", "prompt": ["x"] * 21}, 413),
        ({"logit_bias": {str(n): 1 for n in range(30)}, "messages": [ROLE]}, 200),
        ({"messages": [{"role": "user", "content": '"},{' * 30 + "\\"}]}, 200),
        ({"x": "\\", "messages": [{"role": "user", "content": '\\"' * 30}] * 21}, 413),
        ([1, [ROLE] * 20], 200),
        ("x" * 30, 200),
    ],
)
def test_more_messages_than_the_limit_are_refused(body: object, status: int) -> None:
    for content in (json.dumps(body), json.dumps(body, indent=1)):
        with Frontend("stable") as stable, serving(COUNTED, stable=stable.port) as client:
            answer = client.post("/v1/x", content=content, headers=bearer())
        assert (answer.status_code, len(stable.seen)) == (status, int(status == 200))
        if status == 413:
            error = answer.json()["error"]
            assert (error["code"], "20 messages" in error["message"]) == ("request_too_large", True)


def test_a_name_that_is_escaped_does_not_hide_messages() -> None:
    content = '{"mess\\u0061ges": [' + ",".join(['{"r\\u006fle": "user"}'] * 21) + "]}"
    assert len(json.loads(content)["messages"]) == 21
    with Frontend("stable") as stable, serving(COUNTED, stable=stable.port) as client:
        assert client.post("/v1/x", content=content, headers=bearer()).status_code == 413
        assert client.get("/v1/models", headers=bearer()).status_code == 200


def test_a_large_request_passes_a_shadow_that_does_not_read() -> None:
    routed = policy(LARGE)
    with (
        Frontend("stable") as stable,
        never_reads() as deaf,
        serving(routed, stable=stable.port, candidate=deaf) as client,
    ):
        for size in (100, 8_000_000, 100, 8_000_000, 100):  # over one connection
            content = b"x" * size
            assert client.post("/v1/x", content=content, headers=bearer()).status_code == 200
    assert len(stable.seen) == 5


def test_without_the_buffer_that_shadow_would_stop_the_primary() -> None:
    """Why requests are buffered: Envoy stops reading a request while its mirror does not read.
    When this test fails, Envoy has changed, and the buffer may be removed."""
    routed = policy(LARGE)
    with (
        Frontend("stable") as stable,
        never_reads() as deaf,
        serving(routed, False, stable=stable.port, candidate=deaf) as client,
        pytest.raises(httpx.TimeoutException),
    ):
        client.post("/v1/x", content=b"x" * 8_000_000, headers=bearer(), timeout=0.5)


def test_copies_above_the_bound_are_dropped_and_delay_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envoy_config, "MIRROR_BOUND", 8)
    routed = policy(BACKENDS + SHADOW.replace("20", "100"))
    with (
        Frontend("stable") as stable,
        never_reads() as deaf,
        serving(routed, stable=stable.port, candidate=deaf) as client,
    ):
        for _ in range(100):
            assert client.get("/v1/models", headers=bearer()).status_code == 200


def test_a_release_that_is_down_fails_no_request_of_a_canary() -> None:
    with Frontend("stable") as stable, ExitStack() as stack:
        canary = stack.enter_context(Frontend("canary"))
        ports = {"stable": stable.port, "canary": canary.port}
        with serving(policy(TWO), **ports) as client:
            names = {client.get("/v1/models", headers=bearer()).text for _ in range(40)}
            assert names == {"stable", "canary"}
            stack.close()
            for _ in range(40):
                assert client.get("/v1/models", headers=bearer()).text == "stable"


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_error_is_retried_on_another_backend(status: int) -> None:
    with Frontend("stable") as stable, Frontend("canary", status) as canary:
        ports = {"stable": stable.port, "canary": canary.port}
        with serving(policy(TWO), **ports) as client:
            answers = {client.get("/v1/models", headers=bearer()).text for _ in range(40)}
    assert answers == {"stable"}
    assert canary.seen
