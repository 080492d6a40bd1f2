"""The discovery backend and the planes that the components of a deployment configure."""

from __future__ import annotations

from penstock.local.deployment import Infrastructure
from penstock.manifests import flags
from penstock.manifests.deployment import Deployment, Launch

# Flags that choose addresses and planes; here the environment sets them.
PLANE_FLAGS = (
    "--discovery-backend",
    "--request-plane",
    "--response-plane",
    "--event-plane",
    "--namespace",
    "--namespace-prefix",
    "--endpoint",
)
# Variables that point into the cluster; `up` sets its own.
CLUSTER_VARIABLES = frozenset(
    {
        "DYN_SYSTEM_PORT",
        "DYN_HTTP_PORT",
        "DYN_NAMESPACE",
        "DYN_NAMESPACE_PREFIX",
        "DYN_RESPONSE_PLANE",
        "DYN_KSERVE_GRPC_SERVER",
        "DYN_INTERACTIVE",
        "DYN_CHAT_PROCESSOR",
        "DYN_TLS_CERT_PATH",
        "DYN_TLS_KEY_PATH",
        "DYN_TLS_CLIENT_CA_CERT_PATH",
        "DYN_FILE_KV",
        "ETCD_ENDPOINTS",
        "NATS_SERVER",
        "TIKTOKEN_ENCODINGS_BASE",
        "HF_HOME",
    }
)


def infrastructure(deployment: Deployment) -> Infrastructure:
    """The planes that the components configure. Kubernetes discovery becomes file discovery."""
    configured: dict[str, str] = {}
    for component in deployment.components:
        for launch in component.launches:
            configured |= {k: v for k, v in launch.env.items() if v}
            configured |= _planes_of(launch)
    discovery = "etcd" if configured.get("DYN_DISCOVERY_BACKEND") == "etcd" else "file"
    endpoints = configured.get("ETCD_ENDPOINTS", "")
    return Infrastructure(
        discovery=discovery,
        events=configured.get("DYN_EVENT_PLANE", "zmq"),
        requests=configured.get("DYN_REQUEST_PLANE", "tcp"),
        etcd_endpoints=tuple(e for e in endpoints.split(",") if e),
        nats_url=configured.get("NATS_SERVER", ""),
    )


def _planes_of(launch: Launch) -> dict[str, str]:
    names = {
        "--discovery-backend": "DYN_DISCOVERY_BACKEND",
        "--event-plane": "DYN_EVENT_PLANE",
        "--request-plane": "DYN_REQUEST_PLANE",
    }
    values = {name: flags.flag_value(launch.arguments, flag) for flag, name in names.items()}
    return {name: value for name, value in values.items() if value is not None}
