"""What the two probes of parsers share: the question, and what must never reach a client."""

from __future__ import annotations

import re

from penstock.verify.target import Answer, Target

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


def lost(target: Target, answer: Answer) -> str | None:
    """What the parser did to an answer of which nothing arrived, None when something did."""
    message = answer.choice.get("message") or {}
    if any(message.get(part) for part in ("content", "reasoning_content", "tool_calls")):
        return None
    without = " (its log: Failed to load Harmony encoding)" if _no_vocabulary(target) else ""
    tokens = (answer.body.get("usage") or {}).get("completion_tokens")
    return f"an empty answer of {tokens} tokens{without}"


def _no_vocabulary(target: Target) -> bool:
    return bool(target.log_matches(NO_VOCABULARY))


def leaked(answer: Answer) -> str | None:
    """What of a chat format is in what the client would show; None when nothing is."""
    message = answer.choice.get("message") or {}
    shown = f"{message.get('content') or ''}{message.get('reasoning_content') or ''}"
    remains = REMAINS.search(shown)
    if remains is not None:
        return f"{remains[0]!r} (Harmony whose special tokens were dropped)"
    return next((marker for marker in MARKERS if marker in shown), None)
