"""An OpenAI server of chat requests for tests of `bench shadow`, and files of requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.support.scripted_http import body_of, respond, send_always, serving

MODEL = "scripted"
MODELS = json.dumps({"data": [{"id": MODEL}]}).encode()  # of /v1/models
CALL = {"name": "look_up", "arguments": '{"word": "penstock"}'}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a request gets, in three chunks if it is streamed."""

    text: str = ""
    reasoning: str = ""
    call: Mapping[str, str] | None = None
    finish_reason: str = "stop"
    prompt_tokens: int = 10
    tokens: int = 8
    status: int = 200
    raw: bytes | None = None
    """Body in place of a completion."""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False
    """The connection is closed after the first chunk."""
    is_silent: bool = False
    """Nothing is sent until the server ends."""


def endless(request: BaseHTTPRequestHandler) -> None:
    """A stream until the client closes the connection; or the models."""
    body_of(request)
    if request.command == "GET":
        respond(request, MODELS)
        return
    send_always(request, b"data: {}\n\n")


def reply_of(prompt: str) -> Reply:
    """A text that depends on the prompt only."""
    return Reply(text=f"An answer to {prompt}, with {len(prompt)} characters.")


Script = Callable[[str, Mapping[str, Any]], Reply]


@dataclass(kw_only=True)
class ShadowServer:
    """``script``: the reply to a prompt and its body."""

    script: Script = lambda prompt, _: reply_of(prompt)
    key: str = ""
    model: str = MODEL
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    url: str = ""
    dies_after: int | None = None
    """Number of requests after which it closes all connections without a response."""
    _is_ending: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[ShadowServer]:
        with serving(self._handle) as self.url:
            try:
                yield self
            finally:
                self._is_ending.set()

    @property
    def prompts(self) -> list[str]:
        return [body["messages"][-1]["content"] for body in self.bodies]

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = body_of(request)
        if self.dies_after is not None and len(self.bodies) >= self.dies_after:
            request.close_connection = True
        elif self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            respond(request, b'{"error": "no key"}', 401)
        elif request.command == "GET":
            listed = {"object": "list", "data": [{"id": self.model, "object": "model"}]}
            respond(request, json.dumps(listed).encode(), Content_Type="application/json")
        else:
            self._complete(request, json.loads(body))

    def _complete(self, request: BaseHTTPRequestHandler, body: Mapping[str, Any]) -> None:
        self.bodies.append(body)
        reply = self.script(body["messages"][-1]["content"], body)
        if reply.is_silent:
            self._is_ending.wait()
            request.close_connection = True
        elif reply.raw is not None or reply.status != 200:
            respond(request, reply.raw or b"{}", reply.status, **reply.headers)
        elif body.get("stream"):
            _stream(request, reply)
        else:
            respond(request, json.dumps(_document(reply)).encode(), Content_Type="application/json")


def _stream(request: BaseHTTPRequestHandler, reply: Reply) -> None:
    events = [{"choices": [{"index": 0, "delta": delta}]} for delta in _deltas(reply)]
    if not reply.is_cut:
        end = {"index": 0, "delta": {}, "finish_reason": reply.finish_reason}
        events += [{"choices": [end]}, {"choices": [], "usage": _usage(reply)}]
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    if not reply.is_cut:
        data += b"data: [DONE]\n\n"
    respond(request, data, Content_Type="text/event-stream")


def _deltas(reply: Reply) -> Iterator[Mapping[str, Any]]:
    if reply.reasoning:
        yield {"reasoning_content": reply.reasoning}
    if reply.text:
        yield {"content": reply.text[:3]}
        yield {"content": reply.text[3:]}
    if reply.call:
        name, arguments = reply.call["name"], reply.call["arguments"]
        yield {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": ""}}]}
        yield {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


def _usage(reply: Reply) -> Mapping[str, int]:
    return {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.tokens}


def _document(reply: Reply) -> Mapping[str, Any]:
    message = {
        "content": reply.text,
        "tool_calls": [{"function": reply.call}] if reply.call else [],
    }
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    return {"choices": [choice], "usage": _usage(reply)}


def prompts(count: int) -> list[str]:
    return [f"question {number}" for number in range(count)]


def write_requests(path: Path, texts: Sequence[str], **more: Any) -> Path:
    """One chat request per text."""
    lines = [
        json.dumps({"messages": [{"role": "user", "content": text}], **more}) for text in texts
    ]
    path.write_text("\n".join(lines) + "\n")
    return path
