"""The chart's objects for the `gateway` section are those of `gateway/routes.py`."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from penstock.errors import ChartError
from penstock.gateway.policy import policy_of_graph
from penstock.gateway.routes import objects
from penstock.graph.gateway import GatewaySection
from penstock.manifests.render import Rendered, render
from tests.support.kubernetes_schemas.references import set_problems

KINDS = {"Gateway", "HTTPRoute", "SecurityPolicy", "BackendTrafficPolicy", "ClientTrafficPolicy"}
LUA = "EnvoyExtensionPolicy"
# No number here is a default or is used twice, so the two cannot agree by accident.
ODD = """
hostname: llm.example.com
tls: {secret: llm-tls}
api_keys: {secret: keys, header: x-api-key}
gateway_class: envoy
rate_limit: {requests: 17, unit: hour, per: everyone}
timeouts: {connect_s: 3, idle_s: 411, upload_s: 29, request_s: 1711}
retries: 4
max_request_kib: 777
max_messages: 1303
max_parallel_requests: 5309
"""


def graph(
    gateway: str | None, platform: str = "dynamo", context: int | None = None
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "platform": platform,
        "model": {"id": "openai/gpt-oss-20b"} | ({"context_length": context} if context else {}),
        "engine": {"kind": "mocker"},
        "worker": {"replicas": 2},
        "frontend": {"port": 9000},
    }
    return values if gateway is None else {**values, "gateway": yaml.safe_load(gateway)}


def specs(rendered: Rendered) -> dict[str, Any]:
    return {o["kind"]: o["spec"] for o in rendered.objects if o["kind"] in {*KINDS, LUA}}


@pytest.mark.parametrize("platform", ["dynamo", "plain"])
@pytest.mark.parametrize(
    "gateway",
    ["{}", ODD, "rate_limit: {requests: 600, unit: minute}", "tls: {secret: t}\nretries: 0"],
)
@pytest.mark.parametrize("context", [None, 8192, 131_072, 40_001])
def test_the_chart_renders_what_the_gateway_file_renders(
    gateway: str, platform: str, context: int | None
) -> None:
    rendered = render(graph(gateway, platform, context), name="demo")
    section = GatewaySection.model_validate(yaml.safe_load(gateway))
    policy = policy_of_graph(section, "demo", "default", context)
    expected = {o["kind"]: o["spec"] for o in objects(policy)}
    assert set(expected) == KINDS | ({LUA} if gateway == ODD else set())
    assert specs(rendered) == expected


@pytest.mark.parametrize(("context", "kib"), [(None, 2048), (8192, 192), (131_072, 2112)])
def test_the_largest_request_depends_on_the_context(context: int | None, kib: int) -> None:
    traffic = specs(render(graph("{}", context=context), name="demo"))["BackendTrafficPolicy"]
    assert traffic["requestBuffer"] == {"limit": f"{kib}Ki"}


def test_every_object_has_the_name_of_the_release_and_the_labels_of_the_chart() -> None:
    rendered = render(graph(ODD), name="demo")
    of_gateway = [o for o in rendered.objects if o["kind"] in KINDS]
    assert len(of_gateway) == len(KINDS)
    for o in of_gateway:
        assert o["metadata"]["name"] == "demo"
        assert o["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo"


def test_without_the_section_nothing_is_rendered() -> None:
    for gateway in (None, "null"):
        assert specs(render(graph(gateway), name="demo")) == {}


def test_the_section_changes_no_other_object() -> None:
    """So a gateway is added to a running release without a restart of its pods."""

    def others(rendered: Rendered) -> list[Any]:
        return [dict(o) for o in rendered.objects if o["kind"] not in {*KINDS, LUA}]

    before = others(render(graph(None), name="demo"))
    assert others(render(graph(ODD), name="demo")) == before


def test_the_secret_of_the_keys_must_exist() -> None:
    manifests = [dict(o) for o in render(graph("{}"), name="demo").objects]
    problems = [str(p) for p in set_problems(manifests)]
    assert any("demo-api-keys" in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("gateway", "place"),
    [
        ("rate_limit: {requests: 0, unit: minute}", "gateway.rate_limit.requests"),
        ("rate_limit: {requests: 1}", "gateway.rate_limit.unit"),
        ("rate_limit: {requests: 1, unit: day}", "gateway.rate_limit.unit"),
        ("max_request_kib: 1.5", "gateway.max_request_kib"),
        ("tls: {}", "gateway.tls.secret"),
        ("keys: {}", "gateway.keys"),
        ("api_keys: {header: 'x y'}", "gateway.api_keys.header"),
    ],
)
def test_helm_refuses_a_wrong_value(gateway: str, place: str) -> None:
    with pytest.raises(ChartError) as error:
        render(graph(gateway), name="demo")
    assert place in [problem.place for problem in error.value.problems], error.value
