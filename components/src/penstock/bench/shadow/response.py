"""One response of an endpoint, and how it is assembled from a stream or from one document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REJECTED = frozenset({400, 404, 413, 422})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
DETAIL_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    name: str
    arguments: str
    """JSON, as the endpoint sent it."""

    @property
    def keys(self) -> tuple[str, ...] | None:
        """Top-level keys of the arguments; None if they are not a JSON object."""
        try:
            value = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None
        return tuple(sorted(value)) if isinstance(value, dict) else None


@dataclass(frozen=True, kw_only=True)
class ShadowResponse:
    """What an endpoint returned for one request. Of several choices, the first."""

    error: str = ""
    """Why there is no complete response, such as `HTTP 400`; empty if there is one."""
    detail: str = ""
    """Beginning of the error's body; it can contain text of the request."""
    is_rejected: bool = False
    """The endpoint refused the request itself: HTTP 400, 404, 413 or 422."""
    is_unreachable: bool = False
    """The endpoint responded to nothing."""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int | None = None
    """None if the response has no usage."""
    completion_tokens: int | None = None
    ttft_ms: float | None = None
    """Time to the first token of any kind; None if the response was not streamed."""
    itl_ms: float | None = None
    """None with fewer than two chunks or tokens."""
    e2e_ms: float = 0.0

    @property
    def length(self) -> int:
        """Output tokens, or characters if there is no usage."""
        if self.completion_tokens is not None:
            return self.completion_tokens
        return len(self.reasoning) + len(self.text)


def failed(error: str, took_s: float, detail: str = "") -> ShadowResponse:
    return ShadowResponse(error=error, detail=detail, e2e_ms=took_s * 1000)


def refused(status: int, body: bytes, took_s: float) -> ShadowResponse:
    """Of an HTTP status other than 200."""
    reason = f"HTTP {status}"
    if status in REDIRECTS:
        reason += ", a redirect, which is not followed"
    return ShadowResponse(
        error=reason,
        detail=body.decode(errors="replace")[:DETAIL_CHARACTERS],
        is_rejected=status in REJECTED,
        e2e_ms=took_s * 1000,
    )


class BrokenResponseError(Exception):
    """The body is not that of a completion; the message is the reason."""


@dataclass(kw_only=True)
class Assembler:
    """Collects one response. Times in seconds since the request was sent."""

    text: str = ""
    reasoning: str = ""
    finish_reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    first_s: float | None = None
    last_s: float = 0.0
    chunks: int = 0
    """With output."""
    _calls: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add(self, event: object, at_s: float) -> None:
        """An event of a stream, or a complete document. BrokenResponseError if it is neither."""
        if not isinstance(event, Mapping):
            raise BrokenResponseError("the response is not a JSON object")
        if event.get("error"):
            raise BrokenResponseError("an error in the response")
        if isinstance(event.get("usage"), Mapping):
            self.usage = event["usage"]
        choices = event.get("choices")
        if not isinstance(choices, list):
            raise BrokenResponseError("the response has no choices")
        before = (self.text, self.reasoning, dict(self._calls))
        try:
            for choice in choices:
                if isinstance(choice, Mapping) and choice.get("index", 0) == 0:
                    self._add_choice(choice)
        except (AttributeError, TypeError):
            raise BrokenResponseError("the response has a choice of another form") from None
        if before != (self.text, self.reasoning, self._calls):
            self.first_s = at_s if self.first_s is None else self.first_s
            self.last_s = at_s
            self.chunks += 1

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        part = choice.get("delta") or choice.get("message") or {}
        self.text += _text(choice.get("text")) + _text(part.get("content"))
        self.reasoning += _text(part.get("reasoning_content") or part.get("reasoning"))
        self.finish_reason = _text(choice.get("finish_reason")) or self.finish_reason
        for position, call in enumerate(part.get("tool_calls") or ()):
            index = call.get("index")
            index = index if isinstance(index, int) else position
            function = call.get("function") or {}
            name, arguments = self._calls.get(index, ("", ""))
            name += _text(function.get("name"))
            self._calls[index] = (name, arguments + _text(function.get("arguments")))

    def response(self, e2e_s: float, *, is_stream: bool) -> ShadowResponse:
        tokens = _count(self.usage.get("completion_tokens"))
        itl_ms = None
        if is_stream and tokens and tokens > 1 and self.chunks > 1 and self.first_s is not None:
            itl_ms = (self.last_s - self.first_s) / (tokens - 1) * 1000
        return ShadowResponse(
            text=self.text,
            reasoning=self.reasoning,
            tool_calls=tuple(
                ToolCall(name=name, arguments=arguments)
                for _, (name, arguments) in sorted(self._calls.items())
            ),
            finish_reason=self.finish_reason,
            prompt_tokens=_count(self.usage.get("prompt_tokens")),
            completion_tokens=tokens,
            ttft_ms=self.first_s * 1000 if is_stream and self.first_s is not None else None,
            itl_ms=itl_ms,
            e2e_ms=e2e_s * 1000,
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
