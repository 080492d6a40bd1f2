"""The `gateway` section of a graph: API keys and limits in front of its frontends.

`gateway/model.py` reads the same fields in the file of a gateway in front of several releases.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field

from penstock.strict_yaml.base import HEADER_NAME, Count, ObjectName, Positive, Spec

TokenCount = Annotated[int, Field(ge=1, le=4_294_967_295)]
# The frontends render and tokenize the prompt before they can refuse it: larger requests do not
# reach them. Almost all text has fewer bytes per token: English about 4 to 5.
BYTES_PER_TOKEN = 16
OTHER_KIB = 64  # of tools, parameters and the format
MOST_MESSAGES = 1024  # for a local frontend
UNKNOWN_KIB = 2048  # if the context length is not known
MOST_KIB = 4_194_303  # Envoy's number of bytes has 32 bits
# Lua that counts the messages of a request, in Envoy and in Envoy Gateway; with `{max_messages}`.
COUNT_MESSAGES = (Path(__file__).parent / "limit_messages.lua").read_text()
KibCount = Annotated[int, Field(ge=1, le=MOST_KIB)]
HeaderName = Annotated[str, Field(pattern=HEADER_NAME)]


class RateLimit(Spec):
    requests: TokenCount = Field(
        description="Maximum number of requests per unit of time; further requests get status 429."
    )
    unit: Literal["second", "minute", "hour"] = Field(description="The unit of time.")
    per: Literal["client", "everyone"] = Field(
        default="client",
        description="Count each client separately (client), or all clients together (everyone). "
        "Each Envoy replica counts on its own, so several replicas permit a multiple of the limit.",
    )


class Timeouts(Spec):
    connect_s: Positive = Field(
        default=5, description=("Maximum time in seconds to connect to a frontend.")
    )
    idle_s: Positive = Field(
        default=600,
        description="Maximum time in seconds without a byte in either direction. Choose more than "
        "the longest TTFT: a request sends no byte while it is queued or in prefill.",
    )
    upload_s: Positive = Field(
        default=60,
        description=("Maximum time in seconds that a client may take to send its request."),
    )
    request_s: Positive | None = Field(
        default=None,
        description="Maximum time in seconds from the complete arrival of a request to the end of "
        "its response, including retries; if unset, no limit.",
    )


class Limits(Spec):
    """What a gateway applies to every request."""

    rate_limit: RateLimit | None = Field(
        default=None, description="Rate limit of requests; if unset, none."
    )
    timeouts: Timeouts = Field(
        default=Timeouts(),
        description="Time limits of a request. Only request_s can end a stream that still sends "
        "tokens.",
    )
    retries: Count = Field(
        default=2,
        description="Maximum number of retries of a request. The gateway retries after a failed "
        "or reset connection, a refused stream, or status 500 or 503. It does not retry if the "
        "client has received a part of the response. After a reset, the response may be computed "
        "twice.",
    )
    max_request_kib: KibCount | None = Field(
        default=None,
        description="Size of the largest request in KiB; larger requests get status 413. If "
        "unset: 16 bytes for each token of model.context_length, plus 64 KiB; without a context "
        "length, 2,048 KiB. Requests with images may need more. Envoy buffers a request "
        "completely before it forwards it, but does not buffer responses.",
    )
    max_messages: Positive | None = Field(
        default=None,
        description="Maximum number of messages, input items or prompts of a request; more get "
        "status 413. If unset, the gateway does not count them. On a cluster, this field needs an "
        "Envoy Gateway with `extensionApis.enableLua: true`: without it, every request gets "
        "status 500. With the local engines, the frontends of `up` accept 1,024, or this number "
        "if it is larger.",
    )
    max_parallel_requests: Positive = Field(
        default=100_000,
        description="Maximum number of requests in flight to all frontends. The default is high "
        "because at Envoy's own limit of 1024, Envoy would return 503 long before Dynamo does.",
    )

    def request_kib(self, tokens: int | None) -> int:
        """Size of the largest request in KiB for a model with this context length."""
        if self.max_request_kib is not None:
            return self.max_request_kib
        kib = UNKNOWN_KIB if tokens is None else -(-BYTES_PER_TOKEN * tokens // 1024) + OTHER_KIB
        return min(kib, MOST_KIB)

    def for_context(self, tokens: int | None) -> Self:
        """With `request_kib` as the size of the largest request."""
        return self.model_copy(update={"max_request_kib": self.request_kib(tokens)})

    def above_defaults(self, tokens: int | None) -> Limits:
        """Only the sizes above the defaults of local frontends. The gateway enforces lower ones, so
        an edit of those replaces no frontend."""
        is_larger = (self.max_request_kib or 0) > Limits().request_kib(tokens)
        return Limits(
            max_request_kib=self.max_request_kib if is_larger else None,
            max_messages=self.max_messages if (self.max_messages or 0) > MOST_MESSAGES else None,
        )


class Tls(Spec):
    secret: ObjectName = Field(
        description="Secret of type kubernetes.io/tls in the gateway's namespace."
    )


class SectionKeys(Spec):
    secret: ObjectName | None = Field(
        default=None,
        description="Secret on the cluster with one entry `client name: key` per client; if "
        "unset, NAME-api-keys, where NAME is the release. `up` reads the keys from the file of "
        "`--gateway FILE` instead.",
    )
    header: HeaderName = Field(
        default="Authorization",
        description="Header with the key. The key may follow the prefix `Bearer `.",
    )


class GatewaySection(Limits):
    api_keys: SectionKeys = Field(
        default=SectionKeys(),
        description="API keys of the clients; a request without a known key gets status 401 and "
        "reaches no frontend.",
    )
    gateway_class: ObjectName = Field(
        default="eg", description="GatewayClass of Envoy Gateway; `up` ignores it."
    )
    hostname: ObjectName | None = Field(
        default=None,
        description="Hostname that clients use on the cluster; if unset, any. `up` accepts any "
        "hostname.",
    )
    tls: Tls | None = Field(
        default=None,
        description="TLS on the cluster; if unset, the gateway uses HTTP, which sends the keys "
        "unencrypted. For `up`, use `--tls-cert` and `--tls-key` instead.",
    )
