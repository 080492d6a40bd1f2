"""The configuration of a local Envoy for a Policy, with the same filters as Envoy Gateway.

The order of the filters (key, buffer, Lua, limit, router) and the bounds of the shadow's cluster
are Envoy Gateway's. TLS needs a certificate. The configuration contains the keys: never print it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import UsageError
from penstock.gateway.errors import local_replies, route_metadata
from penstock.gateway.policy import (
    CLIENT_HEADER,
    CONNECTION_BUFFER_BYTES,
    CONTROL_HEADERS,
    CONTROL_PREFIXES,
    HEADERS_S,
    MIRROR_BOUND,
    MIRROR_CONNECT_S,
    MOST_CONNECTIONS,
    MOST_PARALLEL_RETRIES,
    PATHS,
    RETRY_ON,
    RETRY_STATUS,
    UNIT_S,
    Policy,
)
from penstock.graph.gateway import RateLimit
from penstock.text.names import did_you_mean

Config = dict[str, Any]

BACKENDS, SHADOW = "backends", "shadow"
KEYS = "envoy.filters.http.api_key_auth"
BUFFER = "envoy.filters.http.buffer"
LUA = "envoy.filters.http.lua"
LIMIT = "envoy.filters.http.local_ratelimit"
ROUTER = "envoy.filters.http.router"
UNLIMITED = 4_294_967_295  # as Envoy Gateway writes it
MOST_CLIENTS = 10_000
# The part of the configuration that changes while Envoy runs.
ROUTES = "gateway"
PROBE_HEADER = "x-penstock-probe"
PROBE_PATH = "/version"


@dataclass(frozen=True, kw_only=True)
class Address:
    """A host and a port."""

    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """PEM files, read by Envoy."""

    chain: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class LocalSetup:
    """Addresses and keys, which the cluster provides for Envoy Gateway."""

    listen: Address
    # Release → address of its frontend.
    frontends: Mapping[str, Address]
    # Client → API key.
    keys: Mapping[str, str]
    # None: no TLS.
    certificate: Certificate | None = None
    # Folder from which Envoy reads the weights whenever a file is moved into it. None: fixed.
    weights: Path | None = None


def config(policy: Policy, local: LocalSetup, live: Config | None = None) -> Config:
    """Envoy's bootstrap configuration, without the admin interface, which would show the keys.

    ``live``: where Envoy reads its routes instead; the keys are then not in the configuration.
    """
    chain: Config = {"filters": [_connection_limit(), _connection_manager(policy, local, live)]}
    if local.certificate is not None:
        chain["transport_socket"] = _tls(local.certificate)
    listener = {
        "name": "https" if local.certificate else "http",
        "address": socket_address(local.listen.host, local.listen.port),
        "per_connection_buffer_limit_bytes": CONNECTION_BUFFER_BYTES,
        "filter_chains": [chain],
    }
    return {
        "node": {"id": policy.name, "cluster": "penstock"},
        "static_resources": {"listeners": [listener], "clusters": _clusters(policy, local)},
    }


def typed(message: str, **fields: Any) -> Config:
    """A message of Envoy's API with its type."""
    return {"@type": f"type.googleapis.com/envoy.{message}", **fields}


def extension(name: str, message: str, **fields: Any) -> Config:
    """A part of Envoy, such as a filter, with its configuration."""
    return {"name": name, "typed_config": typed(f"extensions.{message}", **fields)}


def socket_address(host: str, port: int | str) -> Config:
    return {"socket_address": {"address": host, "port_value": port}}


def retry_policy(retries: int) -> Config:
    predicate = "envoy.retry_host_predicates.previous_hosts"
    message = "retry.host.previous_hosts.v3.PreviousHostsPredicate"
    return {
        "retry_on": ",".join(RETRY_ON),
        "retriable_status_codes": list(RETRY_STATUS),
        "num_retries": retries,
        "retry_host_predicate": [extension(predicate, message)],
        # The load balancer chooses at random: of two backends, it finds the other one in 20
        # attempts.
        "host_selection_retry_max_attempts": 20,
    }


def _tls(certificate: Certificate) -> Config:
    pair = {
        "certificate_chain": {"filename": str(certificate.chain)},
        "private_key": {"filename": str(certificate.key)},
    }
    common = {
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
        "tls_certificates": [pair],
        "alpn_protocols": ["h2", "http/1.1"],
    }
    message = "transport_sockets.tls.v3.DownstreamTlsContext"
    return extension("envoy.transport_sockets.tls", message, common_tls_context=common)


