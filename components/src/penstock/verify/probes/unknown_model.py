"""A request for an unknown model gets status 404 with a JSON body."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, failed, passed
from penstock.verify.target import ProbeTarget

NAME = "penstock/no-such-model"


def probe(target: ProbeTarget) -> ProbeResult:
    for path, prompt in (
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        response = target.post(path, {"model": NAME, "max_tokens": 1, **prompt})
        if response.status != 404 or not response.body:
            return failed(
                f"{path}: HTTP {response.status}: {response.text}",
                "A proxy in front of the frontend responds instead of it.",
            )
    return passed("status 404 with a JSON body, for completions and chat")
