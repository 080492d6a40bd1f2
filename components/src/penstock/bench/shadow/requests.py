"""Reads the file of requests: one body of the OpenAI API per line, or OpenAI's Batch format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors import InputError, Problem

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BATCH = frozenset({"custom_id", "method", "url", "body"})
JSON_TYPES = {list: "array", str: "string", int: "number", float: "number", bool: "boolean"}
GREEDY: Mapping[str, Any] = {"temperature": 0, "seed": 0}
REMOVED = ("n", "best_of")  # servers reject several choices without sampling


@dataclass(frozen=True, kw_only=True)
class ShadowRequest:
    """One request, without the changes that depend on the endpoint."""

    id: str
    """`custom_id` of the Batch format, else the line number in the file, as text."""
    path: str
    """`CHAT` or `COMPLETIONS`."""
    body: Mapping[str, Any]

    @property
    def has_tools(self) -> bool:
        return bool(self.body.get("tools"))

    @property
    def wants_json(self) -> bool:
        """Whether the response must be a JSON document."""
        requested = self.body.get("response_format")
        kind = requested.get("type") if isinstance(requested, Mapping) else None
        return kind in ("json_object", "json_schema")

    @property
    def is_sampled(self) -> bool:
        """Whether the output is random: the temperature is not 0, and there is no seed."""
        return self.body.get("temperature") != 0 and self.body.get("seed") is None

    def without_text(self) -> ShadowRequest:
        """With only those keys of the body that a comparison needs; not to be sent."""
        body: dict[str, Any] = {
            key: value
            for key in ("temperature", "seed")
            if key in self.body and isinstance(value := self.body[key], int | float | None)
        }
        if self.has_tools:
            names = sorted(self.tool_names) or [""]
            body["tools"] = [{"function": {"name": name}} for name in names]
        if self.wants_json:
            body["response_format"] = {"type": self.body["response_format"]["type"]}
        return replace(self, body=body)

    @property
    def tool_names(self) -> frozenset[str]:
        tools = self.body.get("tools")
        return frozenset(
            name
            for tool in (tools if isinstance(tools, list) else ())
            if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
            if isinstance(name := tool["function"].get("name"), str)
        )


@dataclass(frozen=True, kw_only=True)
class RequestFile:
    requests: tuple[ShadowRequest, ...]
    digest: str
    """SHA-256 of the file, in hexadecimal."""


def read_requests(path: Path) -> RequestFile:
    """All requests of the file. InputError with the line number for a line that is not a request,
    for an ID that occurs twice, and for a file without requests."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        fix = "Name a JSONL file of requests."
        message = f"cannot be read: {error.strerror}"
        raise InputError(message, file=str(path), fix=fix) from None
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        fix = "Save the file as UTF-8."
        problem = Problem(file=str(path), line=number, message="is not UTF-8", fix=fix)
        raise InputError(problem) from None
    line_numbers: dict[str, int] = {}
    requests = []
    # Not `splitlines`, which also splits at characters that JSON permits in strings.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            request = request_of(parsed(line), str(number))
            if request.id in line_numbers:
                other = f"custom_id {request.id!r} is also that of line {line_numbers[request.id]}"
                raise _wrong(other, "Give every request another custom_id.")
        except InputError as error:
            (problem,) = error.problems
            raise InputError(replace(problem, file=str(path), line=number)) from None
        line_numbers[request.id] = number
        requests.append(request)
    if not requests:
        fix = "Write one request body per line."
        raise InputError("has no requests", file=str(path), fix=fix)
    return RequestFile(requests=tuple(requests), digest=hashlib.sha256(data).hexdigest())


def _wrong(message: str, fix: str) -> InputError:
    return InputError(message, fix=fix)


def parsed(line: str | bytes) -> object:
    """InputError if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        fix = "Write each request as one line of JSON."
        raise _wrong(f"is not JSON: {error}", fix) from None


def request_of_client(value: object, number: str) -> ShadowRequest:
    """A body that a client sent. It is not in the Batch format."""
    if not isinstance(value, dict):
        raise _wrong("is not a JSON object", "Send a JSON object.")
    return ShadowRequest(id=number, path=_path_of(value), body=value)


def request_of(value: object, number: str) -> ShadowRequest:
    """One line. ``number``: the ID if it has none."""
    if not isinstance(value, dict):
        fix = 'Write a JSON object such as {"messages": [...]}.'
        kind = "null" if value is None else f"a JSON {JSON_TYPES[type(value)]}"
        raise _wrong(f"is {kind}, not an object", fix)
    if not value.keys() >= {"url", "body"}:
        return ShadowRequest(id=number, path=_path_of(value), body=value)
    body = value["body"]
    if unknown := sorted(value.keys() - BATCH):
        fix = "Use the keys custom_id, method, url and body."
        raise _wrong(f"unknown key {unknown[0]!r} in a line with url and body", fix)
    if not isinstance(body, dict):
        raise _wrong("body is not an object", "Write the request body as an object.")
    path, url = _path_of(body), value["url"]
    if url != path:
        fix = f"Set url to {CHAT} for messages, or to {COMPLETIONS} for a prompt."
        raise _wrong(f"url is {url!r}, but the body is a request to {path}", fix)
    return ShadowRequest(id=str(value.get("custom_id") or number), path=path, body=body)


def _path_of(body: Mapping[str, Any]) -> str:
    messages, prompt = body.get("messages"), body.get("prompt")
    if isinstance(messages, list) and messages:
        return CHAT
    if isinstance(prompt, str | list) and prompt:
        return COMPLETIONS
    message = "has neither messages nor a prompt"
    if "messages" in body:
        message = "messages is not a list with at least one message"
    elif "prompt" in body:
        message = "prompt is empty, or neither text nor a list"
    raise _wrong(message, "Add messages for a chat request, or a prompt for a completion.")


def sent_body(request: ShadowRequest, *, model: str | None, as_sent: bool) -> dict[str, Any]:
    """What an endpoint gets. ``model``: its name of the model; None keeps that of the body.

    Unless ``as_sent``, the output is greedy, and is streamed with usage if the body does not say
    otherwise, so that TTFT and ITL can be measured.
    """
    body = dict(request.body)
    if model is not None:
        body["model"] = model
    if as_sent:
        return body
    for key in REMOVED:
        body.pop(key, None)
    body |= GREEDY
    if body.setdefault("stream", True):
        options = body.get("stream_options")
        stream_options = dict(options) if isinstance(options, Mapping) else {}
        body["stream_options"] = stream_options | {"include_usage": True}
    return body
