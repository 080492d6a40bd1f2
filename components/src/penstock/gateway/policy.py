"""The policy of a gateway: how each request is handled, with every number decided once.

`routes.py` renders it for Envoy Gateway, `envoy.py` for a local Envoy. Constants here are Envoy
Gateway's own behavior (bounds of a mirror's cluster, order of filters), so that the local Envoy is
tested with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.gateway.model import Backend, Gateway, Shadow
from penstock.graph.gateway import (
    COUNT_MESSAGES,
    GatewaySection,
    Limits,
    RateLimit,
)

PATHS = "/v1"  # the OpenAI API; a frontend's /metrics, /health and /busy_threshold are not exposed
CLIENT_HEADER = "x-penstock-client"  # set from the key; overwrites what the client sent
# With these headers a client sets its priority in the queue, chooses the worker, or is of another
# tenant or class. Found in the binary of ai-dynamo 1.6.1; the session headers stay.
CONTROL_HEADERS = (
    *("x-tenant-id", "x-worker-instance-id", "x-prefill-instance-id"),
    *("x-dp-rank", "x-prefill-dp-rank", "x-data-parallel-rank"),
)
CONTROL_PREFIXES = (
    *("x-dynamo-dp-", "x-dynamo-meta-", "x-dynamo-prefill-", "x-dynamo-request-"),
    "x-dynamo-worker-",
)
HEADERS_S = 10  # until the headers of a request must be complete
MOST_CONNECTIONS = 16_384  # of clients, for each Envoy
SERVICE_PORT = 8000  # of the Service of the frontends
UNIT_S = {"second": 1, "minute": 60, "hour": 3600}

# Retry what the client has received no part of. A request that is reset may have been computed in
# part; its work is then done twice. 500: a frontend that shuts down fails the requests that it was
# about to route. 503: no worker of this frontend can take the request.
RETRY_ON = ("connect-failure", "refused-stream", "reset", "retriable-status-codes")
RETRY_STATUS = (500, 503)

# Envoy Gateway 1.9 applies no BackendTrafficPolicy to the cluster of a RequestMirror: it has
# Envoy's default bounds and a connect timeout of 10 s. Copies above the bound are dropped.
MIRROR_BOUND = 1024
MIRROR_CONNECT_S = 10
MOST_PARALLEL_RETRIES = 1024
# Envoy Gateway's buffer for a connection. When it is full, for example because a mirror does not
# read, Envoy stops reading from the client. Therefore complete requests are buffered first.
CONNECTION_BUFFER_BYTES = 32768


@dataclass(frozen=True, kw_only=True)
class BackendTarget:
    """A release's frontend."""

    release: str
    namespace: str
    port: int
    # Weight of a backend; percentage of a shadow.
    share: int

    @property
    def service(self) -> str:
        return f"{self.release}-frontend"


def retry_after_s(limit: RateLimit) -> int:
    """Seconds until a request passes again: Envoy refills its buckets continuously."""
    return -(-UNIT_S[limit.unit] // limit.requests)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How requests are handled between the clients and the frontends."""

    name: str
    namespace: str
    gateway_class: str
    # None: any.
    hostname: str | None
    # None: no TLS.
    tls_secret: str | None
    key_secret: str
    key_header: str
    backends: tuple[BackendTarget, ...]
    shadow: BackendTarget | None
    # With the size of the largest request.
    limits: Limits

    @property
    def count_messages(self) -> str:
        """Lua that refuses requests with more messages; empty if they are not counted."""
        if self.limits.max_messages is None:
            return ""
        return COUNT_MESSAGES.replace("{max_messages}", str(self.limits.max_messages))

    @property
    def targets(self) -> tuple[BackendTarget, ...]:
        return self.backends if self.shadow is None else (*self.backends, self.shadow)


def _limits(section: Limits, tokens: int | None) -> Limits:
    """Without the other fields, so that policies with the same limits are equal."""
    values = {name: getattr(section, name) for name in Limits.model_fields}
    return Limits.model_construct(**values).for_context(tokens)


def build_policy(gateway: Gateway) -> Policy:
    """The policy of a gateway."""

    def target(part: Backend | Shadow, share: int) -> BackendTarget:
        namespace = part.namespace or gateway.namespace
        return BackendTarget(release=part.release, namespace=namespace, port=part.port, share=share)

    return Policy(
        limits=_limits(gateway, None),
        name=gateway.name,
        namespace=gateway.namespace,
        gateway_class=gateway.gateway_class,
        hostname=gateway.hostname,
        tls_secret=gateway.tls.secret,
        key_secret=gateway.api_keys.secret,
        key_header=gateway.api_keys.header,
        backends=tuple(target(b, b.weight) for b in gateway.backends),
        shadow=None if gateway.shadow is None else target(gateway.shadow, gateway.shadow.percent),
    )


def policy_of_graph(
    section: GatewaySection, release: str, namespace: str, context_length: int | None = None
) -> Policy:
    """The policy of a graph's own gateway; the graph is its only backend."""
    backend = BackendTarget(release=release, namespace=namespace, port=SERVICE_PORT, share=1)
    return Policy(
        limits=_limits(section, context_length),
        name=release,
        namespace=namespace,
        gateway_class=section.gateway_class,
        hostname=section.hostname,
        tls_secret=section.tls.secret if section.tls else None,
        key_secret=section.api_keys.secret or f"{release}-api-keys",
        key_header=section.api_keys.header,
        backends=(backend,),
        shadow=None,
    )
