"""The same prompt at temperature 0 gives the same tokens, whichever workers computed them."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT, ANSWER, REPEATS = 150, 24, 4


def probe(target: ProbeTarget) -> ProbeResult:
    if target.is_mocked:
        return cannot_tell("a mocker answers, and its answers are random")
    prompt = target.prompt(PROMPT)
    answers = [target.complete(prompt, ANSWER) for _ in range(REPEATS)]
    tokens = [answer.token_ids for answer in answers]
    if len(tokens[0]) != ANSWER:
        return cannot_tell(f"{len(tokens[0])} token ids in an answer of {ANSWER}")
    if any(other != tokens[0] for other in tokens):
        return failed(
            f"{REPEATS} answers to one prompt differ: {tokens[0]} and "
            f"{next(other for other in tokens if other != tokens[0])}",
            "workers of different weights or types, or arithmetic that depends on the batch",
        )
    cached = answers[-1].cached_tokens
    return passed(
        f"{REPEATS} times the same {ANSWER} tokens; at last {cached} of {PROMPT} from the cache"
    )
