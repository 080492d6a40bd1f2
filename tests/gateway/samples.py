"""Sample gateway files, and their outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.gateway.envoy import Address, LocalSetup, config
from penstock.gateway.model import parse_gateway
from penstock.gateway.policy import Policy, build_policy

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "k8s" / "gateway" / "gateway.yaml"
RENDERED = ROOT / "k8s" / "gateway" / "rendered.yaml"
PLANTED = "planted-key-that-must-stay-secret-1"

MINIMAL = """\
name: front
namespace: llm
gateway_class: eg
hostname: llm.example.com
tls: {secret: front-tls}
api_keys: {secret: front-keys}
"""
BACKENDS = "backends: [{release: stable, weight: 1}]\n"
SHADOW = "shadow: {release: candidate, percent: 20}\n"
# No number here is a default or is used twice, so two outputs cannot agree by accident.
ODD = """\
backends: [{release: stable, weight: 70}, {release: canary, weight: 30, port: 8100}]
shadow: {release: candidate, percent: 13}
rate_limit: {requests: 17, unit: hour, per: client}
timeouts: {connect_s: 3, idle_s: 411, upload_s: 29, request_s: 1711}
retries: 4
max_request_kib: 777
max_messages: 1303
max_parallel_requests: 5309
"""


def policy(rest: str = BACKENDS) -> Policy:
    return build_policy(parse_gateway(MINIMAL + rest, "gateway.yaml"))


def local(policy: Policy, keys: dict[str, str] | None = None, **ports: int) -> LocalSetup:
    """Every release on its own port, or on the given one; listening on ``listen``."""
    frontends = {
        target.release: Address(host="127.0.0.1", port=ports.get(target.release, 9000 + number))
        for number, target in enumerate(policy.targets)
    }
    listen = Address(host="127.0.0.1", port=ports.get("listen", 8080))
    return LocalSetup(listen=listen, frontends=frontends, keys=keys or {"tester": PLANTED})


def envoy(policy: Policy) -> dict[str, Any]:
    return config(policy, local(policy))
