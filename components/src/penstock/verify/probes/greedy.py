"""The same prompt at temperature 0 gives the same tokens, whichever workers computed them."""

from __future__ import annotations

from penstock.manifests.deployment import Engine
from penstock.verify.outcome import Outcome, cannot_tell, failed, passed
from penstock.verify.target import Target

PROMPT, ANSWER, REPEATS = 150, 24, 4


def probe(target: Target) -> Outcome:
    expected = target.expected
    if expected is not None and Engine.MOCKER in expected.engines:
        return cannot_tell("the graph's engine is the mocker, whose answers are random")
    prompt = target.prompt(PROMPT)
    answers = [target.complete(prompt, ANSWER) for _ in range(REPEATS)]
    tokens = [answer.token_ids or answer.choice.get("text") for answer in answers]
    if not tokens[0]:
        return cannot_tell("the answer holds neither token ids nor text")
    if any(other != tokens[0] for other in tokens):
        return failed(
            f"{REPEATS} answers to one prompt differ: {tokens[0]} and "
            f"{next(other for other in tokens if other != tokens[0])}",
            "workers of different weights or types, or arithmetic that depends on the batch",
        )
    return passed(f"{REPEATS} times the same {ANSWER} tokens, first read anew, then from the cache")
