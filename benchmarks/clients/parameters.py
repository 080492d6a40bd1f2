"""What an endpoint does with each request parameter, measured with openai-python.

`tests/e2e/test_openai.py` measures the mocker in CI; `client_matrix.py` measures every engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from openai import APIStatusError, OpenAI

HONORED, IGNORED = "honored", "ignored"
STATED = "ignored, stated in a header"
HEADER = "x-penstock-ignored"
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "enum": [1, 2]}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}
NAMED = {"type": "function", "function": {"name": "f"}}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "enum": ["x", "y"]}},
    "required": ["a"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
RESPONSES_SCHEMA = {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}
HELLO = [{"role": "user", "content": "Hello"}]
IMAGE = "data:image/png;base64,iVBORw0KGgo="


class Endpoint:
    """The requests of the table, as short calls."""

    def __init__(self, base_url: str, model: str, context_length: int) -> None:
        self.client: Any = OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=300)
        self.model, self.context_length = model, context_length

    def chat(self, text: Any = "Hello", **options: Any) -> Any:
        messages = [{"role": "user", "content": text}]
        return self.client.chat.completions.create(model=self.model, messages=messages, **options)

    def completion(self, prompt: Any = "Hello", **options: Any) -> Any:
        return self.client.completions.create(model=self.model, prompt=prompt, **options)

    def response(self, **options: Any) -> Any:
        return self.client.responses.create(model=self.model, input="Hello", **options)

    def is_repeatable(self, name: str, **options: Any) -> bool | str:
        """Whether two requests with the parameter have the same text; else whether the header says
        that it has no effect."""
        create = self.client.chat.completions.with_raw_response.create
        raw = [create(model=self.model, messages=HELLO, max_tokens=16, **options) for _ in range(2)]
        if len({r.parse().choices[0].message.content for r in raw}) == 1:
            return True
        return STATED if name in raw[0].headers.get(HEADER, "").split(", ") else False

    def is_stopped(self) -> bool:
        (choice,) = self.chat("Hello, tell me a story.", max_tokens=400, stop=["e"]).choices
        # An "e" in the first token leaves no text, and `content` is null.
        return choice.finish_reason == "stop" and "e" not in (choice.message.content or "")

    def calls(self, choice: Any) -> bool:
        options = {"tools": [TOOL], "tool_choice": choice, "temperature": 0}
        message = self.chat("Call f.", max_tokens=200, **options).choices[0].message
        found = message.tool_calls or ()
        return bool(found) and all(json.loads(c.function.arguments)["a"] in (1, 2) for c in found)

    def offers(self) -> bool | str:
        """Whether the prompt contains the tools of `auto`: a model may always reply with text."""
        create = self.client.chat.completions.with_raw_response.create
        raw = create(model=self.model, messages=HELLO, max_tokens=16, tools=[TOOL])
        if "tools" in raw.headers.get(HEADER, "").split(", "):
            return STATED
        return bool(raw.parse().usage.prompt_tokens > self.prompt_tokens(HELLO) + 20)

    def reads_results(self) -> bool:
        """Whether the prompt contains an earlier call and its result."""
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        called = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}]
        result = {"role": "tool", "tool_call_id": "c1", "content": " ".join(["sunny"] * 20)}
        before = self.prompt_tokens(HELLO, tools=[TOOL])
        after = self.prompt_tokens([*called, result], tools=[TOOL])
        return after > before + 30  # 20 of the result, at least 10 of the call

    def prompt_tokens(self, messages: Any, **options: Any) -> int:
        create = self.client.chat.completions.create
        answer = create(model=self.model, messages=messages, max_tokens=1, **options)
        return int(answer.usage.prompt_tokens)

    def guides(self, **options: Any) -> bool:
        """Dynamo's own constraint of the output: a vowel, nine times."""
        found = self.chat("Hello", max_tokens=40, temperature=0, extra_body=options)
        text = found.choices[0].message.content
        return len(text) == 9 and set(text) <= set("ae")

    def is_json(self, response_format: Any) -> bool:
        """A small model may never end an object without a schema. Then its beginning counts."""
        options = {"max_tokens": 60, "temperature": 0, "response_format": response_format}
        (choice,) = self.chat("Answer with a short JSON object.", **options).choices
        text, is_cut = choice.message.content, choice.finish_reason == "length"
        return _is_object(text) or (is_cut and begins_object(text))

    def response_is_json(self) -> bool:
        answer = self.response(max_output_tokens=300, temperature=0, text=RESPONSES_SCHEMA)
        return _is_object(answer.output_text)

    def response_calls(self) -> bool:
        tool = {"type": "function", **TOOL["function"]}  # type: ignore[dict-item]
        options = {"tools": [tool], "tool_choice": "required", "temperature": 0}
        answer = self.response(max_output_tokens=200, **options)
        return any(item.type == "function_call" for item in answer.output)

    def streams(self) -> bool:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        return bool(list(self.chat(max_tokens=5, **options))[-1].usage.completion_tokens == 5)

    def is_shortened(self) -> bool | str:
        prompt = [5] * (self.context_length - 32)
        usage = self.completion(prompt, max_tokens=99).usage
        return (
            "shortened to the context length"
            if usage.total_tokens <= self.context_length
            else False
        )

    def is_unlimited(self, stream: Any, text_of: Callable[[Any], str | None]) -> bool:
        """Whether more than 16 tokens come, OpenAI's old default, or the model ends before. Leaves
        the stream then: a story may fill the context."""
        count = 0
        for chunk in stream:
            count += bool(chunk.choices and text_of(chunk))
            if count > 16:
                stream.close()
                return True
        return chunk.choices[0].finish_reason == "stop" if chunk.choices else False


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def begins_object(text: str) -> bool:
    """Whether the text is a JSON object that is cut: what is wrong with it is its end."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        is_at_end = error.pos >= len(text) - 1 or error.msg.startswith("Unterminated string")
        return text.lstrip().startswith("{") and is_at_end
    return False


def _picture() -> list[dict[str, Any]]:
    return [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": IMAGE}}]


# Row → whether the parameter is honored, or another result.
PARAMETERS: Mapping[str, Callable[[Endpoint], bool | str]] = {
    "chat, `max_tokens`": lambda e: e.chat(max_tokens=5).usage.completion_tokens <= 5,
    "chat, `max_completion_tokens`": (
        lambda e: e.chat(max_completion_tokens=5).usage.completion_tokens <= 5
    ),
    "chat, no limit of the output": lambda e: e.is_unlimited(
        e.chat("Tell me a story.", stream=True), lambda chunk: chunk.choices[0].delta.content
    ),
    "chat, `stream` with `include_usage`": Endpoint.streams,
    "chat, prompt above the context length": lambda e: bool(
        e.chat("Hello " * e.context_length, max_tokens=5)
    ),
    "chat, `stop`": Endpoint.is_stopped,
    "chat, `n`": lambda e: len(e.chat(max_tokens=5, n=2).choices) == 2,
    "chat, `logprobs`": lambda e: bool(e.chat(max_tokens=5, logprobs=True).choices[0].logprobs),
    "chat, `seed`": lambda e: e.is_repeatable("seed", seed=1),
    "chat, `temperature` of 0": lambda e: e.is_repeatable("temperature", temperature=0),
    "chat, `logit_bias`": lambda e: bool(e.chat(max_tokens=5, logit_bias={"5": 100})),
    "chat, `tools` with `tool_choice` of `auto`": Endpoint.offers,
    "chat, a tool call and its result": Endpoint.reads_results,
    "chat, `tools` with `tool_choice` of `required`": lambda e: e.calls("required"),
    "chat, `tools` with a named `tool_choice`": lambda e: e.calls(NAMED),
    "chat, `response_format` of `json_object`": lambda e: e.is_json({"type": "json_object"}),
    "chat, `response_format` of `json_schema`": lambda e: e.is_json(JSON_SCHEMA),
    "chat, `guided_regex`": lambda e: e.guides(guided_regex="[ae]{9}"),
    "chat, an invalid `guided_grammar`": lambda e: e.guides(guided_grammar="root ::= ("),
    "chat, `min_tokens`": lambda e: (
        e.chat("Say yes.", max_tokens=60, extra_body={"min_tokens": 50}).usage.completion_tokens
        >= 50
    ),
    "chat, an unknown parameter": lambda e: bool(e.chat(extra_body={"unknown": 1})),
    "chat, an unknown model": lambda e: bool(
        e.client.chat.completions.create(model="unknown", messages=HELLO)
    ),
    "chat, an image": lambda e: bool(e.chat(_picture(), max_tokens=5)),
    "chat, `modalities` with `audio`": lambda e: bool(
        e.chat(max_tokens=5, modalities=["text", "audio"]).choices[0].message.audio
    ),
    "completions, `max_tokens`": lambda e: e.completion(max_tokens=5).usage.completion_tokens <= 5,
    "completions, `max_tokens` above the rest of the context": Endpoint.is_shortened,
    "completions, no limit of the output": lambda e: e.is_unlimited(
        e.completion("Once upon a time", stream=True), lambda chunk: chunk.choices[0].text
    ),
    "completions, `n`": lambda e: len(e.completion(max_tokens=5, n=2).choices) == 2,
    "completions, `logprobs`": (
        lambda e: bool(e.completion(max_tokens=5, logprobs=2).choices[0].logprobs)
    ),
    "completions, `echo`": (
        lambda e: e.completion(max_tokens=5, echo=True).choices[0].text.startswith("Hello")
    ),
    "completions, `suffix`": lambda e: bool(e.completion(max_tokens=5, suffix="x")),
    "completions, `best_of`": lambda e: bool(e.completion(max_tokens=5, best_of=2)),
    "responses, `max_output_tokens`": (
        lambda e: e.response(max_output_tokens=16).usage.output_tokens <= 16
    ),
    "responses, no limit of the output": lambda e: bool(e.response(temperature=0).output_text),
    "responses, `tools` with `tool_choice` of `required`": Endpoint.response_calls,
    "responses, `text.format` of `json_schema`": Endpoint.response_is_json,
    "responses, `conversation`": lambda e: bool(
        e.response(max_output_tokens=16, conversation="c").conversation
    ),
    "responses, `previous_response_id`": lambda e: bool(
        e.response(max_output_tokens=16, previous_response_id="resp_1")
    ),
    "embeddings": lambda e: bool(e.client.embeddings.create(model=e.model, input="Hello")),
}


def openai_error(text: str) -> dict[str, Any] | None:
    """The error of a response body in OpenAI's format. openai-python accepts others too."""
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    has_all = isinstance(error, dict) and set(error) == {"message", "type", "param", "code"}
    is_text = has_all and isinstance(error["code"], str | None)
    return error if is_text and error["message"] else None


def measure(endpoint: Endpoint, request: str) -> str:
    """The table's entry: honored, ignored, another result, or an error's status and code."""
    try:
        measured = PARAMETERS[request](endpoint)
    except APIStatusError as error:
        body = openai_error(error.response.text)
        if body is None:
            return f"{error.status_code} not in OpenAI's format"
        code = body["code"]
        return f"{error.status_code} `{code}`" if isinstance(code, str) else str(error.status_code)
    if isinstance(measured, bool):
        return HONORED if measured else IGNORED
    return measured
