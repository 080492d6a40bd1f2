"""The manifests and the local Envoy render the same policy: every number is the same in both."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from penstock.gateway.model import load_gateway
from penstock.gateway.policy import UNIT_S, build_policy
from penstock.gateway.routes import manifests, objects
from tests.gateway.samples import BACKENDS, EXAMPLE, ODD, PLANTED, RENDERED, SHADOW, envoy, policy

Found = dict[str, Any]


def kinds(rest: str) -> dict[str, Any]:
    return {o["kind"]: o["spec"] for o in objects(policy(rest))}


def of_manifests(rest: str) -> Found:
    """The numbers of the policy, read back from the manifests."""
    by_kind = kinds(rest)
    rule = by_kind["HTTPRoute"]["rules"][0]
    traffic, client = by_kind["BackendTrafficPolicy"], by_kind["ClientTrafficPolicy"]
    limits = traffic["rateLimit"]["local"]["rules"]
    keys = by_kind["SecurityPolicy"]["apiKeyAuth"]
    bounds = traffic["circuitBreaker"]
    return {
        "weights": [b["weight"] for b in rule["backendRefs"]],
        "path": rule["matches"][0]["path"]["value"],
        "mirrored": rule["filters"][0]["requestMirror"]["percent"],
        "header": keys["extractFrom"][0]["headers"][0],
        "client": keys["forwardClientIDHeader"],
        "key_removed": keys["sanitize"],
        "limit": limits[0]["limit"]["requests"],
        "seconds": UNIT_S[limits[0]["limit"]["unit"].lower()],
        "counted_by": limits[0]["clientSelectors"][0]["headers"][0]["name"],
        "connect": traffic["timeout"]["tcp"]["connectTimeout"],
        "request": traffic["timeout"]["http"]["requestTimeout"],
        "idle": traffic["timeout"]["http"]["streamIdleTimeout"],
        "upload": client["timeout"]["http"]["requestReceivedTimeout"],
        "headers": client["timeout"]["http"]["requestHeadersReceivedTimeout"],
        "clients": client["connection"]["connectionLimit"]["value"],
        "removed": [
            (match["type"].lower(), match["value"])
            for match in client["headers"]["earlyRequestHeaders"]["removeOnMatch"]
        ],
        "retries": traffic["retry"]["numRetries"],
        "retry_on": traffic["retry"]["retryOn"]["triggers"],
        "retry_status": traffic["retry"]["retryOn"]["httpStatusCodes"],
        "bytes": int(traffic["requestBuffer"]["limit"].removesuffix("Ki")) * 1024,
        "messages": by_kind["EnvoyExtensionPolicy"]["lua"][0]["inline"],
        "connections": bounds["maxConnections"],
        "pending": bounds["maxPendingRequests"],
        "parallel": bounds["maxParallelRequests"],
        "parallel_retries": bounds["maxParallelRetries"],
    }


def of_envoy(rest: str) -> Found:
    """The same numbers, read back from the local Envoy's configuration."""
    static = envoy(policy(rest))["static_resources"]
    connections, manager = (
        f["typed_config"] for f in static["listeners"][0]["filter_chains"][0]["filters"]
    )
    (mutation,) = manager["early_header_mutation_extensions"]
    removed = mutation["typed_config"]["mutations"]
    filters = {f["name"]: f["typed_config"] for f in manager["http_filters"]}
    route = manager["route_config"]["virtual_hosts"][0]["routes"][0]
    keys = route["typed_per_filter_config"]["envoy.filters.http.api_key_auth"]
    limit = route["typed_per_filter_config"]["envoy.filters.http.local_ratelimit"]
    action, backends = route["route"], static["clusters"][0]
    bucket = limit["descriptors"][0]["token_bucket"]
    bounds = backends["circuit_breakers"]["thresholds"][0]
    return {
        "weights": [e["load_balancing_weight"] for e in backends["load_assignment"]["endpoints"]],
        "path": route["match"]["path_separated_prefix"],
        "mirrored": action["request_mirror_policies"][0]["runtime_fraction"]["default_value"][
            "numerator"
        ],
        "header": keys["key_sources"][0]["header"],
        "client": keys["forwarding"]["header"],
        "key_removed": keys["forwarding"]["hide_credentials"],
        "limit": bucket["max_tokens"],
        "seconds": int(bucket["fill_interval"].removesuffix("s")),
        "counted_by": limit["rate_limits"][0]["actions"][0]["request_headers"]["header_name"],
        "connect": backends["connect_timeout"],
        "request": action["timeout"],
        "idle": action["idle_timeout"],
        "upload": manager["request_timeout"],
        "headers": manager["request_headers_timeout"],
        "clients": connections["max_connections"],
        "removed": [
            pair
            for removal in removed
            for pair in removal["remove_on_match"]["key_matcher"].items()
        ],
        "retries": action["retry_policy"]["num_retries"],
        "retry_on": action["retry_policy"]["retry_on"].split(","),
        "retry_status": action["retry_policy"]["retriable_status_codes"],
        "bytes": filters["envoy.filters.http.buffer"]["max_request_bytes"],
        "messages": route["typed_per_filter_config"]["envoy.filters.http.lua"]["source_code"][
            "inline_string"
        ],
        "connections": bounds["max_connections"],
        "pending": bounds["max_pending_requests"],
        "parallel": bounds["max_requests"],
        "parallel_retries": bounds["max_retries"],
    }


