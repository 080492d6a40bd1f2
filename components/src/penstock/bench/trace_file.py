"""Writes the requests of a workload as a trace that AIPerf sends unchanged.

Prompts of completions are token ids, so that no tokenizer changes their lengths and their shared
prefixes. Prompts of chat requests are text, of about as many tokens. AIPerf calls this format
`mooncake_trace` with the field `payload`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.files import naming
from penstock.workload import Request
from penstock.workload.request import prompt, prompt_text, with_blocks

Key = tuple[str, int]
"""Conversation and turn, with which AIPerf names a request in its records."""


def keyed(requests: Sequence[Request]) -> dict[Key, Request]:
    """Each request by its key; a request that is not part of a conversation is one of its own."""
    turns: dict[str, int] = {}
    by_key = {}
    for number, request in enumerate(with_blocks(requests)):
        conversation = f"c{request.session}" if request.session else f"r{number}"
        turn = turns.get(conversation, 0)
        turns[conversation] = turn + 1
        by_key[conversation, turn] = request
    return by_key


def at_speed(requests: Mapping[Key, Request], speed: float) -> Mapping[Key, Request]:
    """The requests with their times in real time, of times that are simulated at ``speed``."""
    if speed == 1.0:
        return requests
    return {
        key: replace(
            each,
            at_ms=None if each.at_ms is None else each.at_ms / speed,
            think_ms=each.think_ms / speed,
        )
        for key, each in requests.items()
    }


def write_trace(
    path: Path,
    requests: Mapping[Key, Request],
    model: str,
    salt: str,
    *,
    is_scheduled: bool,
    is_chat: bool = False,
    written: Callable[[int], None] = lambda _: None,
) -> None:
    """``salt`` changes the prompts, so that no prefix cache has them. ``is_scheduled``: with the
    times of arrival, which a fixed concurrency does not have. ``is_chat``: for the chat API.
    ``written`` gets the number of requests so far. Raises OSError."""
    body = chat_body if is_chat else completion_body
    lines = (
        _timing(key, request, is_scheduled=is_scheduled) | {"payload": body(request, model, salt)}
        for key, request in requests.items()
    )
    with naming(path), path.open("w") as file:
        for number, line in enumerate(lines, start=1):
            file.write(json.dumps(line) + "\n")
            written(number)


def _timing(key: Key, request: Request, *, is_scheduled: bool) -> dict[str, Any]:
    """When AIPerf sends the request."""
    conversation, turn = key
    if turn:
        return {"session_id": conversation, "delay": request.think_ms}
    due = {"timestamp": request.at_ms} if is_scheduled else {}
    return {"session_id": conversation, **due}


def completion_body(request: Request, model: str, salt: str) -> dict[str, Any]:
    """A completion with exactly the tokens of the request."""
    return {"prompt": prompt(request, salt), **_common(request, model)}


def chat_body(request: Request, model: str, salt: str) -> dict[str, Any]:
    """A chat request with exactly the output tokens of the request, reasoning included."""
    message = {"role": "user", "content": prompt_text(request, salt)}
    return {"messages": [message], **_common(request, model)}


def _common(request: Request, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
