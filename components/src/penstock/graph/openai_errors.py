"""The errors that a gateway sends itself, in the format of the OpenAI API.

`gateway/errors.py` writes them for Envoy, `generate.py` for the chart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

INVALID, SERVER = "invalid_request_error", "server_error"


@dataclass(frozen=True, kw_only=True)
class OpenAIError:
    """``{name}`` in the message and the headers is a number of the gateway's policy."""

    message: str
    type: str
    code: str
    headers: Mapping[str, str] = field(default_factory=dict)
    has_route: bool = True
    """Whether the request has matched a route, whose policy then applies on a cluster."""

    def body(self, numbers: Mapping[str, object]) -> dict[str, dict[str, str | None]]:
        """The JSON body."""
        message = filled(self.message, numbers)
        return {"error": {"message": message, "type": self.type, "param": None, "code": self.code}}


def filled(text: str, numbers: Mapping[str, object]) -> str:
    """The text with each ``{name}`` replaced."""
    for name, number in numbers.items():
        text = text.replace(f"{{{name}}}", str(number))
    return text


# Status → error. OpenAI's clients show `message`, raise an exception of the status's type, and
# retry 408, 429 and 5xx after `retry-after` seconds, if it is at most two minutes.
ERRORS: Mapping[int, OpenAIError] = {
    401: OpenAIError(
        message="Missing or unknown API key.",
        type=INVALID,
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    ),
    404: OpenAIError(
        message="Unknown path: this gateway serves only paths below /v1.",
        type=INVALID,
        code="unknown_url",
        has_route=False,
    ),
    408: OpenAIError(
        message="The request did not arrive completely within {upload_s} s.",
        type=INVALID,
        code="request_timeout",
    ),
    413: OpenAIError(
        message="The request exceeds the limit of this gateway: {largest_request}.",
        type=INVALID,
        code="request_too_large",
    ),
    429: OpenAIError(
        message="Rate limit reached: {requests} requests per {unit}.",
        type="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"retry-after": "{retry_after_s}"},
    ),
    503: OpenAIError(
        message="No frontend can take the request now. Try again.",
        type=SERVER,
        code="service_unavailable",
        headers={"retry-after": "5"},
    ),
    504: OpenAIError(
        message="The response took longer than this gateway permits.", type=SERVER, code="timeout"
    ),
}


def chart_errors() -> list[dict[str, object]]:
    """The errors as the chart's templates read them: the bodies are JSON texts with ``{name}``."""
    return [
        {"status": status, "headers": dict(error.headers), "body": json.dumps(error.body({}))}
        for status, error in ERRORS.items()
        if error.has_route
    ]
