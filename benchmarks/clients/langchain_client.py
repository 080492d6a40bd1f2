"""Driver of langchain-openai: BASE_URL MODEL."""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAI

from clients import common

BASE_URL, MODEL = sys.argv[1:3]
COMMON = {"base_url": BASE_URL, "api_key": "none", "max_retries": 0, "timeout": 300}
AT_CALL = ("stop", "tools", "tool_choice", "response_format")  # of a call, not of the model


def run(request: common.Request) -> common.Result:
    return APIS[request["api"]](request)


def _model(params: common.Request, **options: Any) -> Any:
    of_the_model = {k: v for k, v in params.items() if k not in AT_CALL}
    return ChatOpenAI(model=MODEL, **COMMON, **of_the_model, **options)


def _chat(request: common.Request) -> common.Result:
    params = request["params"]
    model = _model(params)
    if request.get("stream"):
        return _stream(model, request)
    if "response_format" in params:
        schema = params["response_format"]["json_schema"]
        # Its own way to structured outputs; a title is what it calls the schema's name.
        titled = {"title": schema["name"], "description": schema["name"], **schema["schema"]}
        bound = model.with_structured_output(titled, method="json_schema", include_raw=True)
        return _described([bound.invoke(request["prompt"])["raw"]])
    if "tools" in params:
        choice = params["tool_choice"]
        name = choice if isinstance(choice, str) else choice["function"]["name"]
        bound = model.bind_tools(params["tools"], tool_choice=name)
        return _described([bound.invoke(request["prompt"])])
    if "n" in params:
        (generations,) = model.generate([[HumanMessage(request["prompt"])]]).generations
        return _described([generation.message for generation in generations])
    return _described([model.invoke(request["prompt"], stop=params.get("stop"))])


def _described(messages: list[Any]) -> common.Result:
    meta = [message.response_metadata for message in messages]
    content = [(m.get("logprobs") or {}).get("content") or () for m in meta]
    return {
        "texts": [message.text for message in messages],
        "finish": [m.get("finish_reason") or m.get("status") for m in meta],
        "calls": [[_call(c) for c in message.tool_calls] for message in messages],
        "logprobs": [[[p["logprob"], len(p["top_logprobs"])] for p in c] for c in content],
        "usage": _usage(messages[0].usage_metadata),
    }


def _call(found: Any) -> common.Result:
    return common.call(found["name"], json.dumps(found["args"]))


def _usage(found: Any) -> common.Result | None:
    if found is None:
        return None
    cached = found.get("input_token_details", {}).get("cache_read")
    return common.usage(found["input_tokens"], found["output_tokens"], cached)


def _stream(model: Any, request: common.Request) -> common.Result:
    stream = model.stream(request["prompt"], stream_usage=True)
    found: list[Any] = []

    def text_of(chunk: Any) -> str:
        found.extend([chunk.usage_metadata] if chunk.usage_metadata else [])
        return str(chunk.text)

    result = common.streamed(stream, text_of, request.get("cancel_after"), stream.close)
    return result | {"usage": _usage(found[-1] if found else None)}


def _completions(request: common.Request) -> common.Result:
    model = OpenAI(model=MODEL, **COMMON, **request["params"])
    answer = model.generate([request["prompt"]])
    (generations,) = answer.generations
    found = answer.llm_output["token_usage"]
    return {
        "texts": [generation.text for generation in generations],
        "finish": [generation.generation_info["finish_reason"] for generation in generations],
        "usage": common.usage(found["prompt_tokens"], found["completion_tokens"], 0),
    }


def _responses(request: common.Request) -> common.Result:
    limit = request["params"]["max_output_tokens"]
    return _described(
        [_model({"max_tokens": limit}, use_responses_api=True).invoke(request["prompt"])]
    )


APIS = {"chat": _chat, "completions": _completions, "responses": _responses}

if __name__ == "__main__":
    common.serve(run)
