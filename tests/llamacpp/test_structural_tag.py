"""Which outputs the grammar of a structural tag allows, as the llguidance of llama.cpp decides."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dynamo.llm.exceptions import InvalidArgument

from penstock.llamacpp.llguidance import Llguidance
from penstock.llamacpp.structural_tag import grammar_of

pytestmark = pytest.mark.needs("llamacpp")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CITY |= {"additionalProperties": False}
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "time", "arguments": {"a": [1]}}\n</tool_call>'


def tag(name: str, schema: Any) -> dict[str, Any]:
    """As Dynamo 1.6.1 makes it for the parser hermes."""
    return {
        "type": "tag",
        "begin": f'<tool_call>\n{{"name": "{name}", "arguments": ',
        "content": {"type": "json_schema", "json_schema": schema, "style": "json"},
        "end": "}\n</tool_call>",
    }


def calls(**options: bool) -> dict[str, Any]:
    tags = [tag("weather", CITY), tag("time", True)]
    triggered = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": tags}
    return structural(triggered | {"at_least_one": False, "stop_after_first": False} | options)


def structural(form: dict[str, Any]) -> dict[str, Any]:
    return {"type": "structural_tag", "format": form}


def allows(llguidance: Llguidance, structural_tag: dict[str, Any], text: str) -> bool:
    """Whether ``text`` is a whole output."""
    with llguidance.matcher(grammar_of(structural_tag)) as matcher:
        assert not matcher.problem
        return matcher.accepts(text.encode()) and matcher.may_end


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sunny < warm, <tool> & so on\n",
        WEATHER,
        f"I look it up.\n{WEATHER}",
        WEATHER + TIME,
        f"{TIME}\n{WEATHER}\n",
    ],
)
def test_text_and_calls_are_allowed(llguidance: Llguidance, text: str) -> None:
    assert allows(llguidance, calls(), text)


@pytest.mark.parametrize(
    "text",
    [
        WEATHER[:-1],
        WEATHER.replace("Köln", 'K", "b": "'),
        WEATHER.replace("weather", "storm"),
        WEATHER.replace('": "', '":  "'),
        WEATHER.replace('"city"', '\n"city"'),
        "<tool_call>weather()</tool_call>",
        "a <tool_call> b",
        f"{WEATHER} It is sunny.",
    ],
)
def test_nothing_but_a_complete_call_of_a_tool_follows_the_trigger(
    llguidance: Llguidance, text: str
) -> None:
    assert not allows(llguidance, calls(), text)


def test_a_required_call_is_the_whole_output(llguidance: Llguidance) -> None:
    """A small model would repeat it until the limit."""
    required = calls(at_least_one=True)
    assert allows(llguidance, required, WEATHER)
    for text in ("", f"Wait. {WEATHER}", f"{WEATHER}\n{TIME}", f"{WEATHER}\n"):
        assert not allows(llguidance, required, text)


def test_without_parallel_calls_the_first_is_the_last(llguidance: Llguidance) -> None:
    once = calls(stop_after_first=True)
    assert allows(llguidance, once, f"Let me see.{TIME}")
    assert not allows(llguidance, once, TIME + TIME)


def test_other_formats(llguidance: Llguidance) -> None:
    text, a = {"type": "any_text"}, {"type": "const_string", "value": "a"}
    number = {"type": "json_schema", "json_schema": {"type": "integer"}}
    assert allows(llguidance, structural({"type": "sequence", "elements": [a, number]}), "a12")
    either = structural({"type": "or", "elements": [a, number]})
    assert allows(llguidance, either, "7")
    assert not allows(llguidance, either, "a7")
    thought = {"type": "tag", "begin": "<think>", "content": text, "end": ["</think>", ""]}
    assert allows(llguidance, structural(thought), "<think>hm</think>")
    listed = {"type": "tags_with_separator", "separator": ",", "tags": [tag("weather", CITY)]}
    assert allows(llguidance, structural(listed), f"{WEATHER},{WEATHER}")
    assert not allows(llguidance, structural(listed | {"at_least_one": True}), "")


def test_a_structural_tag_may_be_text(llguidance: Llguidance) -> None:
    assert grammar_of(json.dumps(calls())) == grammar_of(calls())


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (structural({"type": "qwen_xml_parameter"}), "'qwen_xml_parameter'"),
        (structural({"type": "sequence", "elements": [{"type": "regex"}]}), "'regex'"),
        ({}, "no format"),
        ("{", "structural tag"),
        (structural({"type": "triggered_tags"}), "triggers"),
        (structural({"type": "tag", "begin": "a"}), "content"),
    ],
)
def test_an_unknown_or_incomplete_format_is_refused(form: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        grammar_of(form)
