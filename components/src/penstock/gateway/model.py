"""The gateway file: an API gateway in front of one or more releases.

`policy.py` turns it into the policy that both outputs render.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.strict_yaml.base import Count, Items, Port, Positive, Spec, invalid

MOST_BACKENDS = 16  # limit of one HTTPRoute rule
LARGEST_WEIGHT = 1_000_000  # limit of the Gateway API
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
HEADER = r"^[A-Za-z0-9-]+$"

# Kubernetes allows 63 characters, of which "-frontend" takes some.
Release = Annotated[str, Field(pattern=DNS_LABEL, max_length=53)]
Label = Annotated[str, Field(pattern=DNS_LABEL, max_length=63)]
Hostname = Annotated[str, Field(pattern=DNS_NAME, max_length=253)]
Weight = Annotated[int, Field(ge=0, le=LARGEST_WEIGHT)]
Percent = Annotated[int, Field(ge=1, le=100)]
TokenCount = Annotated[int, Field(ge=1, le=4_294_967_295)]


class Backend(Spec):
    """A release that serves clients."""

    release: Release = Field(description="Helm release of the graph.")
    namespace: Label | None = Field(
        default=None, description="Namespace of the release; unset: the gateway's."
    )
    port: Port = Field(default=8000, description="Port of the release's frontend Service.")
    weight: Weight = Field(description="Share of the requests, relative to the other backends.")


class Shadow(Spec):
    """A release that gets copies of some requests; its responses are discarded."""

    release: Release = Field(description="Helm release of the candidate graph.")
    namespace: Label | None = Field(
        default=None, description="Namespace of the release; unset: the gateway's."
    )
    port: Port = Field(default=8000, description="Port of the release's frontend Service.")
    percent: Percent = Field(description="Share of all requests that are copied, in percent.")


class Tls(Spec):
    """TLS for client connections."""

    secret: Hostname = Field(
        description="Secret of type kubernetes.io/tls in the gateway's namespace."
    )


class ApiKeys(Spec):
    """API keys. A request without a known key gets status 401 and reaches no frontend."""

    secret: Hostname = Field(description="Secret with one entry per client, `client name: key`.")
    header: Annotated[str, Field(pattern=HEADER)] = Field(
        default="Authorization",
        description="Header with the key, with or without a leading `Bearer `.",
    )


class RateLimit(Spec):
    """Rate limit. Above it a request gets status 429. Each Envoy replica counts separately."""

    requests: TokenCount = Field(description="Requests per unit of time.")
    unit: Literal["second", "minute", "hour"] = Field(description="The unit of time.")
    per: Literal["client", "everyone"] = Field(
        default="client", description="Count each client separately, or all clients together."
    )


class Timeouts(Spec):
    """Time limits. Unless `request_s` is set, a stream has no limit as long as bytes flow."""

    connect_s: Positive = Field(default=5, description="Seconds to connect to a frontend.")
    idle_s: Positive = Field(
        default=600,
        description="Seconds that a request may go without a byte in either direction; a queued "
        "request with a long prefill sends nothing for minutes.",
    )
    upload_s: Positive = Field(
        default=60, description="Seconds that a client has to send its request."
    )
    request_s: Positive | None = Field(
        default=None,
        description="Maximum time in seconds from a request to the end of its response, including "
        "retries; if unset, no limit.",
    )


class Gateway(Spec):
    """One hostname in front of one or more releases."""

    name: Label = Field(description="Name of the Gateway and of its other objects.")
    namespace: Label = Field(description="Namespace of the Gateway and of the two Secrets.")
    gateway_class: Hostname = Field(description="GatewayClass of Envoy Gateway.")
    hostname: Hostname = Field(description="Hostname that clients use.")
    tls: Tls = Field(description="TLS for client connections.")
    api_keys: ApiKeys = Field(description="API keys of the clients.")
    backends: Items[Backend] = Field(
        description="Releases that serve clients; two with weights are a canary."
    )
    shadow: Shadow | None = Field(
        default=None, description="Candidate that gets copies of requests; unset: none."
    )
    rate_limit: RateLimit | None = Field(default=None, description="Rate limit; unset: none.")
    timeouts: Timeouts = Field(default=Timeouts(), description="Time limits.")
    retries: Count = Field(
        default=2,
        description="Retries of a request that no frontend has begun to answer: connection failed, "
        "stream refused, or status 503.",
    )
    max_request_kib: Positive = Field(
        default=2048,
        description="Largest request in KiB; above it a request gets status 413. Requests are "
        "buffered completely, so that a shadow that does not read cannot delay them.",
    )
    max_parallel_requests: Positive = Field(
        default=100_000,
        description="Limit of requests in flight to all backends; Envoy's default of 1024 would "
        "return 503 long before Dynamo does.",
    )

    @model_validator(mode="after")
    def _check_backends(self) -> Self:
        if not self.backends:
            fix = "Add `- release: NAME` with `weight: 1`."
            raise invalid("backends", "must name at least one release", fix)
        if len(self.backends) > MOST_BACKENDS:
            message = f"must be at most {MOST_BACKENDS}, got {len(self.backends)}"
            fix = f"Remove backends: one rule of the Gateway API takes at most {MOST_BACKENDS}."
            raise invalid("backends", message, fix)
        if not any(backend.weight for backend in self.backends):
            fix = "Give the release that serves clients `weight: 100`."
            raise invalid("backends", "all weights are 0, so no release serves clients", fix)
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [backend.release for backend in self.backends]
        for index, name in enumerate(names):
            if name in names[:index]:
                place = f"backends[{index}].release"
                message = f"{name} is listed twice, first in backends[{names.index(name)}]"
                raise invalid(place, message, "Keep one entry, with the sum of the weights.")
        if self.shadow is not None and self.shadow.release in names:
            message = f"{self.shadow.release} is also a backend, so it would get requests twice"
            raise invalid("shadow.release", message, "Name the release of the candidate.")
        return self
