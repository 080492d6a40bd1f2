"""What the two probes of parsers share: the question, and what must never reach a client."""

from __future__ import annotations

from penstock.verify.target import Answer

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


def leaked(answer: Answer) -> str | None:
    """The first marker of a chat format in what the client would show."""
    message = answer.choice.get("message") or {}
    shown = f"{message.get('content') or ''}{message.get('reasoning_content') or ''}"
    return next((marker for marker in MARKERS if marker in shown), None)
