"""One response of an endpoint, assembled from a stream as its bytes arrive, or from one document.

`Recording` keeps what a client got through the proxy while it passes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

REJECTED = frozenset({400, 404, 413, 422})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
DETAIL_CHARACTERS = 300
LONGEST_LINE = 2**26  # bytes of one event; a response that never ends must not fill the memory
EVENTS = "text/event-stream"
MOST_BYTES = 2**26  # of a response that is compared; longer ones only pass
ENCODINGS = frozenset({"gzip", "deflate"})  # that httpx reads without another package
LAST_BYTES = 64  # of a stream, among which `[DONE]` is sought


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


class StreamReader:
    """Server-sent events of one completion; comments are skipped. Times in seconds since the
    request was sent."""

    def __init__(self) -> None:
        self.is_complete = False
        self._assembler = Assembler()
        self._rest = b""

    def feed(self, data: bytes, at_s: float) -> None:
        """The next bytes. BrokenResponseError for an event that is none of a completion."""
        # Not `splitlines` of the text, which also splits at characters that JSON permits.
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._add(line, at_s)
        if len(self._rest) > LONGEST_LINE:
            raise BrokenResponseError("an event of the stream is too long")

    def response(self, e2e_s: float) -> ShadowResponse:
        """After the last bytes. BrokenResponseError if the stream is incomplete."""
        self._add(self._rest, e2e_s)
        if not self.is_complete and not self._assembler.finish_reason:
            raise BrokenResponseError("the stream ended early")
        return self._assembler.response(e2e_s, is_stream=True)

    def _add(self, line: bytes, at_s: float) -> None:
        text = line.decode(errors="replace")
        if text.startswith("event:") and text.removeprefix("event:").strip() == "error":
            raise BrokenResponseError("an error in the stream")
        if self.is_complete or not text.startswith("data:"):
            return
        data = text.removeprefix("data:").strip()
        if data == "[DONE]":
            self.is_complete = True
        else:
            self._assembler.add(_parsed(data), at_s)


def is_stream(content_type: str) -> bool:
    """BrokenResponseError for a type that no completion has."""
    kind = content_type.split(";", maxsplit=1)[0].strip().lower()
    if kind not in (EVENTS, "application/json"):
        raise BrokenResponseError(f"the response is {kind or 'without a type'}, not JSON")
    return kind == EVENTS


def document(data: bytes, e2e_s: float) -> ShadowResponse:
    """A response that is not streamed. BrokenResponseError if it is no completion."""
    assembler = Assembler()
    assembler.add(_parsed(data.decode(errors="replace")), e2e_s)
    return assembler.response(e2e_s, is_stream=False)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BrokenResponseError("the response is not JSON") from None


class Recording:
    """One response. It is read only after its end, so that reading does not delay the client."""

    def __init__(self) -> None:
        self.is_readable = True
        """Whether it can be compared: not if it is very long, or compressed in a rare form."""
        self._status = 0
        self._content_type = self._encoding = self._error = ""
        self._began = self._ended = time.monotonic()
        self._parts: list[tuple[float, bytes]] = []
        self.size = 0
        """Bytes of its body."""

    @property
    def is_done(self) -> bool:
        """Whether the last part ends a stream; some clients then close the connection at once."""
        return bool(self._parts) and b"[DONE]" in self._parts[-1][1][-LAST_BYTES:]

    def began(self) -> None:
        """The request is sent now."""
        self._began = time.monotonic()

    def started(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        self._content_type = headers.get("Content-Type", "")
        self._encoding = headers.get("Content-Encoding", "").replace("identity", "")
        self.is_readable = self._encoding in ("", *ENCODINGS)

    def add(self, part: bytes) -> None:
        self._ended = time.monotonic()
        self.size += len(part)
        self.is_readable = self.is_readable and self.size <= MOST_BYTES
        if self.is_readable:
            self._parts.append((self._ended - self._began, part))
        else:
            self._parts.clear()

    def failed(self, error: str) -> None:
        """``error``: why there is no complete response."""
        self._error, self._ended = error, time.monotonic()

    def response(self) -> ShadowResponse:
        """As `Client.send` returns it."""
        took_s = self._ended - self._began
        if self._error:
            return failed(self._error, took_s)
        try:
            if self._status != 200:
                return refused(self._status, self._body(), took_s)
            if not is_stream(self._content_type):
                return document(self._body(), took_s)
            reader = StreamReader()
            if self._encoding:
                reader.feed(self._body(), took_s)
                return replace(reader.response(took_s), ttft_ms=None, itl_ms=None)
            for at_s, part in self._parts:
                reader.feed(part, at_s)
            return reader.response(took_s)
        except BrokenResponseError as broken:
            return failed(str(broken), took_s)

    def _body(self) -> bytes:
        data = b"".join(part for _, part in self._parts)
        headers = {"content-encoding": self._encoding} if self._encoding else {}
        try:
            return httpx.Response(200, headers=headers, content=data).content
        except httpx.DecodingError:
            raise BrokenResponseError(f"the response is not {self._encoding}") from None
