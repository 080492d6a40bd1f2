"""Only complete tool calls in the responses of chat completions. Pure.

If `max_tokens` or a stop string ends the output within a call, Dynamo's parser `hermes` completes
the JSON, so that the call looks like the one that the model meant. It also ends a call at a
`</tool_call>` inside an argument. So the adapter asks for the generated tokens, and passes on a
call only if the tokens contain all of its JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .model import Model
from .prompt import Body

PARSER = "hermes"
# Dynamo's extension of the API: https://docs.dynamo.nvidia.com, "NVIDIA Request Extensions"
EXTENSION, FIELDS, TOKENS = "nvext", "extra_fields", "completion_token_ids"
EVENT = b"data: "

Decode = Callable[[Sequence[int]], str]
"""Token ids → text with its special tokens."""


def are_checked(body: Body, model: Model) -> bool:
    """Whether the response to a chat completion may contain calls that the parser completed."""
    may_call = bool(body.get("tools")) and body.get("tool_choice") != "none"
    return may_call and model.tool_call_parser == PARSER and model.has_tokenizer


def with_tokens(body: Body) -> Body:
    """The parameter that asks for the generated tokens; empty if the request asks already."""
    given = body.get(EXTENSION) or {}
    if not isinstance(given, dict) or not isinstance(given.get(FIELDS) or [], list):
        return {}  # Dynamo refuses it
    names = given.get(FIELDS) or []
    return {} if TOKENS in names else {EXTENSION: given | {FIELDS: [*names, TOKENS]}}


class CompleteCalls:
    """Removes the incomplete calls from one response, which may be a stream."""

    def __init__(self, decode: Decode, *, keeps_tokens: bool) -> None:
        """``keeps_tokens``: the client asked for the tokens too."""
        self._decode, self._keeps_tokens = decode, keeps_tokens
        self._tokens: list[int] = []
        self._passed = 0
        self._rest = b""

    def body(self, raw: bytes) -> bytes:
        """A response that is no stream."""
        return self._edited(raw, "message")

    def part(self, raw: bytes) -> bytes:
        """The next bytes of a stream; an incomplete line waits for its end."""
        *lines, self._rest = (self._rest + raw).split(b"\n")
        return b"".join(self._line(line) + b"\n" for line in lines)

    def end(self) -> bytes:
        """What is left of a stream that ended within a line."""
        return self._rest

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(EVENT):
            return line
        return EVENT + self._edited(line.removeprefix(EVENT), "delta")

    def _edited(self, raw: bytes, key: str) -> bytes:
        """``key``: of a choice's message. Anything but a response stays as it is."""
        try:
            answer = json.loads(raw)
        except ValueError:
            return raw
        if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
            return raw
        self._take_tokens(answer)
        for choice in answer["choices"]:
            self._check(choice, choice.get(key) or {})
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()

    def _take_tokens(self, answer: Body) -> None:
        extension = answer.get(EXTENSION) or {}
        self._tokens += extension.get(TOKENS) or ()
        if not self._keeps_tokens and TOKENS in extension:
            del extension[TOKENS]
            if not extension:
                del answer[EXTENSION]

    def _check(self, choice: Body, message: Body) -> None:
        if calls := message.get("tool_calls"):
            generated = list(_calls_in(self._decode(self._tokens)))
            complete = [call for call in calls if _content(call) in generated]
            for index, call in enumerate(complete, start=self._passed):
                if "index" in call:  # of a stream
                    call["index"] = index
            self._passed += len(complete)
            if complete:
                message["tool_calls"] = complete
            else:
                del message["tool_calls"]
        if choice.get("finish_reason") == "tool_calls" and not self._passed:
            choice["finish_reason"] = "stop"


def _calls_in(text: str) -> Iterator[tuple[Any, Any]]:
    """Name and arguments of each call whose JSON is complete."""
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if "name" in found:
                yield found["name"], found.get("arguments", found.get("parameters"))
        start = text.find("{", end)


def _content(call: Body) -> tuple[Any, Any]:
    function = call.get("function") or {}
    try:
        return function.get("name"), json.loads(function.get("arguments") or "")
    except ValueError:
        return function.get("name"), function.get("arguments")
