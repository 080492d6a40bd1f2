"""The rules of the request adapter: what it refuses, sets, and rewrites."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.local.request_adapter.rules import (
    CHAT,
    COMPLETIONS,
    DEFAULT_MAX_TOKENS,
    RESPONSES,
    context_error,
    prompt_ids,
    prompt_text,
    review,
    unwrapped_error,
)

IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
TEXT = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}
REFUSED_BY_THE_MOCKER = [
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
REFUSED_BY_ALL = [
    (CHAT, {"logit_bias": {"5": 100}}, "logit_bias"),
    (CHAT, {"modalities": ["text", "audio"]}, "modalities"),
    (CHAT, {"web_search_options": {}}, "web_search_options"),
    (COMPLETIONS, {"echo": True}, "echo"),
    (COMPLETIONS, {"suffix": "x"}, "suffix"),
    (COMPLETIONS, {"best_of": 2}, "best_of"),
    (RESPONSES, {"conversation": "c"}, "conversation"),
    (RESPONSES, {"include": ["message.output_text.logprobs"]}, "include"),
]
CONTRADICTORY = [
    (CHAT, {"top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
    (CHAT, {"guided_choice": []}, "guided_choice"),
    (COMPLETIONS, {"guided_choice": []}, "guided_choice"),
]
HARMLESS = [
    (CHAT, {"top_logprobs": 0, "logprobs": None, "guided_choice": None}),
    (CHAT, {"n": 1, "logprobs": False, "tool_choice": "auto", "messages": TEXT}),
    (CHAT, {"response_format": {"type": "text"}, "modalities": ["text"], "logit_bias": {}}),
    (COMPLETIONS, {"echo": False, "suffix": None, "best_of": 1, "logprobs": None}),
    (RESPONSES, {"text": {"format": {"type": "text"}}, "include": []}),
]


@pytest.mark.parametrize(("path", "body", "param"), REFUSED_BY_THE_MOCKER)
def test_what_only_the_mocker_would_ignore_is_refused_for_the_mocker_alone(
    path: str, body: dict[str, Any], param: str
) -> None:
    refusal = review(path, body, "mocker").refusal
    assert refusal is not None
    assert (refusal.status, refusal.param, refusal.code) == (400, param, "unsupported_parameter")
    assert repr(param) in refusal.message
    assert review(path, body, "vllm").refusal is None


@pytest.mark.parametrize(("path", "body", "param"), CONTRADICTORY)
@pytest.mark.parametrize("engine", ["mocker", "vllm", "llamacpp"])
def test_what_contradicts_itself_is_refused_for_every_engine(
    path: str, body: dict[str, Any], param: str, engine: str
) -> None:
    refusal = review(path, body, engine).refusal
    assert refusal is not None
    assert (refusal.status, refusal.param, refusal.code) == (400, param, None)
    assert repr(param) in refusal.message
    near = {"logprobs": True, "top_logprobs": 2} if param == "top_logprobs" else {param: ["a"]}
    found = review(path, near, engine).refusal
    assert found is None or found.code == "unsupported_parameter"


@pytest.mark.parametrize(("path", "body", "param"), REFUSED_BY_ALL)
@pytest.mark.parametrize("engine", ["mocker", "vllm", "llamacpp"])
def test_what_dynamo_ignores_is_refused_for_every_engine(
    path: str, body: dict[str, Any], param: str, engine: str
) -> None:
    refusal = review(path, body, engine).refusal
    assert refusal is not None
    assert refusal.param == param


@pytest.mark.parametrize(("path", "body"), HARMLESS)
def test_a_default_value_is_not_refused(path: str, body: dict[str, Any]) -> None:
    assert review(path, body, "mocker").refusal is None


def test_best_of_up_to_n_is_left_to_the_engine() -> None:
    assert review(COMPLETIONS, {"n": 2, "best_of": 2}, "vllm").refusal is None


@pytest.mark.parametrize(
    ("path", "body", "added"),
    [
        (CHAT, {}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        (CHAT, {"max_tokens": None}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        (CHAT, {"max_tokens": 0}, None),  # Dynamo explains that it is too small
        (CHAT, {"max_completion_tokens": 5}, None),
        (COMPLETIONS, {}, {"max_tokens": DEFAULT_MAX_TOKENS}),
        (RESPONSES, {}, {"max_output_tokens": DEFAULT_MAX_TOKENS}),
        (RESPONSES, {"max_output_tokens": 3}, None),
        ("/v1/models", {}, None),
    ],
)
def test_a_missing_limit_is_set_for_the_mocker_only(
    path: str, body: dict[str, Any], added: dict[str, int] | None
) -> None:
    assert review(path, body, "mocker").added == added
    assert review(path, body, "vllm").added is None


def test_parameters_without_effect_are_listed() -> None:
    body = {"temperature": 0, "seed": 7, "tools": [{}], "top_p": None, "store": True}
    assert review(CHAT, body, "mocker").ignored == ("store", "temperature", "seed", "tools")
    assert review(CHAT, body, "vllm").ignored == ("store",)
    assert review(CHAT, {"store": False, "tools": []}, "mocker").ignored == ()


def test_dynamos_error_for_the_context_length_becomes_openais() -> None:
    details = {"type": "context_length", "limit": 2048, "actual": 60011}
    refusal = context_error(CHAT, {"message": "Invalid request", "details": details})
    assert refusal is not None
    assert refusal.code == "context_length_exceeded"
    assert "2048" in refusal.message
    assert "60011" in refusal.message
    for other in ({}, {"details": {}}, {"details": {"type": "context_length"}}, [], None):
        assert context_error(CHAT, other) is None


def test_a_workers_error_with_openais_words_for_the_context_length_gets_its_code() -> None:
    words = "This model's maximum context length is 9 tokens. However, the prompt has 12 tokens."
    refusal = unwrapped_error(COMPLETIONS, 400, {"message": words, "code": 400})
    assert refusal is not None
    assert (refusal.code, refusal.param) == ("context_length_exceeded", "prompt")
    assert refusal.message == words


def test_the_prompt_of_a_request_is_found_in_every_form() -> None:
    assert prompt_text({"messages": [*TEXT, {"role": "user", "content": "you"}]}) == "Hello\nyou"
    assert prompt_text({"prompt": ["a", "b"]}) == "a\nb"
    assert prompt_text({"input": "Hello"}) == "Hello"
    assert prompt_ids({"prompt": [1, 2, 3]}) == 3
    assert prompt_ids({"prompt": [[1], [1, 2]]}) == 2
    assert prompt_ids({"prompt": "a"}) == 0
