"""A sequence of exactly the context length is served; a longer prompt gets status 400."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ApiResponse, ProbeTarget

LIMIT = "dynamo_frontend_model_context_length"
OUTPUT = 4  # tokens


def probe(target: ProbeTarget) -> ProbeResult:
    exported = target.metrics().gauge(LIMIT, model=target.model)
    stated = target.expected.context_length if target.expected is not None else None
    limit = stated or (int(exported) if exported else None)
    if limit is None:
        return cannot_tell("neither the graph nor the frontend's metrics give the context length")
    if exported is not None and int(exported) != limit:
        return failed(
            f"context length: {limit} tokens in the graph, {int(exported)} in the frontend",
            "Restart the workers with the graph's context length.",
        )
    served = _ask(target, limit - OUTPUT, OUTPUT)
    tokens = (served.body.get("usage") or {}).get("total_tokens")
    if served.status != 200 or tokens != limit:
        return failed(
            f"{limit} tokens of prompt and output: HTTP {served.status}, {tokens} tokens: "
            f"{served.text}"
        )
    # The prompt alone is too long: some engines shorten the output when only the sum is.
    rejected = _ask(target, limit + 1, 1)
    if rejected.status == 500 and target.is_mocked:
        return cannot_tell(
            f"{limit} tokens served; a prompt of {limit + 1} gets status 500, as mockers respond"
        )
    if rejected.status != 400:
        return failed(
            f"a prompt of {limit + 1} tokens: HTTP {rejected.status}, not 400: {rejected.text}"
        )
    return passed(f"{limit} tokens served, a prompt of {limit + 1} rejected with status 400")


def _ask(target: ProbeTarget, prompt: int, output: int) -> ApiResponse:
    body = {"model": target.model, "prompt": target.prompt(prompt), "max_tokens": output}
    return target.post("/v1/completions", {**body, "ignore_eos": True})
