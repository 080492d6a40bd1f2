"""Envoy in front of the frontends: one endpoint, health checks, and drain of a single frontend.

Envoy watches a file that lists the frontends. A frontend that must stop leaves the list first: it
gets no new request, and its streams continue to their end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.local.deployment import Program
from penstock.local.ports import LOOPBACK
from penstock.local.services import service

CLUSTER = "frontends"
LIMITS = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
# Only a request that no frontend has begun to answer may go to another frontend.
RETRY = {
    "retry_on": "connect-failure,refused-stream,retriable-status-codes",
    "retriable_status_codes": [503],
    "num_retries": 3,
    "retry_host_predicate": [
        {
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {
                "@type": "type.googleapis.com/"
                "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
            },
        }
    ],
    "host_selection_retry_max_attempts": 3,
}


class Envoy:
    """Envoy's configuration and its list of frontends, both in ``folder``."""

    def __init__(self, binary: Path, folder: Path, host: str, port: int) -> None:
        self._binary = binary
        self._config = folder / "envoy.json"
        self._list = folder / "frontends.json"
        self._host, self._port = host, port
        self._listed: list[int] | None = None

    def program(self) -> Program:
        """Write both files and return the program; the list is empty until `list_frontends`."""
        self._config.parent.mkdir(parents=True, exist_ok=True)
        self.list_frontends([])
        self._config.write_text(json.dumps(_config(self._host, self._port, self._list)))
        argv = [
            str(self._binary),
            *("-c", str(self._config), "--disable-hot-restart"),
            *("--concurrency", "1", "--log-level", "warning"),
        ]
        return service("endpoint", argv, self._port)

    def list_frontends(self, ports: Sequence[int]) -> None:
        """Replace the list atomically: Envoy reacts to the rename."""
        if list(ports) == self._listed:
            return
        self._listed = list(ports)
        draft = self._list.with_suffix(".draft")
        draft.write_text(json.dumps(_endpoints(ports)))
        draft.replace(self._list)


def _endpoints(ports: Sequence[int]) -> dict[str, Any]:
    hosts = [{"endpoint": {"address": _address(LOOPBACK, port)}} for port in ports]
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


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _config(host: str, port: int, endpoints: Path) -> dict[str, Any]:
    return {
        "node": {"id": "penstock", "cluster": "penstock"},
        "static_resources": {
            "listeners": [
                {
                    "name": "openai",
                    "address": _address(host, port),
                    "filter_chains": [{"filters": [_http()]}],
                }
            ],
            "clusters": [_cluster(endpoints)],
        },
    }


def _http() -> dict[str, Any]:
    route = {
        "match": {"prefix": "/"},
        "route": {
            "cluster": CLUSTER,
            "timeout": "0s",
            "idle_timeout": "0s",
            "retry_policy": RETRY,
        },
    }
    return {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network."
            "http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "openai",
            "stream_idle_timeout": "0s",  # a long prefill sends nothing for minutes
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]
            },
            "http_filters": [
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {
                        "@type": "type.googleapis.com/"
                        "envoy.extensions.filters.http.router.v3.Router"
                    },
                }
            ],
        },
    }


def _cluster(endpoints: Path) -> dict[str, Any]:
    return {
        "name": CLUSTER,
        "type": "EDS",
        "connect_timeout": "1s",
        "lb_policy": "LEAST_REQUEST",
        "ignore_health_on_host_removal": True,
        # Envoy's defaults (1,024 streams, 3 retries) would return 503 long before Dynamo does.
        "circuit_breakers": {"thresholds": [dict.fromkeys(LIMITS, 1_000_000)]},
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