def _connection_limit() -> Config:
    return extension(
        "envoy.filters.network.connection_limit",
        "filters.network.connection_limit.v3.ConnectionLimit",
        stat_prefix="gateway",
        max_connections=MOST_CONNECTIONS,
    )


def _without_control_headers() -> Config:
    matchers = [
        *({"exact": name} for name in CONTROL_HEADERS),
        *({"prefix": prefix} for prefix in CONTROL_PREFIXES),
    ]
    mutations = [{"remove_on_match": {"key_matcher": matcher}} for matcher in matchers]
    name = "early_header_mutation.header_mutation"
    return extension(f"envoy.http.{name}", f"http.{name}.v3.HeaderMutation", mutations=mutations)


def _connection_manager(policy: Policy, local: LocalSetup, live: Config | None) -> Config:
    if live is None:
        hosts = [{"name": policy.name, "domains": ["*"], "routes": [route(policy, local)]}]
        routes: Config = {"route_config": {"virtual_hosts": hosts}}
    else:
        routes = {"rds": live}
    return connection_manager(
        "gateway",
        HEADERS_S,
        policy.limits.timeouts.upload_s,
        use_remote_address=True,
        early_header_mutation_extensions=[_without_control_headers()],
        local_reply_config=local_replies(policy),
        http_filters=_filters(policy),
        **routes,
    )


def connection_manager(name: str, headers_s: int, upload_s: int, **fields: Any) -> Config:
    """``headers_s``, ``upload_s``: until the headers and the body of a request must be complete."""
    return extension(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=name,
        # Turns "/v1/../metrics" into "/metrics" before the route is matched.
        normalize_path=True,
        merge_slashes=True,
        path_with_escaped_slashes_action="UNESCAPE_AND_REDIRECT",
        request_headers_timeout=f"{headers_s}s",
        request_timeout=f"{upload_s}s",
        **fields,
    )


def _filters(policy: Policy) -> list[Config]:
    size = policy.limits.request_kib(None) * 1024
    limit = {"stat_prefix": "gateway", "max_dynamic_descriptors": MOST_CLIENTS}
    keys = extension(KEYS, "filters.http.api_key_auth.v3.ApiKeyAuth")
    return [
        keys | {"disabled": True},  # enabled by the route
        extension(BUFFER, "filters.http.buffer.v3.Buffer", max_request_bytes=size),
        extension(LUA, "filters.http.lua.v3.Lua"),  # its code is the route's
        extension(LIMIT, "filters.http.local_ratelimit.v3.LocalRateLimit", **limit),
        extension(ROUTER, "filters.http.router.v3.Router", suppress_envoy_headers=True),
    ]


def route(policy: Policy, local: LocalSetup) -> Config:
    """The route of the clients; it contains the keys."""
    action: Config = {
        "cluster": BACKENDS,
        "host_rewrite_literal": "localhost",  # the endpoint of `up` accepts no other names
        "timeout": f"{policy.limits.timeouts.request_s or 0}s",
        "idle_timeout": f"{policy.limits.timeouts.idle_s}s",
        "retry_policy": retry_policy(policy.limits.retries),
    }
    if policy.shadow is not None or local.weights is not None:
        # With live weights, the cluster of the shadow drops the other copies.
        share = 100 if local.weights or not policy.shadow else policy.shadow.share
        fraction = {"default_value": _percent(share)}
        action["request_mirror_policies"] = [
            {
                "cluster": SHADOW,
                "runtime_fraction": fraction,
                "disable_shadow_host_suffix_append": True,  # `localhost-shadow` would be refused
            }
        ]
    size = {"max_request_bytes": policy.limits.request_kib(None) * 1024}
    filters = {
        KEYS: _keys(policy, local.keys),
        BUFFER: typed("extensions.filters.http.buffer.v3.BufferPerRoute", buffer=size),
    }
    if policy.count_messages:
        code = {"inline_string": policy.count_messages}
        filters[LUA] = typed("extensions.filters.http.lua.v3.LuaPerRoute", source_code=code)
    if policy.limits.rate_limit is not None:
        filters[LIMIT] = _limit(policy.limits.rate_limit)
    return {
        "match": {"path_separated_prefix": PATHS},
        "metadata": route_metadata(policy),
        "route": action,
        "typed_per_filter_config": filters,
    }


def _keys(policy: Policy, keys: Mapping[str, str]) -> Config:
    return typed(
        "extensions.filters.http.api_key_auth.v3.ApiKeyAuthPerRoute",
        credentials=[{"client": client, "key": key} for client, key in keys.items()],
        key_sources=[{"header": policy.key_header}],
        forwarding={"header": CLIENT_HEADER, "hide_credentials": True},
    )


