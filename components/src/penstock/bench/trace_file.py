"""Writes the requests of a workload as a trace that AIPerf sends unchanged.

Prompts are token ids, so that no tokenizer changes their lengths and their shared prefixes. AIPerf
calls this format `mooncake_trace` with the field `payload`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.workload import Request
from penstock.workload.request import with_blocks
from penstock.workload.token_ids import prompt

Key = tuple[str, int]
"""Conversation and turn, with which AIPerf names a request in its records."""


def keyed(requests: Sequence[Request]) -> dict[Key, Request]:
    """Each request by its key; a request that is not part of a conversation is one of its own."""
    turns: dict[str, int] = {}
    found = {}
    for number, request in enumerate(with_blocks(requests)):
        conversation = f"c{request.session}" if request.session else f"r{number}"
        turn = turns.get(conversation, 0)
        turns[conversation] = turn + 1
        found[conversation, turn] = request
    return found


def at_speed(requests: Mapping[Key, Request], speed: float) -> Mapping[Key, Request]:
    """The requests with their times in real time, of times that are simulated at ``speed``."""
    if speed == 1.0:
        return requests
    return {
        key: replace(
            one,
            at_ms=None if one.at_ms is None else one.at_ms / speed,
            think_ms=one.think_ms / speed,
        )
        for key, one in requests.items()
    }


def write_trace(
    path: Path,
    requests: Mapping[Key, Request],
    model: str,
    salt: str,
    *,
    is_scheduled: bool,
    written: Callable[[int], None] = lambda _: None,
) -> None:
    """``salt`` changes the prompts, so that no prefix cache has them. ``is_scheduled``: with the
    times of arrival, which a fixed concurrency does not have. ``written`` gets the number of
    requests so far. Raises OSError."""
    with path.open("w") as file:
        for number, line in enumerate(_lines(requests, model, salt, is_scheduled), start=1):
            file.write(json.dumps(line) + "\n")
            written(number)


def _lines(
    requests: Mapping[Key, Request], model: str, salt: str, is_scheduled: bool
) -> Iterator[dict[str, Any]]:
    for (conversation, turn), request in requests.items():
        line: dict[str, Any] = {"session_id": conversation}
        if turn:
            line["delay"] = request.think_ms
        elif is_scheduled:
            line["timestamp"] = request.at_ms
        yield line | {"payload": body(request, model, salt)}


def body(request: Request, model: str, salt: str) -> dict[str, Any]:
    """A completion with exactly the tokens of the request."""
    return {
        "model": model,
        "prompt": prompt(request, salt),
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
