"""Reasoning is separate from the content, and neither contains chat-format markers."""

from __future__ import annotations

from penstock.verify.probes.harmony import message_of
from penstock.verify.result import ProbeResult, cannot_tell, passed
from penstock.verify.target import ProbeTarget

QUESTION = "A train leaves at 9:40 and arrives at 11:05. How many minutes is that? Think first."


def probe(target: ProbeTarget) -> ProbeResult:
    if target.expected is None or target.expected.reasoning_parser is None:
        return cannot_tell("the graph configures no reasoning parser")
    message = message_of(
        target, QUESTION, f"--dyn-reasoning-parser {target.expected.reasoning_parser}"
    )
    if isinstance(message, ProbeResult):
        return message
    if not message.get("reasoning_content"):
        return cannot_tell("the model did not reason", "Use a model that reasons.")
    return passed(
        f"{len(message['reasoning_content'])} characters of reasoning, separate from the content"
    )
