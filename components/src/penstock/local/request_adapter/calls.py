"""The tool calls and the text of a chat completion, as the model generated them. Pure.

Dynamo's parser `hermes` completes the JSON of a call that `max_tokens` or a stop string cut, ends a
call at a `</tool_call>` in an argument, and takes any JSON object with a `name` for a call. So the
adapter asks for the generated tokens, and corrects a response that differs from them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from .model import Model
from .prompt import Body

PARSER = "hermes"
# Dynamo's extension of the API: https://docs.dynamo.nvidia.com, "NVIDIA Request Extensions"
EXTENSION, FIELDS, TOKENS = "nvext", "extra_fields", "completion_token_ids"
EVENT = b"data: "
OPEN, CLOSE = "<tool_call>", "</tool_call>"

Decode = Callable[[Sequence[int]], str]
"""Token ids → text without special tokens."""


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


@dataclass(frozen=True)
class Asked:
    """What the request says about the output."""

    names: Collection[str]
    """Of its tools."""
    stops: Sequence[str] = ()
    """Strings that end the output, and are not part of it."""

    @classmethod
    def of(cls, body: Body) -> Asked:
        tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict)]
        functions = (tool.get("function") or {} for tool in tools)
        stop = body.get("stop") or []
        stops = [stop] if isinstance(stop, str) else [one for one in stop if one]
        return cls(names={str(one.get("name")) for one in functions}, stops=stops)


@dataclass
class Generated:
    """What the generated text contains."""

    calls: list[Body] = field(default_factory=list)
    """The functions of complete calls: {name, arguments}."""
    text: str = ""
    """All else, without a call at the end that is incomplete."""


class CorrectedCalls:
    """Corrects one response, which may be a stream."""

    def __init__(self, decode: Decode, asked: Asked, *, keeps_tokens: bool) -> None:
        """``keeps_tokens``: the client asked for the tokens too."""
        self._decode, self._asked, self._keeps_tokens = decode, asked, keeps_tokens
        self._tokens: list[int] = []
        self._sent = ""  # text
        self._passed = 0  # calls
        self._corrects = False  # whether the text of the stream is that of the tokens
        self._has_reasoning = False  # a reasoning parser divides the text as well
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
        new = self._take_tokens(answer)
        for choice in answer["choices"]:
            self._correct(choice, choice.get(key) or {}, new, is_part=key == "delta")
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()

    def _take_tokens(self, answer: Body) -> int:
        """Returns their number."""
        extension = answer.get(EXTENSION) or {}
        new = extension.get(TOKENS) or ()
        self._tokens += new
        if not self._keeps_tokens and TOKENS in extension:
            del extension[TOKENS]
            if not extension:
                del answer[EXTENSION]
        return len(new)

    def _correct(self, choice: Body, message: Body, new: int, *, is_part: bool) -> None:
        """``new``: number of new tokens."""
        self._has_reasoning |= bool(message.get("reasoning_content"))
        ends = choice.get("finish_reason") is not None
        # The parser passes on each token at once, unless it takes the text for a call.
        if new > 1 or ends or message.get("tool_calls") or self._corrects:
            generated = generated_by(self._decode(self._tokens), self._asked)
            given = [_content(call) for call in message.get("tool_calls") or ()]
            known = [_content({"function": one}) for one in generated.calls]
            self._corrects |= any(content not in known for content in given)
            self._correct_text(message, generated.text, ends, is_part)
            self._correct_calls(message, generated.calls, is_part)
        self._sent += message.get("content") or ""
        if choice.get("finish_reason") in ("tool_calls", "stop"):
            choice["finish_reason"] = "tool_calls" if self._passed else "stop"

    def _correct_text(self, message: Body, text: str, ends: bool, is_part: bool) -> None:
        passes_on = self._sent + (message.get("content") or "")
        if self._has_reasoning or not text.startswith(self._sent):
            return
        lacks = ends and text.removeprefix(passes_on).strip()
        self._corrects |= bool(lacks) or not text.startswith(passes_on)
        if self._corrects:
            shown = text if ends else _without_beginning(text, (OPEN, *self._asked.stops))
            rest = shown[len(self._sent) :]
            message["content"] = rest if rest or is_part else None

    def _correct_calls(self, message: Body, generated: Sequence[Body], is_part: bool) -> None:
        given = {json.dumps(_content(call)): call for call in message.pop("tool_calls", None) or ()}
        made = []
        for index, function in enumerate(generated[self._passed :], start=self._passed):
            new = {"id": f"call-{uuid.uuid4()}", "type": "function", "function": function}
            call = given.get(json.dumps(_content(new)), new)
            made.append(call | {"index": index} if is_part else call)
        if made:
            message["tool_calls"] = made
        self._passed += len(made)


def generated_by(text: str, asked: Asked) -> Generated:
    """``text``: all that was generated, with the markup of calls."""
    ends = [at for stop in asked.stops if (at := text.find(stop)) >= 0]
    text = text[: min(ends, default=len(text))]
    found, position = Generated(), 0
    while (start := text.find(OPEN, position)) >= 0:
        found.text += text[position:start]
        call, end = _call_at(text, start + len(OPEN))
        if end is None:
            return found
        position = end
        if call is not None and call["name"] in asked.names:
            found.calls.append(call)
        else:  # no call of a tool, so it is text
            found.text += text[start:position]
    found.text += text[position:]
    return found


def _call_at(text: str, start: int) -> tuple[Body | None, int | None]:
    """The call whose JSON begins at ``start``, None if there is none; and where its markup ends,
    None if it is incomplete."""
    begin = len(text) - len(text[start:].lstrip())
    if text[begin : begin + 1] not in ("", "{"):
        return None, start
    try:
        read, end = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        closed = text.find(CLOSE, start)
        return None, None if closed < 0 else closed + len(CLOSE)
    after = text[end:].lstrip()
    if after.startswith(CLOSE):
        end = len(text) - len(after) + len(CLOSE)
    elif CLOSE.startswith(after):  # the tag is not complete yet
        end = len(text)
    if not isinstance(read.get("name"), str):
        return None, end
    arguments = read.get("arguments", read.get("parameters", {}))
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"name": read["name"], "arguments": shown}, end


def _without_beginning(text: str, markers: Sequence[str]) -> str:
    """Without what may be the beginning of a marker or of a character."""
    text = text.rstrip("\ufffd")
    most = max(len(marker) for marker in markers)
    for size in range(min(most, len(text)), 0, -1):
        if any(marker.startswith(text[-size:]) for marker in markers):
            return text[:-size]
    return text


def _content(call: Body) -> tuple[Any, Any]:
    function = call.get("function") or {}
    try:
        return function.get("name"), json.loads(function.get("arguments") or "")
    except ValueError:
        return function.get("name"), function.get("arguments")
