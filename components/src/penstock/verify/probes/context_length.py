"""A sequence of just the context length is served; one token more is a clean 400."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ApiResponse, ProbeTarget

LIMIT = "dynamo_frontend_model_context_length"
ANSWER = 4  # tokens


def probe(target: ProbeTarget) -> ProbeResult:
    told = target.metrics().gauge(LIMIT, model=target.model)
    stated = target.expected.context_length if target.expected is not None else None
    limit = stated or (int(told) if told else None)
    if limit is None:
        return cannot_tell("neither the graph nor the frontend's metrics state the limit")
    if told is not None and int(told) != limit:
        return failed(
            f"the graph says {limit} tokens, the frontend {int(told)}",
            "the workers run with another limit than the graph's",
        )
    served = _ask(target, limit - ANSWER, ANSWER)
    tokens = (served.body.get("usage") or {}).get("total_tokens")
    if served.status != 200 or tokens != limit:
        return failed(
            f"{limit} tokens, prompt and answer: HTTP {served.status}, {tokens} tokens: "
            f"{served.text}"
        )
    # A prompt that is too long by itself: some engines shorten the answer where only both are.
    refused = _ask(target, limit + 1, 1)
    if refused.status == 500 and target.is_mocked:
        return cannot_tell(
            f"{limit} tokens served; a prompt of {limit + 1}: 500, the mocker's own refusal"
        )
    if refused.status != 400:
        return failed(f"a prompt of {limit + 1}: HTTP {refused.status}, not 400: {refused.text}")
    return passed(f"{limit} tokens served, a prompt of {limit + 1} refused with 400")


def _ask(target: ProbeTarget, prompt: int, answer: int) -> ApiResponse:
    body = {"model": target.model, "prompt": target.prompt(prompt), "max_tokens": answer}
    return target.post("/v1/completions", {**body, "ignore_eos": True})
