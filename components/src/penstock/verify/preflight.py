"""One error for an endpoint that no probe can use, instead of a failure of every probe."""

from __future__ import annotations

import socket
import ssl

import httpx

from penstock.errors import NotVerifiedError
from penstock.verify.target import ProbeTarget, UnreachableError

KEY = "OPENAI_API_KEY"


def require_endpoint(target: ProbeTarget) -> None:
    """NotVerifiedError unless the endpoint answers `/v1/models` as the OpenAI API does."""
    path = "/v1/models"
    try:
        response = target.get(path)
    except UnreachableError as error:
        cause, fix = _unreachable(error.__context__, target.url)
        raise NotVerifiedError(cause, place=target.url, fix=fix) from None
    if isinstance(response.body.get("data"), list):
        return
    message = f"is not a Dynamo frontend: {path} returned HTTP {response.status} and no models"
    fix = "Give the address that `penstock up` printed, or that of the frontend's service."
    if response.status in (401, 403):
        message = f"rejected the request: {path} returned HTTP {response.status}"
        fix = f"Set the environment variable {KEY} to a key of this endpoint."
    elif response.status >= 500:
        message = f"does not serve: {path} returned HTTP {response.status}: {response.text}"
        fix = "Wait until the frontend is ready, and read its log."
    raise NotVerifiedError(message, place=target.url, fix=fix)


def _unreachable(error: BaseException | None, url: str) -> tuple[str, str]:
    """Cause and fix."""
    start = "Start the graph with `penstock up GRAPH`, or correct the address."
    if isinstance(error, httpx.TimeoutException):
        return "does not respond within 15 s", "Check the address, the network and a firewall."
    cause = error
    while cause is not None and not isinstance(cause, OSError):  # httpx wraps httpcore's errors
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLError):
        fix = "Use http://, or correct the server's certificate."
        if isinstance(cause, ssl.SSLCertVerificationError):
            fix = "Set SSL_CERT_FILE to the certificate of the authority that issued the server's."
        return f"no TLS connection: {error}", fix
    if isinstance(cause, socket.gaierror):
        return f"the host name {httpx.URL(url).host} is not known", "Correct the host name."
    if isinstance(cause, ConnectionRefusedError):
        return "nothing listens there: connection refused", start
    return f"does not respond: {error}", start