def _limit(limit: RateLimit) -> Config:
    """One bucket for everyone, or one for each value of the client header."""
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    bucket = _bucket(limit.requests, UNIT_S[limit.unit])
    fields: Config = {"token_bucket": bucket}
    if limit.per == "client":
        action = {"request_headers": {"header_name": CLIENT_HEADER, "descriptor_key": "client"}}
        fields = {
            "token_bucket": _bucket(UNLIMITED, 1),
            "rate_limits": [{"actions": [action]}],
            "descriptors": [{"entries": [{"key": "client"}], "token_bucket": bucket}],
            "always_consume_default_token_bucket": False,
            "max_dynamic_descriptors": MOST_CLIENTS,
        }
    return typed(
        "extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        stat_prefix="gateway",
        filter_enabled=always,
        filter_enforced=always,
        enable_x_ratelimit_headers="DRAFT_VERSION_03",
        **fields,
    )


def _bucket(requests: int, seconds: int) -> Config:
    return {
        "max_tokens": requests,
        "tokens_per_fill": requests,
        "fill_interval": f"{seconds}s",
    }


def _percent(share: int) -> Config:
    return {"numerator": share, "denominator": "HUNDRED"}


def _clusters(policy: Policy, local: LocalSetup) -> list[Config]:
    """All backends form one cluster, so a request that one rejects can be retried on another."""
    limits = policy.limits
    breakers = circuit_breakers(limits.max_parallel_requests, MOST_PARALLEL_RETRIES)
    bounds = {
        BACKENDS: (limits.timeouts.connect_s, breakers),
        SHADOW: (MIRROR_CONNECT_S, circuit_breakers(MIRROR_BOUND, MIRROR_BOUND)),
    }
    clusters = []
    for name, assignment in assignments(policy, local).items():
        connect_s, breakers = bounds[name]
        cluster: Config = {
            "name": name,
            "connect_timeout": f"{connect_s}s",
            "lb_policy": "LEAST_REQUEST",
            "common_lb_config": {"locality_weighted_lb_config": {}},
            "per_connection_buffer_limit_bytes": CONNECTION_BUFFER_BYTES,
            "circuit_breakers": breakers,
        }
        if local.weights is None:
            cluster |= {"type": "STATIC", "load_assignment": assignment}
        else:
            source = _watched(local.weights / f"{name}.json", local.weights)
            cluster |= {"type": "EDS", "eds_cluster_config": {"eds_config": source}}
        clusters.append(cluster)
    return clusters


def assignments(policy: Policy, local: LocalSetup) -> dict[str, Config]:
    """By cluster, the addresses of its frontends and their shares: the part of the configuration
    that an edit of the weights changes. With live weights, the shadow's cluster always exists."""
    weights = [(b.release, b.share) for b in policy.backends if b.share]
    found = {BACKENDS: _assignment(BACKENDS, weights, local)}
    if policy.shadow is not None:
        found[SHADOW] = _assignment(SHADOW, [(policy.shadow.release, 1)], local)
        if local.weights is not None:
            dropped = {"category": SHADOW, "drop_percentage": _percent(100 - policy.shadow.share)}
            found[SHADOW]["policy"] = {"drop_overloads": [dropped]}
    elif local.weights is not None:
        found[SHADOW] = _assignment(SHADOW, [], local)
    return found


def _assignment(name: str, shares: list[tuple[str, int]], local: LocalSetup) -> Config:
    localities = []
    for release, share in shares:
        address = local.frontends[release]
        endpoint = {"address": socket_address(address.host, address.port)}
        locality = {"locality": {"region": release}, "lb_endpoints": [{"endpoint": endpoint}]}
        localities.append({**locality, "load_balancing_weight": share})
    return {"cluster_name": name, "endpoints": localities}


def discovered(version: int, *resources: Config) -> str:
    """The content of a file from which Envoy reads a part of its configuration."""
    return json.dumps({"version_info": str(version), "resources": list(resources)})


def _watched(path: Path | str, folder: Path) -> Config:
    paths = {"path": str(path), "watched_directory": {"path": str(folder)}}
    return {"resource_api_version": "V3", "path_config_source": paths}


def circuit_breakers(requests: int, retries: int) -> Config:
    """Envoy's limits of one cluster."""
    names = ("max_connections", "max_pending_requests", "max_requests")
    return {"thresholds": [dict.fromkeys(names, requests) | {"max_retries": retries}]}


