"""What the two probes of parsers share: the question, and what must never reach a client."""

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


# Detokenizing drops special tokens, so that this is what is left of Harmony's headers.
REMAINS = re.compile(r"^analysis(?=\S)|assistant(?:final|commentary|analysis)")
NO_VOCABULARY = r"Failed to load Harmony encoding"
NO_VOCABULARY_HINT = (
    "the frontend could not download the parser's vocabulary, and then it loses reasoning and tool "
    "calls: put o200k_base.tiktoken on a volume and set model.harmony_vocabulary"
)


def message_of(
    target: ProbeTarget, question: str, parser: str, **more: Any
) -> Mapping[str, Any] | ProbeResult:
    """The message that answers ``question`` in a chat; or, where ``parser`` (its flag and name) did
    not do its work on it, the failure."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 512, **more}
    answer = target.post("/v1/chat/completions", {"model": target.model, **body})
    if answer.status != 200:
        return failed(f"HTTP {answer.status}: {answer.text}")
    message: Mapping[str, Any] = answer.choice.get("message") or {}
    marker = _leaked(message)
    if marker is not None:
        return failed(f"{marker} is in what the client sees", f"the workers run without {parser}")
    if not any(message.get(part) for part in ("content", "reasoning_content", "tool_calls")):
        tokens = (answer.body.get("usage") or {}).get("completion_tokens")
        said = target.log_matches(NO_VOCABULARY)
        because = f" (the frontend's log: {said[-1][0]})" if said else ""
        return failed(f"an empty answer of {tokens} tokens{because}", NO_VOCABULARY_HINT)
    return message


def _leaked(message: Mapping[str, Any]) -> str | None:
    """What of a chat format is in what the client would show; None when nothing is."""
    shown = f"{message.get('content') or ''}{message.get('reasoning_content') or ''}"
    remains = REMAINS.search(shown)
    if remains is not None:
        return f"{remains[0]!r} (Harmony whose special tokens were dropped)"
    return next((marker for marker in MARKERS if marker in shown), None)
