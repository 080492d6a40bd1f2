"""The `gateway` section of a graph: every mistake has its line, place, cause and fix."""

from __future__ import annotations

import pytest

from penstock.errors import GraphError
from penstock.graph.gateway import GatewaySection
from penstock.graph.load import parse_graph

PLANTED = "planted-key-that-must-stay-secret-1"
GRAPH = """\
model: {id: openai/gpt-oss-20b}
engine: {kind: mocker}
worker: {replicas: 1}
"""


def section(text: str) -> GatewaySection:
    gateway = parse_graph(f"{GRAPH}gateway:\n  {text}\n", "g.yaml").graph.gateway
    assert gateway is not None
    return gateway


def error_of(text: str) -> str:
    with pytest.raises(GraphError) as error:
        parse_graph(f"{GRAPH}gateway:\n  {text}\n", "g.yaml")
    return str(error.value)


def test_every_field_has_a_default() -> None:
    gateway = section("{}")
    assert gateway == GatewaySection()
    assert (gateway.rate_limit, gateway.tls, gateway.hostname) == (None, None, None)
    assert (gateway.gateway_class, gateway.api_keys.header) == ("eg", "Authorization")


def test_without_the_section_there_is_no_gateway() -> None:
    assert parse_graph(GRAPH, "g.yaml").graph.gateway is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "rate_limits: {requests: 5, unit: second}",
            "rate_limits: unknown key `rate_limits`. Fix: Did you mean `rate_limit`?",
        ),
        (
            "timeouts: {request_ms: 30000}",
            "timeouts.request_ms: unknown key `request_ms`. Fix: Did you mean `request_s`?",
        ),
        (
            "rate_limit: {requests: 0, unit: minute}",
            "rate_limit.requests: must be at least 1, got 0",
        ),
        ("rate_limit: {requests: 5}", "rate_limit.unit: required, but missing. Fix: Add `unit:`"),
        (
            "rate_limit: {requests: 5, unit: day}",
            'rate_limit.unit: must be one of second, minute, hour, got "day"',
        ),
        (
            "rate_limit: {requests: 5, unit: second, per: key}",
            "rate_limit.per: must be one of client, everyone, got",
        ),
        ("rate_limit: 100/minute", "rate_limit: must be a section of `key: value` lines"),
        ("max_request_kib: 2MiB", "max_request_kib: must be an integer, got the string"),
        ("max_request_kib: 1.5", "max_request_kib: must be an integer, got the number 1.5"),
        ("timeouts: {request_s: 30s}", "timeouts.request_s: must be an integer, got the string"),
        ("retries: -1", "retries: must be at least 0, got -1"),
        ("tls: true", "tls: must be a section of `key: value` lines, got the boolean true"),
        ("tls: {}", "tls.secret: required, but missing. Fix: Add `secret:`"),
        ("hostname: https://a.example", "hostname: must be the name of a Kubernetes object, got"),
        ("api_keys: {header: 'x key'}", "api_keys.header: must be the name of an HTTP header, got"),
        ("backends: [{release: a, weight: 1}]", "backends: unknown key `backends`"),
    ],
)
def test_each_mistake_has_its_place_cause_and_fix(text: str, problem: str) -> None:
    message = error_of(text)
    assert message.startswith(f"g.yaml:5 gateway.{problem}"), message
    assert ". Fix: " in message


@pytest.mark.parametrize(
    "text",
    [
        f"api_keys: {PLANTED}",
        f"api_keys: [{PLANTED}]",
        f"api_keys: {{team-a: {PLANTED}}}",
        f"api_keys: {{secret: Bearer {PLANTED}}}",
        f"api_keys: {{header: Bearer {PLANTED}}}",
        f"api_keys: {{secret: [{PLANTED}]}}",
    ],
)
def test_a_misplaced_key_is_an_error_that_does_not_show_it(text: str) -> None:
    assert PLANTED not in error_of(text)