def test_every_number_is_the_same_in_both() -> None:
    assert of_manifests(ODD) == of_envoy(ODD)
    odd = {70, 30, 13, 17, 3600, "3s", "411s", "29s", "1711s", 4, 777 * 1024, 5309}
    flat = [
        v
        for value in of_envoy(ODD).values()
        for v in (value if isinstance(value, list) else [value])
    ]
    assert odd <= set(flat)
    assert "local MOST = 1303\n" in of_envoy(ODD)["messages"]


def test_without_a_limit_of_messages_no_lua_is_rendered() -> None:
    """Envoy Gateway refuses every request of a route with Lua, unless Lua is enabled."""
    assert "EnvoyExtensionPolicy" not in kinds(BACKENDS)
    assert "envoy_on_request" not in str(envoy(policy(BACKENDS)))


@pytest.mark.parametrize("per", ["client", "everyone"])
def test_a_limit_counts_clients_separately_or_together(per: str) -> None:
    rest = BACKENDS + f"rate_limit: {{requests: 7, unit: second, per: {per}}}\n"
    rule = kinds(rest)["BackendTrafficPolicy"]["rateLimit"]["local"]["rules"][0]
    assert ("clientSelectors" in rule) == (per == "client")
    config = envoy(policy(rest))["static_resources"]["listeners"][0]["filter_chains"][0]
    route = config["filters"][-1]["typed_config"]["route_config"]["virtual_hosts"][0]["routes"][0]
    limit = route["typed_per_filter_config"]["envoy.filters.http.local_ratelimit"]
    assert ("descriptors" in limit) == (per == "client")
    assert (limit["token_bucket"]["max_tokens"] == 7) == (per == "everyone")


def test_without_a_shadow_nothing_is_mirrored() -> None:
    assert "filters" not in kinds(BACKENDS)["HTTPRoute"]["rules"][0]
    assert [c["name"] for c in envoy(policy())["static_resources"]["clusters"]] == ["backends"]


def test_without_a_rate_limit_nothing_is_counted() -> None:
    assert "rateLimit" not in kinds(BACKENDS)["BackendTrafficPolicy"]
    assert "token_bucket" not in str(envoy(policy()))


def test_a_shadow_has_its_own_bounds() -> None:
    clusters = {c["name"]: c for c in envoy(policy(ODD))["static_resources"]["clusters"]}
    bounds = clusters["shadow"]["circuit_breakers"]["thresholds"][0]
    assert (
        bounds["max_requests"]
        == 1024
        != clusters["backends"]["circuit_breakers"]["thresholds"][0]["max_requests"]
    )


def test_a_backend_without_weight_gets_nothing_and_needs_no_address() -> None:
    rest = "backends: [{release: stable, weight: 1}, {release: next, weight: 0}]\n"
    assert [b["weight"] for b in kinds(rest)["HTTPRoute"]["rules"][0]["backendRefs"]] == [1, 0]
    regions = envoy(policy(rest))["static_resources"]["clusters"][0]["load_assignment"]["endpoints"]
    assert [r["locality"]["region"] for r in regions] == ["stable"]


def test_the_filters_are_key_buffer_lua_limit_router() -> None:
    """Envoy Gateway's own order, in its internal/xds/translator/httpfilters.go."""
    chain = envoy(policy(ODD))["static_resources"]["listeners"][0]["filter_chains"][0]
    names = [f["name"] for f in chain["filters"][-1]["typed_config"]["http_filters"]]
    assert [name.rsplit(".", 1)[1] for name in names] == [
        "api_key_auth",
        "buffer",
        "lua",
        "local_ratelimit",
        "router",
    ]


def test_a_release_of_another_namespace_gets_a_reference_grant() -> None:
    rest = BACKENDS + "shadow: {release: candidate, namespace: lab, percent: 20}\n"
    manifests = objects(policy(rest))
    grants = [o for o in manifests if o["kind"] == "ReferenceGrant"]
    assert [g["metadata"]["namespace"] for g in grants] == ["lab"]
    assert grants[0]["spec"]["from"][0]["namespace"] == "llm"
    assert [to["name"] for to in grants[0]["spec"]["to"]] == ["candidate-frontend"]
    mirror = kinds(rest)["HTTPRoute"]["rules"][0]["filters"][0]["requestMirror"]
    assert mirror["backendRef"]["namespace"] == "lab"


def test_every_policy_is_in_the_namespace_of_its_target() -> None:
    for manifest in objects(policy(BACKENDS + SHADOW)):
        assert manifest["metadata"]["namespace"] == "llm"
        for target in manifest["spec"].get("targetRefs", ()):
            assert target["name"] == "front"


def test_nothing_secret_is_rendered() -> None:
    """Keys are given at run time: no input of `render` has one, and no Secret is rendered."""
    text = manifests(policy(ODD), "gateway.yaml")
    documents = list(yaml.safe_load_all(text))
    assert "Secret" not in {d["kind"] for d in documents}
    assert PLANTED in str(envoy(policy(ODD)))
    assert PLANTED not in text


def test_every_string_is_quoted() -> None:
    text = manifests(policy(BACKENDS.replace("stable", '"1e3"')), "gateway.yaml")
    assert '"1e3-frontend"' in text
    assert list(yaml.safe_load_all(text)) == objects(policy(BACKENDS.replace("stable", '"1e3"')))


def test_the_shipped_manifests_are_those_of_the_example() -> None:
    fresh = manifests(build_policy(load_gateway(EXAMPLE)), EXAMPLE.name)
    command = "penstock gateway render k8s/gateway/gateway.yaml -o k8s/gateway/rendered.yaml"
    assert RENDERED.read_text() == fresh, f"stale: {command}"
