"""Driver of openai-python: BASE_URL MODEL."""

from __future__ import annotations

import sys
from typing import Any

from openai import OpenAI

from clients import common

BASE_URL, MODEL = sys.argv[1:3]
CLIENT: Any = OpenAI(base_url=BASE_URL, api_key="none", max_retries=0, timeout=300)


def run(request: common.Request) -> common.Result:
    return APIS[request["api"]](request)


def _chat(request: common.Request) -> common.Result:
    messages = [{"role": "user", "content": request["prompt"]}]
    arguments = {"model": MODEL, "messages": messages, **request["params"]}
    if request.get("stream"):
        return _stream(arguments, request.get("cancel_after"))
    answer = CLIENT.chat.completions.create(**arguments)
    return common.chat_choices(answer.choices) | {"usage": common.openai_usage(answer.usage)}


def _stream(arguments: Any, cancel_after: int | None) -> common.Result:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = CLIENT.chat.completions.create(**arguments, **options)
    found: list[Any] = []

    def text_of(chunk: Any) -> str | None:
        found.extend([chunk.usage] if chunk.usage else [])
        return chunk.choices[0].delta.content if chunk.choices else None

    result = common.streamed(stream, text_of, cancel_after, stream.close)
    return result | {"usage": common.openai_usage(found[-1] if found else None)}


def _completions(request: common.Request) -> common.Result:
    answer = CLIENT.completions.create(model=MODEL, prompt=request["prompt"], **request["params"])
    return {
        "texts": [c.text for c in answer.choices],
        "finish": [c.finish_reason for c in answer.choices],
        "usage": common.openai_usage(answer.usage),
    }


def _responses(request: common.Request) -> common.Result:
    answer = CLIENT.responses.create(model=MODEL, input=request["prompt"], **request["params"])
    found = answer.usage
    return {
        "texts": [answer.output_text],
        "finish": [answer.status],
        "usage": common.usage(found.input_tokens, found.output_tokens, 0),
    }


APIS = {"chat": _chat, "completions": _completions, "responses": _responses}

if __name__ == "__main__":
    common.serve(run)
