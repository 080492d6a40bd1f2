"""Shared by the two parser probes: send a chat, and detect chat-format markers in the response."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.verify.result import ProbeResult, failed
from penstock.verify.target import ProbeTarget

MARKERS = (
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<think>",
    "</think>",
    "<tool_call>",
)


# Detokenizing drops special tokens; this remains of Harmony's headers.
REMAINS = re.compile(r"^analysis(?=\S)|assistant(?:final|commentary|analysis)")
NO_VOCABULARY = r"Failed to load Harmony encoding"
NO_VOCABULARY_HINT = (
    "The frontend may lack the parser's vocabulary, and then loses reasoning and tool calls: put "
    "o200k_base.tiktoken on a volume and set model.harmony_vocabulary."
)


def message_of(
    target: ProbeTarget, question: str, parser: str, **more: Any
) -> Mapping[str, Any] | ProbeResult:
    """The chat message in response to ``question``; a failure when ``parser`` (flag and name) left
    markers in it or lost its content."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 512, **more}
    response = target.post("/v1/chat/completions", {"model": target.model, **body})
    if response.status != 200:
        return failed(f"HTTP {response.status}: {response.text}")
    message: Mapping[str, Any] = response.choice.get("message") or {}
    marker = _leaked(message)
    if marker is not None:
        return failed(f"the client receives {marker}", f"Start the workers with {parser}.")
    if not any(message.get(part) for part in ("content", "reasoning_content", "tool_calls")):
        tokens = (response.body.get("usage") or {}).get("completion_tokens")
        matches = target.log_matches(NO_VOCABULARY)
        reason = f" (the frontend's log: {matches[-1][0]})" if matches else ""
        return failed(f"an empty message of {tokens} tokens{reason}", NO_VOCABULARY_HINT)
    return message


def _leaked(message: Mapping[str, Any]) -> str | None:
    """The part of the chat format that the client receives; None when there is none."""
    received = f"{message.get('content') or ''}{message.get('reasoning_content') or ''}"
    remains = REMAINS.search(received)
    if remains is not None:
        return f"{remains[0]!r} (Harmony headers without their special tokens)"
    return next((marker for marker in MARKERS if marker in received), None)
