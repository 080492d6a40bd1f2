"""The gateway of a running graph: which edits it applies, and how `status` shows it."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace as with_fields
from rich.console import Console

from penstock.errors import StartError
from penstock.gateway.envoy import (
    PROBE_HEADER,
    Address,
    Certificate,
    LiveRoutes,
    LocalSetup,
    config,
)
from penstock.gateway.policy import policy_of_graph
from penstock.graph.gateway import GatewaySection, Limits
from penstock.local.gateway import FIXED, GatewayOptions, LocalGateway, Places, fixed_setting
from penstock.local.ports import Ports
from penstock.local.state_file import FileDiscoveryState, GatewayStatus, LocalState, Phase
from penstock.local.status_table import overview
from tests.gateway.fakes import Frontend

MODELS = '{"data": [{"id": "m"}]}'
KEY = "planted-key-of-alice-0123456789"
LIVE = LiveRoutes(descriptor=7, folder=Path("/run/changes"), probe="token")
SETUP = LocalSetup(
    listen=Address(host="127.0.0.1", port=1),
    frontends={"g": Address(host="127.0.0.1", port=2)},
    keys={"alice": KEY},
)


def section(**fields: Any) -> GatewaySection:
    return GatewaySection.model_validate(fields)


@pytest.mark.parametrize(
    ("edit", "setting"),
    [
        ({"retries": 1}, "gateway.retries"),
        ({"max_parallel_requests": 7}, "gateway.max_parallel_requests"),
        ({"timeouts": {"connect_s": 1}}, "gateway.timeouts.connect_s"),
        ({"timeouts": {"upload_s": 1}}, "gateway.timeouts.upload_s"),
        ({"timeouts": {"idle_s": 1, "request_s": 1}}, ""),
        ({"max_request_kib": 1, "rate_limit": {"requests": 1, "unit": "hour"}}, ""),
        ({"api_keys": {"header": "x-api-key"}}, ""),
        ({"hostname": "llm.example.com", "tls": {"secret": "t"}, "gateway_class": "a"}, ""),
    ],
)
def test_a_running_gateway_refuses_only_what_envoy_reads_once(
    edit: dict[str, Any], setting: str
) -> None:
    assert fixed_setting(section(), section(**edit)) == setting


def test_the_settings_that_are_not_fixed_are_in_the_live_routes() -> None:
    """Each field of the limits is either fixed or changes the routes that Envoy reads again."""
    edits: dict[str, dict[str, Any]] = {
        "rate_limit": {"rate_limit": {"requests": 3, "unit": "hour"}},
        "max_request_kib": {"max_request_kib": 3},
        "max_messages": {"max_messages": 3},
        "timeouts.idle_s": {"timeouts": {"idle_s": 3}},
        "timeouts.request_s": {"timeouts": {"request_s": 3}},
    }
    names = {name for name in Limits.model_fields if name != "timeouts"}
    names |= {f"timeouts.{name}" for name in type(section().timeouts).model_fields}
    assert names == {*FIXED, *edits}

    def routes(section: GatewaySection) -> str:
        return LIVE.routes(policy_of_graph(section, "g", "local"), SETUP, 1)

    for edit in edits.values():
        assert routes(section(**edit)) != routes(section())


def test_the_configuration_of_a_live_gateway_has_no_key() -> None:
    policy = policy_of_graph(section(), "g", "local")
    rendered = json.dumps(config(policy, SETUP, LIVE.source()))
    assert KEY not in rendered
    assert "token" not in rendered
    assert KEY in LIVE.routes(policy, SETUP, 1)


def test_only_the_routes_of_penstock_itself_need_no_key() -> None:
    policy = policy_of_graph(section(), "g", "local")
    (resource,) = json.loads(LIVE.routes(policy, SETUP, 1))["resources"]
    applied, first, clients = resource["virtual_hosts"][0]["routes"]
    for route in (applied, first):
        (header,) = route["match"]["headers"]
        assert header == {"name": PROBE_HEADER, "string_match": {"exact": "token"}}
    assert "envoy.filters.http.api_key_auth" in clients["typed_per_filter_config"]
    assert first["request_headers_to_remove"] == [PROBE_HEADER]


def local_gateway(folder: Path, frontend: Frontend, chain: Path, key: Path) -> LocalGateway:
    keys = folder / "keys.env"
    keys.touch(mode=0o600)
    keys.write_text(f"alice={KEY}\n")
    places = Places(
        listen=Address(host="127.0.0.1", port=Ports().free()),
        endpoint=Address(host="127.0.0.1", port=frontend.port),
        folder=folder / "changes",
        log=folder / "gateway.log",
        state=folder / "state",
    )
    options = GatewayOptions(keys=keys, certificate=Certificate(chain=chain, key=key))
    return LocalGateway("g", options, places, section(), print)


@pytest.mark.needs("envoy")
def test_a_gateway_serves_tls(tmp_path: Path) -> None:
    chain, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv += ["-keyout", str(key), "-out", str(chain)]
    subprocess.run(argv, check=True, capture_output=True)
    with Frontend(MODELS) as frontend:
        gateway = local_gateway(tmp_path, frontend, chain, key)
        try:
            asyncio.run(gateway.start(disaggregated=False))
            url = f"{gateway.status().url}/models"
            assert url.startswith("https://127.0.0.1:")
            trust = ssl.create_default_context(cafile=str(chain))
            assert httpx.get(url, verify=trust, trust_env=False).status_code == 401
            headers = {"Authorization": f"Bearer {KEY}"}
            assert httpx.get(url, verify=trust, trust_env=False, headers=headers).text == MODELS
        finally:
            gateway.stop()
    # The first completion passed through the gateway, without a key and without the probe's header.
    paths = [seen["path"] for seen in frontend.seen]
    assert paths == ["/v1/models", "/v1/chat/completions", "/v1/models"]
    assert all(PROBE_HEADER not in seen for seen in frontend.seen)


@pytest.mark.needs("envoy")
def test_a_wrong_certificate_ends_the_start_with_envoys_reason(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("not a certificate")
    with Frontend(MODELS) as frontend:
        gateway = local_gateway(tmp_path, frontend, wrong, wrong)
        try:
            with pytest.raises(StartError, match=r"Envoy exited with code 1: .*certificate"):
                asyncio.run(gateway.start(disaggregated=False))
        finally:
            gateway.stop()
    assert KEY not in (tmp_path / "gateway.log").read_text()


def test_status_shows_the_gateway_and_a_rejected_edit() -> None:
    gateway = GatewayStatus(
        url="http://127.0.0.1:8000/v1",
        pid=12,
        is_running=True,
        restarts=1,
        clients=("alice",),
        summary="API keys of 1 client, no rate limit, requests up to 2048 KiB",
        rejected_keys=("keys.env:2: is not CLIENT=KEY",),
        log="gateway.log",
    )
    output = text_of(gateway)
    assert "ready: http://127.0.0.1:8000/v1" in output
    assert "gateway: API keys of 1 client, no rate limit" in output
    assert "without a key, on this machine: http://127.0.0.1:9000/v1" in output
    assert "last edit of the keys rejected: keys.env:2: is not CLIENT=KEY" in output
    stopped = with_fields(gateway, is_running=False)
    assert "not running, log: gateway.log" in text_of(stopped)


def text_of(gateway: GatewayStatus) -> str:
    state = LocalState(
        pid=1,
        source="g.yaml",
        sets=(),
        phase=Phase.READY,
        endpoint="http://127.0.0.1:9000/v1",
        gateway=gateway,
        models=("m",),
        envoy=True,
        notes=(),
        rejected_edit=(),
        desired_replicas={},
        discovery=FileDiscoveryState(folder="d", namespace="n"),
        replicas=(),
    )
    console = Console(width=120, record=True, quiet=False, file=None)
    with console.capture() as capture:
        console.print(overview(state))
    return capture.get()
