"""The same prompt at temperature 0 gives the same tokens, on any worker.

With llama.cpp the first output, of the prompt that is not cached, may differ. Without a graph,
penstock recognizes such a cache by the number of cached tokens, and cannot tell a mocker's output
from that of faulty workers.
"""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ApiResponse, ProbeTarget

PROMPT, OUTPUT, REPEATS = 150, 24, 4


def probe(target: ProbeTarget) -> ProbeResult:
    if target.is_mocked:
        return cannot_tell("a mocker runs, and its output is random")
    prompt = target.prompt(PROMPT)
    responses = _comparable(target, [target.complete(prompt, OUTPUT) for _ in range(REPEATS)])
    if len(responses) < 2:
        return cannot_tell("equal requests went to different workers, with separate caches")
    tokens = [response.token_ids for response in responses]
    if len(tokens[0]) != OUTPUT:
        return cannot_tell(f"{len(tokens[0])} token ids for an output of {OUTPUT} tokens")
    if target.expected is None and len({tuple(some) for some in tokens}) == len(tokens):
        return cannot_tell(
            f"all {len(tokens)} outputs of one prompt differ, as with a mocker",
            "Add --graph GRAPH: it names the engine.",
        )
    if any(other != tokens[0] for other in tokens):
        return failed(
            f"{len(tokens)} outputs of one prompt differ: {tokens[0]} and "
            f"{next(other for other in tokens if other != tokens[0])}",
            "Workers differ in weights or data types, or the arithmetic depends on the batch.",
        )
    cached = responses[-1].cached_tokens
    return passed(
        f"{len(tokens)} times the same {OUTPUT} tokens; last time {cached} of {PROMPT} prompt "
        "tokens from the cache"
    )


def _comparable(target: ProbeTarget, responses: list[ApiResponse]) -> list[ApiResponse]:
    """Without those whose prompt was not cached, if the engine caches all tokens but the last."""
    if target.caches_single_tokens:
        return responses[1:]
    cached = [one for one in responses if one.cached_tokens == PROMPT - 1]
    return cached if target.expected is None and cached else responses
