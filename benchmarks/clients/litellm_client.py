"""Driver of litellm: BASE_URL MODEL."""

from __future__ import annotations

import sys
from typing import Any

import litellm

from clients import common

BASE_URL, MODEL = sys.argv[1:3]
COMMON = {"api_base": BASE_URL, "api_key": "none", "num_retries": 0, "timeout": 300}
litellm.suppress_debug_info = True


def run(request: common.Request) -> common.Result:
    return APIS[request["api"]](request)


def _chat(request: common.Request) -> common.Result:
    messages = [{"role": "user", "content": request["prompt"]}]
    arguments = {"model": f"openai/{MODEL}", "messages": messages, **COMMON, **request["params"]}
    if request.get("stream"):
        return _stream(arguments, request.get("cancel_after"))
    answer = litellm.completion(**arguments)
    return common.chat_choices(answer.choices) | {"usage": common.openai_usage(answer.usage)}


def _stream(arguments: Any, cancel_after: int | None) -> common.Result:
    stream = litellm.completion(**arguments, stream=True, stream_options={"include_usage": True})
    found: list[Any] = []

    def text_of(chunk: Any) -> str | None:
        own = getattr(chunk, "usage", None)
        found.extend([own] if own else [])
        return chunk.choices[0].delta.content if chunk.choices else None

    result = common.streamed(stream, text_of, cancel_after, stream.completion_stream.close)
    return result | {"usage": common.openai_usage(found[-1] if found else None)}


def _completions(request: common.Request) -> common.Result:
    answer = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}",
        prompt=request["prompt"],
        **COMMON,
        **request["params"],
    )
    return {
        "texts": [c.text for c in answer.choices],
        "finish": [c.finish_reason for c in answer.choices],
        "usage": common.openai_usage(answer.usage),
    }


def _responses(request: common.Request) -> common.Result:
    answer = litellm.responses(
        model=f"openai/{MODEL}", input=request["prompt"], **COMMON, **request["params"]
    )
    found = answer.usage
    parts = [part for item in answer.output for part in getattr(item, "content", None) or ()]
    return {
        "texts": ["".join(getattr(part, "text", "") for part in parts)],
        "finish": [answer.status],
        "usage": common.usage(found.input_tokens, found.output_tokens, 0),
    }


APIS = {"chat": _chat, "completions": _completions, "responses": _responses}

if __name__ == "__main__":
    common.serve(run)
