"""A request of Dynamo's frontend, in llama.cpp's words."""

from __future__ import annotations

from typing import Any

import pytest
from dynamo.llm.exceptions import InvalidArgument

from penstock.llamacpp.config import Sampling
from penstock.llamacpp.request import Asked, read_request

DEFAULTS = Sampling(temp=0.2, top_k=40, top_p=0.9, min_p=0.05, repeat_penalty=1.1)
CONTEXT = 10


def read(
    prompt: tuple[int, ...] = (1, 2, 3), *, defaults: Sampling = DEFAULTS, **sections: Any
) -> Asked:
    return read_request({"token_ids": prompt, **sections}, CONTEXT, defaults)


def sampled(**options: Any) -> dict[str, Any]:
    return dict(read(sampling_options=options).body)


def guided(**fields: Any) -> Asked:
    return read(sampling_options={"guided_decoding": fields})


def test_without_parameters_the_graphs_defaults_apply() -> None:
    asked = read()
    assert asked.body == {
        "temperature": 0.2,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": False,
    }
    assert (asked.max_tokens, asked.top_logprobs) == (CONTEXT - 3, None)
    assert not asked.is_constrained


@pytest.mark.parametrize(
    ("name", "value", "llamacpp_name"),
    [
        ("temperature", 0.0, "temperature"),
        ("temperature", 1.5, "temperature"),
        ("top_p", 0.5, "top_p"),
        ("top_k", 7, "top_k"),
        ("min_p", 0.3, "min_p"),
        ("presence_penalty", -0.5, "presence_penalty"),
        ("frequency_penalty", 0.75, "frequency_penalty"),
        ("repetition_penalty", 1.3, "repeat_penalty"),
        ("seed", 42, "seed"),
    ],
)
def test_a_sampling_parameter_is_passed_on(name: str, value: float, llamacpp_name: str) -> None:
    without, with_it = sampled(), sampled(**{name: value})
    assert with_it == without | {llamacpp_name: value}


def test_values_that_llama_cpp_would_read_differently_are_converted() -> None:
    assert sampled(top_k=-1)["top_k"] == 0
    # 2**32 - 1 is llama.cpp's request for a random seed.
    seeds = [sampled(seed=number)["seed"] for number in (-1, 2**32 - 1, 2**32, 2**63 - 1, -(2**63))]
    assert all(0 <= seed < 2**32 - 1 for seed in seeds)


@pytest.mark.parametrize(("asked", "limit"), [(None, 7), (1, 1), (7, 7), (8, 7), (1000, 7)])
def test_max_tokens_end_with_the_context(asked: int | None, limit: int) -> None:
    assert read(stop_conditions={"max_tokens": asked}).max_tokens == limit


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1, 50])
def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(length: int) -> None:
    with pytest.raises(InvalidArgument, match=rf"length is 10 tokens.* has {length} tokens"):
        read(tuple(range(length)))
    assert read(tuple(range(CONTEXT - 1))).max_tokens == 1


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"sampling_options": {"n": 2}}, "n is 2"),
        ({"sampling_options": {"best_of": 3}}, "best_of is 3"),
        ({"stop_conditions": {"min_tokens": 4}}, "min_tokens"),
        ({"output_options": {"prompt_logprobs": 0}}, "echo"),
        ({"sampling_options": {"guided_decoding": {"regex": "a+"}}}, "by regex"),
        ({"sampling_options": {"guided_decoding": {"structural_tag": {}}}}, "no format"),
        ({"sampling_options": {"guided_decoding": {"json": {}, "choice": ["a"]}}}, "choice, json"),
        ({"sampling_options": {"guided_decoding": {"json": '{"type":'}}}, "not JSON"),
        ({"sampling_options": {"guided_decoding": {"json": "[" * 10_000}}}, "not JSON"),
        ({"sampling_options": {"guided_decoding": {"choice": []}}}, "no choices"),
        (
            {"sampling_options": {"guided_decoding": {"json": {}, "whitespace_pattern": " "}}},
            "guided_whitespace_pattern",
        ),
    ],
)
def test_what_llama_cpp_cannot_do_is_refused_by_name(
    sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(**sections)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="empty"):
        read(())


def test_neutral_values_are_accepted() -> None:
    neutral = {"n": 1, "best_of": 1, "guided_decoding": {"json": None, "regex": None}}
    assert read(sampling_options=neutral, stop_conditions={"min_tokens": 0}).body == read().body


def test_stop_tokens_are_those_of_the_request_and_the_model() -> None:
    stop = {"stop_token_ids": [5], "stop_token_ids_hidden": [2, 7]}
    assert read(stop_conditions=stop).stop_tokens == {2, 5, 7}
    ignoring = read(stop_conditions={**stop, "ignore_eos": True})
    assert ignoring.stop_tokens == frozenset()
    assert ignoring.body["ignore_eos"] is True


@pytest.mark.parametrize(("asked", "probabilities"), [(0, 1), (1, 1), (5, 5)])
def test_logprobs(asked: int, probabilities: int) -> None:
    asked_for = read(output_options={"logprobs": asked})
    assert (asked_for.top_logprobs, asked_for.body["n_probs"]) == (asked, probabilities)


def test_a_json_schema_is_passed_as_an_object_or_as_text() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert guided(json=schema).body["json_schema"] == schema
    assert guided(json='{"type": "object"}').body["json_schema"] == {"type": "object"}
    assert guided(json=schema).is_constrained


def test_a_choice_becomes_a_grammar_whose_words_are_quoted() -> None:
    asked_for = guided(choice=["yes", 'say "no"', "né", "a\\\n\b"])
    expected = 'root ::= "yes" | "say \\"no\\"" | "né" | "a\\\\\\x0A\\x08"'
    assert asked_for.body["grammar"] == expected
    assert asked_for.is_constrained


def test_a_grammar_is_passed_unchanged() -> None:
    assert guided(grammar='root ::= "a"').body["grammar"] == 'root ::= "a"'


@pytest.mark.parametrize(("at_least_one", "is_optional"), [(False, True), (True, False)])
def test_only_the_grammar_of_optional_calls_can_be_left_out(
    at_least_one: bool, is_optional: bool
) -> None:
    tag = {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
    form = {"type": "triggered_tags", "triggers": ["<a>"], "tags": [tag]}
    tag = {"structural_tag": {"format": form | {"at_least_one": at_least_one}}}
    asked = guided(**tag)
    assert asked.has_optional_grammar is is_optional
    assert "grammar" in asked.body
    assert "grammar" not in asked.without_grammar().body