@dataclass(frozen=True, kw_only=True)
class LiveRoutes:
    """Where Envoy finds its routes, and how penstock finds out which ones it has applied.

    Envoy reads them from a descriptor that it inherits, so no file in a folder contains a key. It
    reads them again when a file is moved into a watched folder. Streams continue, and the next
    request of a connection that is already open follows the new configuration.
    """

    # Inherited by Envoy; it has the routes as JSON.
    descriptor: int
    # Envoy reads the routes again when a file is moved into it.
    folder: Path
    # Random value of the header with which penstock's own requests need no key.
    probe: str

    def source(self) -> Config:
        """The `rds` of Envoy's connection manager."""
        source = _watched(f"/dev/fd/{self.descriptor}", self.folder)
        return {"route_config_name": ROUTES, "config_source": source}

    def routes(self, policy: Policy, local: LocalSetup, version: int) -> str:
        """The content of the descriptor. It contains the keys: never print it."""
        clients = route(policy, local)
        match = {"headers": [{"name": PROBE_HEADER, "string_match": {"exact": self.probe}}]}
        applied = {
            "match": {"path": PROBE_PATH, **match},
            "direct_response": {"status": 200, "body": {"inline_string": str(version)}},
        }
        first = {
            "match": clients["match"] | match,
            "metadata": clients["metadata"],
            "route": clients["route"],
            "request_headers_to_remove": [PROBE_HEADER],
        }
        host = {"name": policy.name, "domains": ["*"], "routes": [applied, first, clients]}
        message = "config.route.v3.RouteConfiguration"
        return discovered(version, typed(message, name=ROUTES, virtual_hosts=[host]))


def local_setup(
    policy: Policy,
    listen: Address,
    backends: Sequence[str],
    shadow: str | None,
    keys: Mapping[str, str],
    certificate: Certificate | None = None,
    *,
    is_edit: bool = False,
) -> LocalSetup:
    """The addresses of all releases of the policy, from the options of `penstock gateway up`.

    ``is_edit``: the gateway runs, and the file may not have all its releases any more.
    Raises UsageError with every problem.
    """
    problems: list[str] = []
    urls = dict(_pairs(backends, problems))
    releases = list(dict.fromkeys(b.release for b in policy.targets))
    if not is_edit:
        problems += [_unknown(name, releases) for name in urls if name not in releases]
        if policy.shadow is None and shadow is not None:
            problems.append(
                "--shadow is given, but the gateway file has no shadow section: add one, or remove "
                "it"
            )
    for backend in policy.backends:
        if backend.release not in urls and backend.share:
            problems.append(f"no URL for {backend.release}: add --backend {backend.release}=URL")
    if policy.shadow is not None and shadow is None and policy.shadow.release not in urls:
        problems.append(f"the shadow {policy.shadow.release} has no URL: add --shadow URL")
    elif policy.shadow is not None and shadow is not None:
        urls[policy.shadow.release] = shadow
    addresses = {name: _address_of_url(name, url, problems) for name, url in urls.items()}
    if problems:
        raise UsageError(*problems)
    frontends = {name: address for name, address in addresses.items() if address is not None}
    return LocalSetup(listen=listen, frontends=frontends, keys=keys, certificate=certificate)


def _pairs(arguments: Sequence[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for argument in arguments:
        name, separator, url = argument.partition("=")
        if not separator:
            problems.append(f"--backend {argument}: write RELEASE=URL")
        elif name in seen:
            problems.append(f"--backend {name} is given twice")
        else:
            seen.add(name)
            yield name, url


def _unknown(name: str, releases: list[str]) -> str:
    hint = did_you_mean(name, releases) or f"its backends: {', '.join(releases)}"
    return f"--backend {name}: not in the gateway file; {hint}"


def _address_of_url(name: str, url: str, problems: list[str]) -> Address | None:
    """Host and port of http://HOST:PORT, optionally followed by /v1, as `penstock up` prints it."""
    parts = urlsplit(url)
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    host = {"localhost": "127.0.0.1"}.get(parts.hostname or "", parts.hostname or "")
    numeric = re.fullmatch(r"[0-9.]+|[0-9a-f:]*:[0-9a-f:]*", host)
    plain = parts.scheme == "http" and not parts.query and parts.username is None
    if not (plain and port and numeric and parts.path in ("", "/", "/v1", "/v1/")):
        problems.append(f"{name}: {parts.scheme or 'the URL'} … is not http://ADDRESS:PORT")
        return None
    return Address(host=host, port=port)
