"""Envoy in front of the frontends: one endpoint, health checks, and drain of a single frontend.

Envoy watches a file that lists the frontends. A frontend that must stop leaves the list first: it
gets no new request, and its streams continue to their end.

Two Envoys listen on the same port, so that one accepts connections while the other restarts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from penstock.files import write_file
from penstock.gateway.envoy import (
    circuit_breakers,
    connection_manager,
    extension,
    retry_policy,
    socket_address,
    typed,
)
from penstock.gateway.errors import header, json_format, status_filter
from penstock.local.deployment import Program
from penstock.local.envoy_drain import admin_section
from penstock.local.ports import LOOPBACK
from penstock.local.request_adapter.hosts import (
    API,
    MISDIRECTED,
    READABLE,
    UNKNOWN_HOST,
    pattern,
)
from penstock.local.services import service

CLUSTER = "frontends"
RETRIES = 2  # limits the damage of a request that crashes workers
# Paths for which a frontend returns an empty 404 while the model has no workers.
GENERATING = r"/v1/(chat/completions|completions|embeddings|responses|messages)"
CUSTOM_RESPONSE = "envoy.filters.http.custom_response"
CUSTOM_RESPONSE_TYPE = "filters.http.custom_response.v3.CustomResponse"
# A frontend returns 404 for a model without registered workers, even if the registrations have only
# expired, for example during a suspension. Clients do not retry 404, so Envoy returns 503 for a
# model that it served before on the same path. Dynamo also returns 500 when it finds no worker;
# without `Retry-After`, clients retry that too early.
LUA = "envoy.filters.http.lua"
RECENTLY_SERVED = """
local DAY = 86400000  -- ms
local MOST = 1000
local served, count = {}, 0  -- path and model -> time of the last response, in ms

function envoy_on_request(handle)
  local size = tonumber(handle:headers():get("content-length") or nil)
  if size == nil or size == 0 or size > 1048576 then return end
  local body = handle:body()
  local model = body and body:getBytes(0, body:length()):match('"model"%s*:%s*"([^"]+)"')
  if model == nil then return end
  local what = handle:headers():get(":path") .. " " .. model
  handle:streamInfo():dynamicMetadata():set("penstock", "what", what)
end

function envoy_on_response(handle)
  local status, now = handle:headers():get(":status"), handle:timestamp()
  if status == "500" then handle:headers():replace("retry-after", "5") end
  local request = handle:streamInfo():dynamicMetadata():get("penstock")
  if request == nil then return end
  if status == "200" then
    if served[request.what] == nil then
      if count == MOST then served, count = {}, 0 end
      count = count + 1
    end
    served[request.what] = now
  elseif status == "404" and now - (served[request.what] or -DAY) < DAY then
    handle:headers():replace(":status", "503")
  end
end
"""
FRONTEND_HEADER = "x-penstock-frontend"  # address of the frontend that responded
HEALTH_PORT = "health"  # each process has its own, as they share the endpoint's
# Status → type, code and message of the error that Envoy sends with it, and `Retry-After` in
# seconds. OpenAI's clients show `error.message`, and retry twice after that time. If all workers
# exit, for example because their etcd leases expired, mockers serve again within 10 s.
ERRORS = {
    429: ("rate_limit_error", "overloaded", "All workers are busy. Try again later.", 2),
    503: (
        "server_error",
        "service_unavailable",
        "No worker can take this request now. Try again.",
        5,
    ),
}
# Bounds for a client that sends slowly, or nothing. A response may take any time.
HEADERS_S, UPLOAD_S, IDLE_CONNECTION_S = 10, 300, 600
MOST_CONNECTIONS = 20_000
LARGEST_RETRIED = 32 * 2**20  # bytes of a request's body


class Envoy:
    """Envoy's configuration and its list of frontends, both in ``folder``."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        host: str,
        port: int,
        retries: int = RETRIES,
        hosts: Sequence[str] = (),
        grace_s: float = 0.0,
    ) -> None:
        """``hosts``: names in the header Host that are accepted, besides IP addresses. ``grace_s``:
        seconds that its open requests get after a SIGTERM."""
        self._binary = binary
        self._config = folder / "envoy.json"
        self._list = folder / "frontends.json"
        self._host, self._port, self._retries = host, port, retries
        self._hosts, self._grace_s = hosts, grace_s
        self._listed: list[int] | None = None

    def program(self) -> Program:
        """Write both files and return the program; the list is empty until `list_frontends`."""
        self._config.parent.mkdir(parents=True, exist_ok=True)
        self._listed = None
        self.list_frontends([])
        routes = _routes(self._host, self._retries, self._hosts)
        content = _config(self._host, self._port, self._list, routes)
        write_file(self._config, json.dumps(content))
        argv = [
            str(self._binary),
            *("-c", str(self._config), "--config-yaml", _of_one_process()),
            *("--concurrency", "1", "--log-level", "warning", "--disable-hot-restart"),
        ]
        program = service("endpoint", argv, self._port)
        return replace(
            program,
            replicas=2,
            ports=(HEALTH_PORT,),
            grace_s=max(program.grace_s, self._grace_s),
            holds_sigterm=True,
        )

    def list_frontends(self, ports: Sequence[int]) -> None:
        """Replace the list atomically: Envoy reacts to the rename."""
        if list(ports) == self._listed:
            return
        self._listed = list(ports)
        draft = self._list.with_suffix(".draft")
        write_file(draft, json.dumps(_endpoints(ports)))
        draft.replace(self._list)


