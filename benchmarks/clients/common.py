"""What the Python drivers share: requests from standard input, results to standard output.

A driver runs in the environment `clients`, sends each request with its client, and reports what
that client makes of the response, in one form for all clients. `cases.py` judges it.

Request: {"api": "chat" | "completions" | "responses", "prompt", "params": OpenAI's parameters,
"stream": bool, "cancel_after": chunks}. Result: texts, finish, calls, logprobs, usage, chunks, or
{"error": …}, or {"absent": why the client cannot send this}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

Request = dict[str, Any]
Result = dict[str, Any]


def serve(run: Callable[[Request], Result]) -> None:
    """One result line per request line, until the input ends."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not mix with the results
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = run(request)
        except Exception as error:  # noqa: BLE001  every failure is a result
            result = {"error": described(error)}
        results.write(json.dumps(result) + "\n")
        results.flush()


def described(error: Exception) -> Result:
    """The status and the fields of OpenAI's error body, as the client exposes them."""
    body = getattr(error, "body", None)
    body = body if isinstance(body, dict) else {}
    return {
        "class": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": body.get("code") or getattr(error, "code", None),
        "param": body.get("param") or getattr(error, "param", None),
        "message": str(body.get("message") or error),
    }


def usage(prompt: int, completion: int, cached: int | None) -> Result:
    return {"prompt": prompt, "completion": completion, "cached": cached or 0}


def openai_usage(found: Any) -> Result | None:
    """Of a chat completion's or a completion's usage object."""
    if found is None:
        return None
    details = getattr(found, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", 0) if details is not None else 0
    return usage(found.prompt_tokens, found.completion_tokens, cached)


def call(name: str, arguments: str) -> Result:
    return {"name": name, "arguments": arguments}


def chat_choices(choices: Iterable[Any]) -> Result:
    """Of OpenAI's chat choices, which litellm has too."""
    texts, finish, calls, logprobs = [], [], [], []
    for choice in choices:
        texts.append(choice.message.content or "")
        finish.append(choice.finish_reason)
        tools = choice.message.tool_calls or ()
        calls.append([call(t.function.name, t.function.arguments) for t in tools])
        content = getattr(getattr(choice, "logprobs", None), "content", None) or ()
        logprobs.append([[p.logprob, len(p.top_logprobs)] for p in content])
    return {"texts": texts, "finish": finish, "calls": calls, "logprobs": logprobs}


def streamed(
    chunks: Iterable[Any],
    text_of: Callable[[Any], str | None],
    cancel_after: int | None,
    close: Callable[[], None],
) -> Result:
    """Read a stream to its end, or close it after ``cancel_after`` chunks with text."""
    texts: list[str] = []
    begun = time.monotonic()
    first = begun
    for chunk in chunks:
        text = text_of(chunk)
        if not text:
            continue
        if not texts:
            first = time.monotonic()
        texts.append(text)
        if cancel_after is not None and len(texts) >= cancel_after:
            close()
            break
    seconds = (time.monotonic() - first) / max(1, len(texts) - 1)
    return {"texts": ["".join(texts)], "chunks": len(texts), "seconds_per_chunk": seconds}
