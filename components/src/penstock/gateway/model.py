"""The gateway YAML: what stands before one or more graphs that are installed as releases.

`policy.py` turns it into the policy that both outputs spell.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from penstock.strict_yaml.base import Count, Items, Port, Positive, Spec, invalid

MOST_BACKENDS = 16  # of one HTTPRoute rule
LARGEST_WEIGHT = 1_000_000  # the Gateway API's own bound
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
HEADER = r"^[A-Za-z0-9-]+$"

# Release names leave room in Kubernetes' 63 characters for "-frontend".
Release = Annotated[str, Field(pattern=DNS_LABEL, max_length=53)]
Label = Annotated[str, Field(pattern=DNS_LABEL, max_length=63)]
Hostname = Annotated[str, Field(pattern=DNS_NAME, max_length=253)]
Weight = Annotated[int, Field(ge=0, le=LARGEST_WEIGHT)]
Percent = Annotated[int, Field(ge=1, le=100)]
TokenCount = Annotated[int, Field(ge=1, le=4_294_967_295)]


class Backend(Spec):
    """A release that answers clients."""

    release: Release = Field(description="Helm release of the graph; its frontend is called so.")
    namespace: Label | None = Field(
        default=None, description="Namespace of the release; unset: the gateway's own."
    )
    port: Port = Field(default=8000, description="Port of the release's frontend Service.")
    weight: Weight = Field(description="Share of the requests, relative to the other backends'.")


class Shadow(Spec):
    """A release that gets a copy of some requests; its answers are thrown away."""

    release: Release = Field(description="Helm release of the candidate graph.")
    namespace: Label | None = Field(
        default=None, description="Namespace of the release; unset: the gateway's own."
    )
    port: Port = Field(default=8000, description="Port of the release's frontend Service.")
    percent: Percent = Field(description="Share of all requests that are copied, in percent.")


class Tls(Spec):
    """TLS towards clients."""

    secret: Hostname = Field(description="Secret of type kubernetes.io/tls, beside the gateway.")


class ApiKeys(Spec):
    """Who may ask. Without a known key the answer is 401 and no frontend hears of it."""

    secret: Hostname = Field(description="Secret whose entries are client name: key.")
    header: Annotated[str, Field(pattern=HEADER)] = Field(
        default="Authorization",
        description="Header with the key; a leading `Bearer ` does not belong to the key.",
    )


class RateLimit(Spec):
    """How often; above it the answer is 429. Each Envoy replica counts for itself."""

    requests: TokenCount = Field(description="Requests in one unit of time.")
    unit: Literal["second", "minute", "hour"] = Field(description="The unit of time.")
    per: Literal["client", "everyone"] = Field(
        default="client", description="Count each API key's client apart, or all together."
    )


class Timeouts(Spec):
    """A stream may last as long as it likes; what does not move is ended."""

    connect_s: Positive = Field(default=5, description="Seconds to connect to a frontend.")
    idle_s: Positive = Field(
        default=600,
        description="Seconds a request may go without a byte in either direction; a long prefill "
        "in a long queue sends nothing for minutes.",
    )
    upload_s: Positive = Field(default=60, description="Seconds a client has to send its request.")


class Gateway(Spec):
    """One hostname before one or more releases."""

    name: Label = Field(description="Name of the Gateway and of everything that belongs to it.")
    namespace: Label = Field(description="Namespace of the Gateway and of the two Secrets.")
    gateway_class: Hostname = Field(description="GatewayClass that Envoy Gateway serves.")
    hostname: Hostname = Field(description="Name under which clients reach the gateway.")
    tls: Tls = Field(description="TLS towards clients.")
    api_keys: ApiKeys = Field(description="Who may ask.")
    backends: Items[Backend] = Field(
        description="The releases that answer. Two with weights are a canary."
    )
    shadow: Shadow | None = Field(
        default=None, description="A candidate that gets copies of requests; unset: none."
    )
    rate_limit: RateLimit | None = Field(default=None, description="How often; unset: no limit.")
    timeouts: Timeouts = Field(default=Timeouts(), description="When a request is given up.")
    retries: Count = Field(
        default=2,
        description="Further attempts at a request that no frontend has begun to answer: not "
        "connected, stream refused, or status 503.",
    )
    max_request_kib: Positive = Field(
        default=2048,
        description="Largest request in KiB; above it the answer is 413. A request is held whole "
        "before it is sent on, so that a shadow which does not read cannot hold it up.",
    )
    max_parallel_requests: Positive = Field(
        default=100_000,
        description="Requests in flight to all backends; Envoy's own bound of 1024 would answer "
        "503 long before Dynamo does.",
    )

    @model_validator(mode="after")
    def _check_backends(self) -> Self:
        if not self.backends:
            fix = "add `- release: NAME` with `weight: 1`"
            raise invalid("backends", "must name at least one release", fix)
        if len(self.backends) > MOST_BACKENDS:
            message = f"must be at most {MOST_BACKENDS}, got {len(self.backends)}"
            raise invalid("backends", message, "the Gateway API allows no more in one rule")
        if not any(backend.weight for backend in self.backends):
            fix = "give the release that is to answer weight: 100"
            raise invalid("backends", "all weights are 0: nobody would answer", fix)
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [backend.release for backend in self.backends]
        for index, name in enumerate(names):
            if name in names[:index]:
                place = f"backends[{index}].release"
                message = f"{name} is named twice, first in backends[{names.index(name)}]"
                raise invalid(place, message, "add the two weights, and keep one of them")
        if self.shadow is not None and self.shadow.release in names:
            message = f"{self.shadow.release} is a backend already: it would get requests twice"
            raise invalid("shadow.release", message, "name the candidate's own release")
        return self