def _endpoints(ports: Sequence[int]) -> dict[str, Any]:
    hosts = [{"endpoint": {"address": socket_address(LOOPBACK, port)}} for port in ports]
    return {
        "version_info": ",".join(map(str, ports)),
        "resources": [
            {
                "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
                "cluster_name": CLUSTER,
                "endpoints": [{"lb_endpoints": hosts}],
            }
        ],
    }


def admin_name(health_port: object) -> str:
    """The socket of a process's admin interface, in the folder where it runs."""
    return f"envoy-{health_port}"


def _of_one_process() -> str:
    """A listener that responds as long as the process runs, and its admin interface; merged with
    the configuration."""
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
    listener = {
        "name": "health",
        "address": socket_address(LOOPBACK, f"{{port:{HEALTH_PORT}}}"),
        "filter_chains": [{"filters": [_connection_manager("health", [route], [])]}],
    }
    admin = admin_section(admin_name(f"{{port:{HEALTH_PORT}}}"))
    return json.dumps({"static_resources": {"listeners": [listener]}, "admin": admin})


def _config(host: str, port: int, endpoints: Path, routes: list[dict[str, Any]]) -> dict[str, Any]:
    # Both have an effect only on routes that configure them. Responses pass the last filter first.
    filters = [
        extension(CUSTOM_RESPONSE, CUSTOM_RESPONSE_TYPE),
        extension(LUA, "filters.http.lua.v3.Lua"),
    ]
    manager = _connection_manager("openai", routes, filters)
    openai = {
        "name": "openai",
        "address": socket_address(host, port),
        "filter_chains": [{"filters": [manager]}],
    }
    limit = extension(
        "envoy.resource_monitors.global_downstream_max_connections",
        "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
        max_active_downstream_connections=MOST_CONNECTIONS,
    )
    return {
        "node": {"id": "penstock", "cluster": "penstock"},
        "overload_manager": {"resource_monitors": [limit]},
        "static_resources": {"listeners": [openai], "clusters": [_cluster(endpoints)]},
    }


def _routes(host: str, retries: int, hosts: Sequence[str]) -> list[dict[str, Any]]:
    """The API; on loopback also what is readable of frontends, but not their settings."""
    is_open = ip_address(host).is_loopback
    readable: list[dict[str, Any]] = [{"path_separated_prefix": API}, {"path": "/health"}]
    if is_open:
        readable += [{"path_separated_prefix": path} for path in READABLE]
    # A request goes to another frontend only if the client has received no part of its response.
    retry = retry_policy(retries)
    action = {"cluster": CLUSTER, "timeout": "0s", "idle_timeout": "0s", "retry_policy": retry}
    action |= {"host_rewrite_literal": "localhost"}  # for the request adapter, which checks it too
    generating = {
        "match": {"safe_regex": {"regex": GENERATING}},
        "route": action,
        "typed_per_filter_config": {CUSTOM_RESPONSE: _temporary_errors(), LUA: _recently_served()},
    }
    frontend_headers = (
        [{"header": {"key": FRONTEND_HEADER, "value": "%UPSTREAM_HOST%"}}] if is_open else []
    )
    return [
        _refused_hosts(hosts),
        generating | {"response_headers_to_add": frontend_headers},
        *({"match": match, "route": action} for match in readable),
    ]


