"""Errors in OpenAI's format: of the adapter, and instead of Dynamo's. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
PROMPTS = {CHAT: "messages", COMPLETIONS: "prompt", RESPONSES: "input"}
UNSUPPORTED = "unsupported_parameter"
CONTEXT_CODE = "context_length_exceeded"
# OpenAI's words. litellm and others branch on them, and a worker's error has no other field.
CONTEXT_WORDS = "maximum context length is"
# Status → OpenAI's code, for errors of Dynamo and of its workers.
CODES = {
    404: "model_not_found",
    429: "rate_limit_exceeded",
    501: "not_implemented",
    503: "service_unavailable",
}
TYPES = {429: "rate_limit_error"}
NO_REASON = ("Bad Request", "Invalid request")  # Dynamo's messages instead of vLLM's
REASON = (
    "Dynamo or the engine rejected the request, and Dynamo passes on no reason: see the log of "
    "the graph (`penstock logs`)."
)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A response with OpenAI's error body."""

    message: str
    param: str | None = None
    code: str | None = None
    status: int = 400

    def body(self) -> dict[str, Any]:
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": self.message, "type": TYPES.get(self.status, usual)}
        return {"error": error | {"param": self.param, "code": self.code}}


def translated(path: str, status: int, answer: Any) -> Refusal | None:
    """For an error of Dynamo, whose format OpenAI's clients do not read; else None.

    ``answer``: the body of an error, None if it is no JSON object; or the first event of a stream
    that begins with an error, which Dynamo sends with status 200.
    """
    if path == EMBEDDINGS and status == 404:
        return _no_endpoint(path, 400)
    if not isinstance(answer, dict):
        return None
    if status < 400:
        event = answer.get("error")
        code = event.get("code") if isinstance(event, dict) else None
        if not isinstance(code, int) or not 400 <= code < 600:
            return None
        return _reworded(path, code, event)
    return None if "error" in answer else _reworded(path, status, answer)


def no_route(method: str, path: str, status: int) -> Refusal:
    """For an empty 404 or 405: Dynamo has the path, but no such method, or no model for it."""
    if status == 404:
        return _no_endpoint(path, status)
    message = f"{path} does not accept {method}. The header Allow names what it accepts."
    return Refusal(message=message, code="unsupported_endpoint", status=status)


def too_long(path: str, limit: int, tokens: int) -> Refusal:
    param = PROMPTS[path]
    return Refusal(
        message=f"This model's {CONTEXT_WORDS} {limit} tokens. However, your request needs "
        f"{tokens} tokens ({param} and output). Please reduce the length of the {param}.",
        param=param,
        code=CONTEXT_CODE,
    )


def _no_endpoint(path: str, status: int) -> Refusal:
    return Refusal(
        message=f"The models of this graph have no endpoint {path}. They generate text: send the "
        f"request to {CHAT} or {COMPLETIONS}.",
        code="unsupported_endpoint",
        status=status,
    )


def _reworded(path: str, status: int, error: Any) -> Refusal | None:
    message, details = error.get("message"), error.get("details")
    if path in PROMPTS and isinstance(details, dict) and {"limit", "actual"} <= details.keys():
        return too_long(path, details["limit"], details["actual"])
    if not isinstance(message, str):
        return None
    if status == 400 and path in PROMPTS and CONTEXT_WORDS in message:
        return Refusal(message=message, param=PROMPTS[path], code=CONTEXT_CODE)
    has_model = path in PROMPTS or path.startswith("/v1/models/") or status != 404
    return Refusal(
        message=REASON if message in NO_REASON else message,
        code=CODES.get(status) if has_model else None,  # else the path is unknown
        status=status,
    )
