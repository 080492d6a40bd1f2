"""A model that is not served is a clean 404."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, failed, passed
from penstock.verify.target import ProbeTarget

NAME = "penstock/no-such-model"


def probe(target: ProbeTarget) -> ProbeResult:
    for path, prompt in (
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        answer = target.post(path, {"model": NAME, "max_tokens": 1, **prompt})
        if answer.status != 404 or not answer.body:
            return failed(
                f"{path}: HTTP {answer.status}: {answer.text}",
                "something before the frontend answers in its place",
            )
    return passed("404 with a JSON body, completions and chat")