def _refused_hosts(hosts: Sequence[str]) -> dict[str, Any]:
    """A response to requests whose header Host is none of the accepted names."""
    known = {"name": ":authority", "string_match": {"safe_regex": {"regex": pattern(hosts)}}}
    body = {"inline_string": json.dumps(UNKNOWN_HOST.body())}
    return {
        "match": {"prefix": "/", "headers": [known | {"invert_match": True}]},
        "direct_response": {"status": MISDIRECTED, "body": body},
        "response_headers_to_add": [header("content-type", "application/json")],
    }


def _connection_manager(
    name: str, routes: list[dict[str, Any]], filters: list[dict[str, Any]]
) -> dict[str, Any]:
    virtual_host = {
        "name": "all",
        "domains": ["*"],
        "routes": routes,
        # Only a request that is still in the buffer can be sent again.
        "per_request_buffer_limit_bytes": LARGEST_RETRIED,
    }
    return connection_manager(
        name,
        HEADERS_S,
        UPLOAD_S,
        stream_idle_timeout="0s",  # a long prefill sends nothing for minutes
        common_http_protocol_options={"idle_timeout": f"{IDLE_CONNECTION_S}s"},
        local_reply_config={"mappers": [_error(status) for status in ERRORS]},
        route_config={"virtual_hosts": [virtual_host]},
        http_filters=[
            *filters,
            extension("envoy.filters.http.router", "filters.http.router.v3.Router"),
        ],
    )


def _error(status: int) -> dict[str, Any]:
    """The body and the header of every response with this status that Envoy sends itself."""
    kind, code, message, retry_after_s = ERRORS[status]
    error = {"message": message, "type": kind, "param": None, "code": code}
    return {
        "filter": status_filter("EQ", status),
        "headers_to_add": [header("retry-after", str(retry_after_s))],
        "body_format_override": json_format({"error": error}),
    }


def _temporary_errors() -> dict[str, Any]:
    """Makes a frontend's temporary errors those of Envoy: Dynamo sends neither `Retry-After` nor an
    OpenAI error, and an empty 404 without workers. A 404 for an unknown model is JSON."""
    no_json = {"not_matcher": _has("content-type", "application/json")}
    matchers = [
        _becomes({"and_matcher": {"predicate": [_has(":status", "404"), no_json]}}, 503),
        _becomes(_has(":status", "503"), 503),
        _becomes(_has(":status", "429"), 429),
    ]
    matcher = {"matcher_list": {"matchers": matchers}}
    return typed(f"extensions.{CUSTOM_RESPONSE_TYPE}", custom_response_matcher=matcher)


def _recently_served() -> dict[str, Any]:
    code = {"inline_string": RECENTLY_SERVED}
    return typed("extensions.filters.http.lua.v3.LuaPerRoute", source_code=code)


def _has(name: str, text: str) -> dict[str, Any]:
    message = "HttpResponseHeaderMatchInput"
    matched = typed(f"type.matcher.v3.{message}", header_name=name)
    source = {"name": message, "typed_config": matched}
    return {"single_predicate": {"input": source, "value_match": {"exact": text}}}


def _becomes(predicate: dict[str, Any], status: int) -> dict[str, Any]:
    policy = extension(
        "envoy.http.custom_response.local_response_policy",
        "http.custom_response.local_response_policy.v3.LocalResponsePolicy",
        status_code=status,
    )
    return {"predicate": predicate, "on_match": {"action": policy}}


def _cluster(endpoints: Path) -> dict[str, Any]:
    return {
        "name": CLUSTER,
        "type": "EDS",
        "connect_timeout": "1s",
        "lb_policy": "LEAST_REQUEST",
        "ignore_health_on_host_removal": True,
        # Envoy's defaults (1,024 streams, 3 retries) would return 503 long before Dynamo does.
        "circuit_breakers": circuit_breakers(1_000_000, 1_000_000),
        "eds_cluster_config": {
            "eds_config": {
                "resource_api_version": "V3",
                "path_config_source": {"path": str(endpoints)},
            }
        },
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "1s",
                "no_traffic_interval": "1s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "http_health_check": {"path": "/health"},
            }
        ],
    }
