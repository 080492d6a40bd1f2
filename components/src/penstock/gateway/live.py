"""The part of Envoy's configuration that changes while it runs: keys and limits of the route.

Envoy reads it from a descriptor that it inherits, so no file in a folder contains a key. It reads
it again when a file is moved into a watched folder. Streams continue, and the next request of a
connection that is already open follows the new configuration.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.gateway.envoy import LocalSetup, route, typed
from penstock.gateway.policy import Policy

Config = dict[str, Any]

NAME = "gateway"
PROBE_HEADER = "x-penstock-probe"
PROBE_PATH = "/version"


@dataclass(frozen=True, kw_only=True)
class LiveRoutes:
    """Where Envoy finds its routes, and how penstock finds out which ones it has applied."""

    descriptor: int
    """Inherited by Envoy; it has the routes as JSON."""
    folder: Path
    """Envoy reads the routes again when a file is moved into it."""
    probe: str
    """Random value of the header with which penstock's own requests need no key."""

    def source(self) -> Config:
        """The `rds` of Envoy's connection manager."""
        paths = {
            "path": f"/dev/fd/{self.descriptor}",
            "watched_directory": {"path": str(self.folder)},
        }
        source = {"resource_api_version": "V3", "path_config_source": paths}
        return {"route_config_name": NAME, "config_source": source}

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
        configuration = typed("config.route.v3.RouteConfiguration", name=NAME, virtual_hosts=[host])
        return json.dumps({"version_info": str(version), "resources": [configuration]})
