"""The rules of the request adapter: what it refuses, sets, and rewrites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.local.request_adapter.model import Model, read_model
from penstock.local.request_adapter.patterns import in_grammar, nested_repetitions
from penstock.local.request_adapter.prompt import prompt_ids, prompt_text
from penstock.local.request_adapter.rules import (
    CHAT,
    COMPLETIONS,
    ENGINES,
    RESPONSES,
    Verdict,
    context_error,
    unwrapped_error,
)
from penstock.local.request_adapter.rules import review as review_for

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
    (RESPONSES, {"top_logprobs": 2}, "top_logprobs"),
    (RESPONSES, {"text": {"verbosity": "low"}}, "text.verbosity"),
    (RESPONSES, {"n": 2}, "n"),
    (RESPONSES, {"stop": ["a"]}, "stop"),
    (RESPONSES, {"guided_json": {}}, "guided_json"),
    (RESPONSES, {"logit_bias": {"5": 1}}, "logit_bias"),
    (RESPONSES, {"unknown": 0}, "unknown"),
    (CHAT, {"audio": {"voice": "a"}}, "audio"),
]
CONTRADICTORY = [
    (CHAT, {"top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
    (CHAT, {"guided_choice": []}, "guided_choice"),
    (COMPLETIONS, {"guided_choice": []}, "guided_choice"),
]
EMPTY = [{"role": "user", "content": []}]
HARMLESS = [
    (CHAT, {"top_logprobs": 0, "logprobs": None, "guided_choice": None}),
    (CHAT, {"n": 1, "logprobs": False, "tool_choice": "auto", "messages": TEXT}),
    (CHAT, {"response_format": {"type": "text"}, "modalities": ["text"], "logit_bias": {}}),
    (COMPLETIONS, {"echo": False, "suffix": None, "best_of": 1, "logprobs": None}),
    (RESPONSES, {"text": {"format": {"type": "text"}, "verbosity": "medium"}, "include": []}),
    (RESPONSES, {"metadata": {"a": "b"}, "nvext": {}, "n": None, "input": "Hello"}),
]

PLAIN = Model(renders_tools=False, renders_tool_calls=False, vocabulary=100)  # as SmolLM2's


def review(path: str, body: dict[str, Any], engine: str, model: Model | None = None) -> Verdict:
    return review_for(path, body, engine, model or Model())


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
    refusal = review(RESPONSES, {"input": "Hello", name: 1}, "llamacpp").refusal
    assert refusal is not None
    assert refusal.param == name
    assert refusal.message.endswith(f"Use '{instead}'.")


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video_url"])
@pytest.mark.parametrize("engine", ["mocker", "llamacpp"])
def test_a_part_that_is_not_text_is_named_with_its_place(kind: str, engine: str) -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": kind}]
    items = [*TEXT, {"role": "user", "content": parts}]
    for path, param in ((CHAT, "messages"), (RESPONSES, "input")):
        refusal = review(path, {param: items}, engine).refusal
        assert refusal is not None
        assert (refusal.param, refusal.code) == (param, "unsupported_parameter")
        assert f"of type '{kind}' ({param}[1].content[1])" in refusal.message


@pytest.mark.parametrize("engine", ["mocker", "vllm", "llamacpp"])
def test_content_without_parts_is_refused_with_its_place(engine: str) -> None:
    refusal = review(CHAT, {"messages": [*TEXT, *EMPTY]}, engine).refusal
    assert refusal is not None
    assert (refusal.param, refusal.code) == ("messages", None)
    assert refusal.message.startswith("'messages[1].content' is an empty list.")


@pytest.mark.parametrize("prompt", [[1, 100], [[1], [1, 100]]])
def test_a_token_id_outside_the_vocabulary_is_refused(prompt: list[Any]) -> None:
    refusal = review(COMPLETIONS, {"prompt": prompt}, "llamacpp", PLAIN).refusal
    assert refusal is not None
    assert refusal.param == "prompt"
    assert "the token id 100, but the model's vocabulary has the ids 0 to 99" in refusal.message
    assert review(COMPLETIONS, {"prompt": [0, 99]}, "llamacpp", PLAIN).refusal is None
    assert review(COMPLETIONS, {"prompt": prompt}, "llamacpp").refusal is None, "unknown size"
    assert review(COMPLETIONS, {"prompt": prompt}, "mocker", PLAIN).refusal is None


@pytest.mark.parametrize("engine", ["mocker", "vllm", "llamacpp"])
def test_two_constraints_of_the_output_are_refused(engine: str) -> None:
    body = {"response_format": SCHEMA, "guided_json": {"type": "object"}}
    refusal = review(CHAT, body, engine).refusal
    assert refusal is not None
    assert (refusal.param, refusal.code) == ("response_format", None)
    assert "Remove one." in refusal.message
    near = {"response_format": {"type": "text"}, "guided_json": {"type": "object"}}
    assert review(CHAT, near, "llamacpp").refusal is None


def test_best_of_up_to_n_is_left_to_the_engine() -> None:
    assert review(COMPLETIONS, {"n": 2, "best_of": 2}, "vllm").refusal is None


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
        ("/v1/models", {}, {}),
    ],
)
def test_a_missing_limit_is_set_where_the_graph_has_a_default(
    path: str, body: dict[str, Any], added: dict[str, int]
) -> None:
    for engine in ENGINES:
        verdict = review_for(path, body, engine, Model(), 512)
        assert verdict.changed == added
        assert verdict.default_limit == (512 if added else None)
        verdict = review(path, body, engine)
        assert (verdict.changed, verdict.default_limit) == ({}, None)


def test_parameters_without_effect_are_listed() -> None:
    body = {"temperature": 0, "seed": 7, "tools": [{}], "top_p": None, "store": True}
    assert review(CHAT, body, "mocker").ignored == ("store", "temperature", "seed", "tools")
    assert review(CHAT, body, "vllm").ignored == ("store",)
    assert review(CHAT, {"store": False, "tools": []}, "mocker").ignored == ()


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_tools_that_the_template_does_not_render_are_listed_unless_a_call_is_required(
    path: str, engine: str
) -> None:
    body: dict[str, Any] = {"tools": [{}]}
    assert review(path, body, engine, PLAIN).ignored == ("tools",)
    assert review(path, body | {"tool_choice": "auto"}, engine, PLAIN).ignored == ("tools",)
    assert review(path, body | {"tool_choice": "required"}, engine, PLAIN).ignored == ()
    assert review(path, body | {"tool_choice": {"type": "function"}}, engine, PLAIN).ignored == ()
    assert review(path, {"tools": []}, engine, PLAIN).ignored == ()
    assert review(path, body, engine).ignored == ()


USER = {"role": "user", "content": "Weather?"}
CALLS = [{"id": "c", "type": "function", "function": {"name": "w", "arguments": "{}"}}]
RESULT = {"role": "tool", "tool_call_id": "c", "content": "sun"}


@pytest.mark.parametrize("engine", ["mocker", "vllm", "llamacpp"])
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_a_tool_call_without_content_gets_an_empty_one_if_the_template_renders_no_calls(
    content: dict[str, None], engine: str
) -> None:
    call = {"role": "assistant", **content, "tool_calls": CALLS}
    body = {"messages": [USER, call, RESULT], "max_tokens": 5}
    assert review(CHAT, body, engine, PLAIN).changed == {
        "messages": [USER, call | {"content": ""}, RESULT]
    }
    assert review(CHAT, body, engine).changed == {}, "a template with tool calls gets the null"
    call["content"] = "I look it up."
    assert review(CHAT, body, engine, PLAIN).changed == {}


def test_a_refusal_becomes_the_content_of_its_message() -> None:
    answer = {"role": "assistant", "refusal": "No."}
    parts = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    changed = review(CHAT, {"messages": [USER, answer, USER, parts]}, "llamacpp").changed
    text = {"role": "assistant", "content": [{"type": "text", "text": "No."}]}
    assert changed == {"messages": [USER, answer | {"content": "No."}, USER, text]}
    assert review(CHAT, {"messages": [USER, {"role": "user"}]}, "llamacpp").changed == {}


def test_the_calls_in_an_input_become_one_empty_message_if_the_template_renders_none() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "sun"}
    empty = {"role": "assistant", "content": ""}
    body = {"input": [USER, call, call, result]}
    assert review(RESPONSES, body, "llamacpp", PLAIN).changed == {"input": [USER, empty, result]}
    assert review(RESPONSES, body, "llamacpp").changed == {}
    answer = {"role": "assistant", "content": "I look it up."}
    body = {"input": [USER, answer, call, result]}
    assert review(RESPONSES, body, "llamacpp", PLAIN).changed == {"input": [USER, answer, result]}
    assert review(RESPONSES, {"input": "Weather?"}, "llamacpp", PLAIN).changed == {}
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert review(RESPONSES, {"input": [USER, refused]}, "llamacpp", PLAIN).changed == {}


def test_the_facts_about_a_model_are_read_from_its_folder(tmp_path: Path) -> None:
    assert read_model(None) == read_model(tmp_path) == Model()
    (tmp_path / "config.json").write_text('{"vocab_size": 100}')
    configuration = tmp_path / "tokenizer_config.json"
    configuration.write_text('{"chat_template": "{{ messages }}"}')
    assert read_model(tmp_path) == PLAIN
    named = [{"name": "tool_use", "template": "{{ tools }}{{ message.tool_calls }}"}]
    configuration.write_text(json.dumps({"chat_template": named}))
    assert read_model(tmp_path) == Model(vocabulary=100)
    (tmp_path / "chat_template.jinja").write_text("{{ tools }}")
    assert read_model(tmp_path) == Model(renders_tool_calls=False, vocabulary=100)
    other = tmp_path / "other.jinja"
    assert read_model(tmp_path, other) == Model(vocabulary=100), "a missing template is unknown"
    other.write_text("{{ messages }}")
    assert read_model(tmp_path, other) == PLAIN


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


FUNCTION = {"type": "function", "function": {"name": "ping"}}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TITLED = {"$schema": "a", "title": "Nothing", "description": "No input.", **NOTHING}
FORMAT = {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        *(
            {"parameters": one}
            for one in (None, {}, {"type": "object"}, NOTHING | {"required": []})
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
    given = {"type": "object", "properties": {"a": {}}}
    kept = {"tools": [{"type": "function", "function": {"name": "p", "parameters": given}}]}
    assert review(CHAT, kept, engine).changed == {}


@pytest.mark.parametrize(
    "body", [FORMAT, {"guided_json": {}}, {"response_format": {"type": "json_schema"}}]
)
def test_optional_tools_are_left_out_if_the_format_excludes_calls(body: dict[str, Any]) -> None:
    """Dynamo would take a JSON object with a name for a call."""
    tools = {"tools": [FUNCTION | {"function": {"name": "p", "parameters": {"type": "string"}}}]}
    verdict = review(CHAT, body | tools, "llamacpp")
    assert verdict.changed == {"tool_choice": "none"}
    assert verdict.ignored == ("tools",)
    required = review(CHAT, body | tools | {"tool_choice": "required"}, "llamacpp")
    assert (required.changed, required.ignored) == ({"parallel_tool_calls": False}, ())
    text = {"text": {"format": {"type": "json_schema"}}}
    answer = review(RESPONSES, text | {"tools": [{"type": "web_search"}]}, "vllm")
    assert answer.changed == {"tool_choice": "none"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"functions": [{"name": "f"}]}),
        (CHAT, {"function_call": "auto"}),
        (RESPONSES, {"max_tool_calls": 2}),
        (RESPONSES, {"input": [USER, {"type": "item_reference", "id": "r"}]}),
    ],
)
def test_what_dynamo_never_serves_is_a_400(path: str, body: dict[str, Any]) -> None:
    for engine in ("mocker", "vllm", "llamacpp"):
        refusal = review(path, body, engine).refusal
        assert refusal is not None
        assert (refusal.status, refusal.code) == (400, "unsupported_parameter")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "ping"}}])
def test_a_required_call_ends_the_output_unless_the_request_allows_several(choice: Any) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [FUNCTION]}
    changed = review(CHAT, body | {"tool_choice": choice}, "vllm").changed
    assert changed["parallel_tool_calls"] is False
    several = body | {"tool_choice": choice, "parallel_tool_calls": True}
    assert "parallel_tool_calls" not in review(CHAT, several, "vllm").changed
    assert "parallel_tool_calls" not in review(CHAT, body, "vllm").changed


@pytest.mark.parametrize(
    ("pattern", "repetitions"),
    [
        ("^(.{1,100}){1,100}$", 10_000),
        ("^.{1,10000}$", 1),
        ("^([A-Za-z]{1,20} ?){1,50}$", 1000),
        ("(.+){1,1000}", 10_000),
        ("((a{1,2}){3}){4}", 24),
        ("(.{30}){40}", 1),  # an engine has no choice in it
        ("(.{1,30}){40}", 1200),
        ("(a{1,5}|b{1,7}){1,9}", 108),
        ("a{1,40}{1,40}", 1600),
        ("([)(]{1,50}){1,50}", 2500),
        (r"(\(.{1,50}\)){1,50}", 2500),
        ("(.{1,}){1,100}", 1100),
        (r"^\d{4}-\d{2}-\d{2}(T\d{2}(:\d{2}){1,2})?$", 1),
        ("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==)?$", 1),
        ('"(.{1,100}){1,100}"', 10_000),
        ("((.{1,30}|b)(.{1,20}|c)){1,33}", 1650),
        ("(a{1,9}b?c){2}(d{1,9}){3}", 27),
        ("(.{1,9" + "9" * 90 + "}){1,9}", 10**9),
        ("(" * 1000 + "{1,9}" * 1000, 10**9),
        (")){5}){1,2}", 1),
    ],
)
def test_repetitions_within_each_other_are_counted(pattern: str, repetitions: int) -> None:
    assert nested_repetitions(pattern) == repetitions


@pytest.mark.parametrize(
    ("grammar", "repetitions"),
    [
        ('root ::= ("{9}" [a-z]{1,100}){1,100}', 10_000),
        ('root ::= "(a{1,100}){1,100}"', 1),
        ("root ::= a{1,100}\na ::= b{1,100}\nb ::= [^x]\n", 10_000),
        ("b ::= c{1,10}\na ::= b{1,10}\nroot ::= a{1,10} | b\nc ::= [0-9]\n", 1000),
        ("root ::= word{1,100} number{1,100}\nword ::= [a-z]+\nnumber ::= [0-9]\n", 1000),
        ('root ::= "a" root | [a-z]{1,100}', 1),
    ],
)
def test_rules_of_a_grammar_repeat_each_other(grammar: str, repetitions: int) -> None:
    assert in_grammar(grammar) == repetitions


COSTLY = {"type": "string", "pattern": "^(.{1,100}){1,100}$"}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"items": COSTLY}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"anyOf": [COSTLY]}}}


@pytest.mark.parametrize(
    ("path", "param", "value"),
    [
        (CHAT, "response_format", FORMAT),
        (CHAT, "tools", [TOOL]),
        (CHAT, "guided_json", {"patternProperties": {COSTLY["pattern"]: {}}}),
        (CHAT, "guided_json", json.dumps(COSTLY)),
        (CHAT, "guided_regex", COSTLY["pattern"]),
        (CHAT, "structural_tag", {"format": {"grammar": "root ::= ([a-z]{1,100}){1,100}"}}),
        (COMPLETIONS, "guided_whitespace_pattern", COSTLY["pattern"]),
        (COMPLETIONS, "guided_grammar", "root ::= ([a-z]{1,100}){1,100}"),
        (RESPONSES, "text", {"format": FORMAT["json_schema"]}),
    ],
)
def test_vllm_gets_no_pattern_that_it_would_compile_for_minutes(
    path: str, param: str, value: object
) -> None:
    prompts = {CHAT: ("messages", []), COMPLETIONS: ("prompt", "a"), RESPONSES: ("input", "a")}
    body = dict([("model", "m"), prompts[path], (param, value)])
    refusal = review(path, body, "vllm", Model()).refusal
    assert refusal is not None
    assert (refusal.param, refusal.status, "{1,100}" in refusal.message) == (param, 400, True)
    shorter = json.loads(json.dumps(body).replace("1,100", "1,10"))
    assert review(path, shorter, "vllm", Model()).refusal is None
