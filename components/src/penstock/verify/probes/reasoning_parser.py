"""Reasoning comes apart from the answer, and no marker of the chat format is left in either."""

from __future__ import annotations

from penstock.verify.outcome import Outcome, cannot_tell, failed, passed
from penstock.verify.probes.harmony import NO_VOCABULARY_HINT, leaked, lost
from penstock.verify.target import Target

QUESTION = "A train leaves at 9:40 and arrives at 11:05. How many minutes is that? Think first."


def probe(target: Target) -> Outcome:
    if target.expected is None or target.expected.reasoning_parser is None:
        return cannot_tell("the graph names no reasoning parser")
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 512}
    answer = target.post("/v1/chat/completions", {"model": target.model, **body})
    if answer.status != 200:
        return failed(f"HTTP {answer.status}: {answer.text}")
    name = target.expected.reasoning_parser
    marker = leaked(answer)
    if marker is not None:
        return failed(
            f"{marker} is in what the client sees",
            f"the workers run without --dyn-reasoning-parser {name}",
        )
    empty = lost(target, answer)
    if empty is not None:
        return failed(empty, NO_VOCABULARY_HINT)
    message = answer.choice.get("message") or {}
    if not message.get("reasoning_content"):
        return cannot_tell("the model did not reason", "ask a model that does")
    return passed(f"{len(message['reasoning_content'])} characters of reasoning, apart")
