"""The rules of the request adapter: what it refuses, sets, and rewrites."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.local.request_adapter import rules
from penstock.local.request_adapter.errors import (
    CHAT,
    COMPLETIONS,
    RESPONSES,
    Refusal,
    translated,
)
from penstock.local.request_adapter.rules import DEFAULT_LIMIT_HEADER, ENGINES, IGNORED_HEADER

USER = {"role": "user", "content": "Weather?"}
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
TEXT = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}
UNSUPPORTED = "unsupported_parameter"
# Refused by the mocker only: path, body, and the parameter that the error names.
BY_THE_MOCKER = [
    (CHAT, {"n": 2}, "n"),
    (CHAT, {"logprobs": True}, "logprobs"),
    (CHAT, {"logprobs": True, "top_logprobs": 1}, "logprobs"),
    (CHAT, {"tool_choice": "required"}, "tool_choice"),
    (CHAT, {"tool_choice": {"type": "function"}}, "tool_choice"),
    (CHAT, {"response_format": {"type": "json_object"}}, "response_format"),
    (CHAT, {"response_format": SCHEMA}, "response_format"),
    (CHAT, {"guided_regex": "a+"}, "guided_regex"),
    (CHAT, {"messages": IMAGE}, "messages"),
    (COMPLETIONS, {"n": 3}, "n"),
    (COMPLETIONS, {"logprobs": 0}, "logprobs"),
    (RESPONSES, {"text": {"format": {"type": "json_schema"}}}, "text.format"),
    (RESPONSES, {"tool_choice": "required"}, "tool_choice"),
    (RESPONSES, {"input": IMAGE}, "input"),
]
# Refused for every engine, as Dynamo ignores it or answers with a 501, which clients try again.
BY_ALL = [
    (CHAT, {"logit_bias": {"5": 100}}, "logit_bias"),
    (CHAT, {"modalities": ["text", "audio"]}, "modalities"),
    (CHAT, {"audio": {"voice": "a"}}, "audio"),
    (CHAT, {"web_search_options": {}}, "web_search_options"),
    (CHAT, {"functions": [{"name": "f"}]}, "functions"),
    (CHAT, {"function_call": "auto"}, "function_call"),
    (COMPLETIONS, {"echo": True}, "echo"),
    (COMPLETIONS, {"suffix": "x"}, "suffix"),
    (COMPLETIONS, {"best_of": 2}, "best_of"),
    (RESPONSES, {"conversation": "c"}, "conversation"),
    (RESPONSES, {"include": ["message.output_text.logprobs"]}, "include"),
    (RESPONSES, {"max_tool_calls": 2}, "max_tool_calls"),
    (RESPONSES, {"top_logprobs": 2}, "top_logprobs"),
    (RESPONSES, {"text": {"verbosity": "low"}}, "text.verbosity"),
    (RESPONSES, {"n": 2}, "n"),
    (RESPONSES, {"stop": ["a"]}, "stop"),
    (RESPONSES, {"guided_json": {}}, "guided_json"),
    (RESPONSES, {"logit_bias": {"5": 1}}, "logit_bias"),
    (RESPONSES, {"unknown": 0}, "unknown"),
    (RESPONSES, {"input": [USER, {"type": "item_reference", "id": "r"}]}, "input"),
]
# What contradicts itself, which OpenAI refuses as well.
CONTRADICTORY = [
    (CHAT, {"top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
    (CHAT, {"guided_choice": []}, "guided_choice"),
    (CHAT, {"response_format": SCHEMA, "guided_json": {"type": "object"}}, "response_format"),
    (COMPLETIONS, {"guided_choice": []}, "guided_choice"),
]
HARMLESS_EXCEPT_FOR_THE_MOCKER = [
    (CHAT, {"response_format": {"type": "text"}, "guided_json": {"type": "object"}}),
    (CHAT, {"logprobs": True, "top_logprobs": 2}),
    (CHAT, {"guided_choice": ["a"]}),
    (COMPLETIONS, {"n": 2, "best_of": 2}),
]
HARMLESS = [
    (CHAT, {"top_logprobs": 0, "logprobs": None, "guided_choice": None}),
    (CHAT, {"n": 1, "logprobs": False, "tool_choice": "auto", "messages": TEXT}),
    (CHAT, {"response_format": {"type": "text"}, "modalities": ["text"], "logit_bias": {}}),
    (COMPLETIONS, {"echo": False, "suffix": None, "best_of": 1, "logprobs": None}),
    (RESPONSES, {"text": {"format": {"type": "text"}, "verbosity": "medium"}, "include": []}),
    (RESPONSES, {"metadata": {"a": "b"}, "nvext": {}, "n": None, "input": "Hello"}),
]


def refused(path: str, body: dict[str, Any], engine: str) -> Refusal | None:
    verdict = rules.review(path, body, engine)
    return verdict if isinstance(verdict, Refusal) else None


def review(path: str, body: dict[str, Any], engine: str, **options: Any) -> rules.Accepted:
    verdict = rules.review(path, body, engine, **options)
    assert isinstance(verdict, rules.Accepted)
    return verdict


def ignored(path: str, body: dict[str, Any], engine: str, **options: Any) -> str | None:
    return review(path, body, engine, **options).headers.get(IGNORED_HEADER)


@pytest.mark.parametrize(("path", "body", "param"), BY_THE_MOCKER)
def test_a_client_may_accept_that_the_mocker_ignores_a_parameter(
    path: str, body: dict[str, Any], param: str
) -> None:
    verdict = rules.review(path, body, "mocker", accepts_ignored=True)
    if param in ("n", "messages", "input"):  # these change more than the text
        assert isinstance(verdict, Refusal)
    else:
        assert isinstance(verdict, rules.Accepted)
        assert param in verdict.headers[IGNORED_HEADER].split(", ")
        assert verdict.changed == {}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("path", "body", "param", "is_for_all", "code"),
    [
        *((*row, False, UNSUPPORTED) for row in BY_THE_MOCKER),
        *((*row, True, UNSUPPORTED) for row in BY_ALL),
        *((*row, True, None) for row in CONTRADICTORY),
    ],
)
def test_what_an_engine_would_ignore_is_refused(
    path: str, body: dict[str, Any], param: str, is_for_all: bool, code: str | None, engine: str
) -> None:
    refusal = refused(path, body, engine)
    if engine == "vllm" and not is_for_all:
        assert refusal is None
    elif is_for_all or engine == "mocker":
        assert refusal is not None
        assert (refusal.status, refusal.param, refusal.code) == (400, param, code)
        assert param in refusal.message


@pytest.mark.parametrize(
    ("path", "body", "engine"),
    [
        *((*row, "mocker") for row in HARMLESS),
        *((*row, engine) for row in HARMLESS_EXCEPT_FOR_THE_MOCKER for engine in ENGINES[1:]),
    ],
)
def test_what_has_an_effect_is_not_refused(path: str, body: dict[str, Any], engine: str) -> None:
    is_refused = path == COMPLETIONS and engine == "llamacpp"  # n
    assert (refused(path, body, engine) is not None) == is_refused


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("messages", "input"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format", "text.format"),
    ],
)
def test_a_parameter_of_chat_completions_is_refused_with_that_of_responses(
    name: str, instead: str
) -> None:
    refusal = refused(RESPONSES, {"input": "Hello", name: 1}, "llamacpp")
    assert refusal is not None
    assert refusal.param == name
    assert refusal.message.endswith(f"Use '{instead}'.")


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video_url"])
@pytest.mark.parametrize("engine", ["mocker", "llamacpp"])
def test_a_part_that_is_not_text_is_named_with_its_place(kind: str, engine: str) -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": kind}]
    items = [*TEXT, {"role": "user", "content": parts}]
    for path, param in ((CHAT, "messages"), (RESPONSES, "input")):
        refusal = refused(path, {param: items}, engine)
        assert refusal is not None
        assert (refusal.param, refusal.code) == (param, "unsupported_parameter")
        assert f"of type '{kind}' ({param}[1].content[1])" in refusal.message


@pytest.mark.parametrize(
    ("path", "body", "added"),
    [
        (CHAT, {}, {"max_tokens": 512}),
        (CHAT, {"max_tokens": None}, {"max_tokens": 512}),
        (CHAT, {"max_tokens": 0}, {}),  # Dynamo explains that it is too small
        (CHAT, {"max_completion_tokens": 5}, {}),
        (COMPLETIONS, {}, {"max_tokens": 512}),
        (RESPONSES, {}, {"max_output_tokens": 512}),
        (RESPONSES, {"max_output_tokens": 3}, {}),
    ],
)
def test_a_missing_limit_is_set_where_the_graph_has_a_default(
    path: str, body: dict[str, Any], added: dict[str, int]
) -> None:
    for engine in ENGINES:
        accepted = review(path, body, engine, output_limit=512)
        assert accepted.changed == added
        assert accepted.headers == ({DEFAULT_LIMIT_HEADER: "512"} if added else {})
        assert review(path, body, engine) == rules.Accepted()


def test_parameters_without_effect_are_listed() -> None:
    body = {"temperature": 0, "seed": 7, "tools": [{}], "top_p": None, "store": True}
    assert ignored(CHAT, body, "mocker") == "store, temperature, seed, tools"
    assert ignored(CHAT, body, "vllm") == "store"
    assert ignored(CHAT, {"store": False, "tools": []}, "mocker") is None


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_tools_that_the_template_does_not_render_are_listed_unless_a_call_is_required(
    path: str, engine: str
) -> None:
    cases: list[tuple[Any, str | None]] = [
        ({"tools": [{}]}, "tools"),
        ({"tools": [{}], "tool_choice": "auto"}, "tools"),
        ({"tools": [{}], "tool_choice": "required"}, None),
        ({"tools": [{}], "tool_choice": {"type": "function"}}, None),
        ({"tools": []}, None),
    ]
    for body, names in cases:
        assert ignored(path, body, engine, renders_tools=False) == names
        assert ignored(path, body, engine) is None


def test_dynamos_error_for_the_context_length_becomes_openais() -> None:
    details = {"type": "context_length", "limit": 2048, "actual": 60011}
    refusal = translated(CHAT, 400, {"message": "Invalid request", "details": details})
    assert refusal is not None
    assert refusal.code == "context_length_exceeded"
    assert "2048" in refusal.message
    assert "60011" in refusal.message
    for other in ({}, {"details": {}}, {"details": {"type": "context_length"}}, [], None):
        assert translated(CHAT, 400, other) is None


def test_a_workers_error_with_openais_words_for_the_context_length_gets_its_code() -> None:
    words = "This model's maximum context length is 9 tokens. However, the prompt has 12 tokens."
    refusal = translated(COMPLETIONS, 400, {"message": words, "code": 400})
    assert refusal is not None
    assert (refusal.code, refusal.param) == ("context_length_exceeded", "prompt")
    assert refusal.message == words


FUNCTION = {"type": "function", "function": {"name": "ping"}}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TITLED = {"$schema": "a", "title": "Nothing", "description": "No input.", **NOTHING}
FORMAT = {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        *(
            {"parameters": schema}
            for schema in (None, {}, {"type": "object"}, NOTHING | {"required": []})
        ),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_a_function_without_parameters_takes_none(engine: str, parameters: Any) -> None:
    none = NOTHING | {"const": {}}
    chat = review(
        CHAT, {"tools": [{"type": "function", "function": {"name": "p", **parameters}}]}, engine
    )
    assert chat.changed["tools"][0]["function"]["parameters"] == none
    tool = {"type": "function", "name": "p", **parameters}
    assert review(RESPONSES, {"tools": [tool]}, engine).changed["tools"][0]["parameters"] == none
    schema = {"type": "object", "properties": {"a": {}}}
    kept = {"tools": [{"type": "function", "function": {"name": "p", "parameters": schema}}]}
    assert review(CHAT, kept, engine).changed == {}


@pytest.mark.parametrize(
    "body", [FORMAT, {"guided_json": {}}, {"response_format": {"type": "json_schema"}}]
)
def test_optional_tools_are_left_out_if_the_format_excludes_calls(body: dict[str, Any]) -> None:
    """Dynamo would take a JSON object with a name for a call."""
    tools = {"tools": [FUNCTION | {"function": {"name": "p", "parameters": {"type": "string"}}}]}
    accepted = review(CHAT, body | tools, "llamacpp")
    assert accepted.changed == {"tool_choice": "none"}
    assert accepted.headers == {IGNORED_HEADER: "tools"}
    required = review(CHAT, body | tools | {"tool_choice": "required"}, "llamacpp")
    assert required == rules.Accepted(changed={"parallel_tool_calls": False})
    text = {"text": {"format": {"type": "json_schema"}}}
    answer = review(RESPONSES, text | {"tools": [{"type": "web_search"}]}, "vllm")
    assert answer.changed == {"tool_choice": "none"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "ping"}}])
def test_a_required_call_ends_the_output_unless_the_request_allows_several(choice: Any) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [FUNCTION]}
    changed = review(CHAT, body | {"tool_choice": choice}, "vllm").changed
    assert changed["parallel_tool_calls"] is False
    several = body | {"tool_choice": choice, "parallel_tool_calls": True}
    assert "parallel_tool_calls" not in review(CHAT, several, "vllm").changed
    assert "parallel_tool_calls" not in review(CHAT, body, "vllm").changed
