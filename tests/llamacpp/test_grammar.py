"""Which JSON schemas and grammars a request may have, as the llguidance of llama.cpp decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dynamo.llm.exceptions import InvalidArgument

from penstock.llamacpp.grammar import (
    Grammars,
    Output,
    gbnf_problem,
    repetition_problem,
    schema_grammar,
)
from penstock.llamacpp.llguidance import LimitedLlguidance, Llguidance, readable
from penstock.llamacpp.structural_tag import grammar_of

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
INVALID: list[tuple[Any, str]] = [
    ({"type": "intger"}, "Invalid type: intger"),
    ({"type": "object", "properties": {"a": {"type": "intger"}}}, "Invalid type: intger"),
    ({"$ref": "#/nope"}, "Pointer '/nope' does not exist"),
    ({"$ref": "http://example.com/schema"}, "does not fetch resources"),
    ({"not": {"type": "string"}}, 'Unimplemented keys: ["not"]'),
    ({"type": "array", "uniqueItems": True}, 'Unimplemented keys: ["uniqueItems"]'),
    ({"if": {"type": "string"}, "then": {"minLength": 1}}, "Unimplemented keys"),
    ({"type": "string", "pattern": "(?=a)b"}, "(?=a)b ^^^ error: look-around"),
    ({"type": "string", "pattern": "("}, "regex parse error"),
    ({"type": "integer", "minimum": 5, "maximum": 1}, "minimum (5) is greater than maximum (1)"),
    ({"type": "string", "minLength": 5, "maxLength": 1}, "greater than"),
    ({"type": "object", "properties": []}, "properties must be an object"),
    ({"type": "string", "format": "emial"}, "Unknown format: emial"),
    ({"anyOf": []}, "anyOf"),
    ({"const": "\ud83d"}, "hex escape"),
    ({"type": "number", "maximum": float("nan")}, "expected value"),
    (False, "schema is false"),
    (None, "must be an object or boolean"),
    ("x", "must be an object or boolean"),
    ([], "must be an object or boolean"),
]
VALID: list[tuple[Any, str, str]] = [
    # The schema, an output that it allows, and one that it does not.
    (PERSON, '{"age": 7}', '{"age": "x"}'),
    ({}, '{"a": [1, null]}', "a"),
    ({"type": ["integer", "null"]}, "null", '"a"'),
    ({"enum": ["né 👩‍👧", 3]}, '"né 👩‍👧"', '"ne"'),
    ({"anyOf": [{"type": "integer"}, {"const": "a"}]}, '"a"', '"b"'),
    ({"type": "integer", "minimum": 3, "exclusiveMaximum": 12}, "11", "12"),
    ({"type": "integer", "multipleOf": 7}, "21", "22"),
    ({"type": "string", "pattern": "^[a-c]+$", "maxLength": 3}, '"abc"', '"abca"'),
    ({"type": "string", "format": "ipv4"}, '"127.0.0.1"', '"127.0.0.x"'),
    ({"type": "array", "items": {"type": "boolean"}, "maxItems": 1}, "[true]", "[true, true]"),
    ({"type": "object", "additionalProperties": False}, "{}", '{"a": 1}'),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}}, "null", "1"),
    ({"allOf": [{"minimum": 2}, {"type": "integer", "maximum": 2}]}, "2", "3"),
]


class NeverCompiles(Llguidance):
    def __init__(self) -> None:
        pass

    def problem(self, grammar: str) -> str:
        raise AssertionError(grammar)


def refusal(grammars: Grammars, **body: Any) -> str:
    try:
        asyncio.run(grammars.require_valid(body))
    except InvalidArgument as error:
        return str(error)
    return ""


def name(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, str) else ""


@pytest.mark.needs("llamacpp")
@pytest.mark.parametrize(("schema", "reason"), INVALID, ids=name)
def test_a_schema_that_llama_cpp_cannot_compile_is_refused_with_the_reason(
    llguidance: Llguidance, schema: Any, reason: str
) -> None:
    message = refusal(Grammars(llguidance), json_schema=schema)
    assert message.startswith("llama.cpp cannot apply the JSON schema of this request: ")
    assert reason in message
    assert "%llguidance" not in message
    assert "\n" not in message


@pytest.mark.needs("llamacpp")
@pytest.mark.parametrize(("schema", "allowed", "other"), VALID, ids=name)
def test_a_valid_schema_is_accepted_and_its_output_is_followed(
    llguidance: Llguidance, schema: Any, allowed: str, other: str
) -> None:
    assert refusal(Grammars(llguidance), json_schema=schema) == ""
    with llguidance.matcher(schema_grammar(schema)) as matcher:
        output = Output(matcher)
        for character in allowed:
            output.require_allowed(character, ends=False)
        output.require_allowed("", ends=True)
    with (
        llguidance.matcher(schema_grammar(schema)) as matcher,
        pytest.raises(InvalidArgument, match="in the middle of the output"),
    ):
        Output(matcher).require_allowed(other, ends=True)


@pytest.mark.needs("llamacpp")
def test_a_schema_that_is_too_large_is_refused_and_the_worker_survives(
    llguidance: Llguidance,
) -> None:
    options = [{"type": "object", "properties": {f"p{n}": {}}} for n in range(4)]
    schema = {"allOf": [{"anyOf": options} for _ in range(12)]}
    assert "schema too large" in refusal(Grammars(llguidance), json_schema=schema)
    assert refusal(Grammars(llguidance), json_schema=PERSON) == ""


@pytest.mark.parametrize("key", ["maxItems", "minItems"])
@pytest.mark.parametrize("items", [10_001, 1_000_000_000, 1e300])
@pytest.mark.parametrize(
    "place",
    [
        lambda array: array,
        lambda array: {"anyOf": [{"type": "object", "properties": {"a": array}}]},
        lambda array: {"$defs": {"const": array}, "$ref": "#/$defs/const"},
    ],
)
def test_an_array_that_would_take_all_memory_is_refused_before_it_is_compiled(
    key: str, items: float, place: Callable[[Any], Any]
) -> None:
    grammars = Grammars(NeverCompiles())
    schema = place({"type": "array", "items": {"type": "integer"}, key: items})
    reason = f"`{key}` is {items}, and can be at most 10000"
    assert reason in refusal(grammars, json_schema=schema)
    grammar = f'%llguidance {{}}\nstart: "a" x\nx: %json {json.dumps(schema)}'
    assert reason in refusal(grammars, grammar=grammar)
    content = {"type": "json_schema", "json_schema": schema}
    tool = {"format": {"type": "tag", "begin": "<a>", "content": content, "end": "</a>"}}
    assert reason in refusal(grammars, grammar=grammar_of(tool))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "maxItems": 10_000},
        {"type": "string", "maxLength": 1_000_000},
        {"enum": [{"maxItems": 1_000_000}]},
        {"type": "object", "properties": {"maxItems": {"type": "integer"}}},
    ],
)
def test_other_large_numbers_are_left_to_llguidance(schema: Any) -> None:
    assert repetition_problem(schema_grammar(schema)) == ""


@pytest.mark.needs("llamacpp")
@pytest.mark.parametrize("limits", [{"most_cpu_s": 0}, {"most_bytes": 1 << 25}])
def test_a_grammar_that_exceeds_a_limit_is_refused_and_the_next_one_is_compiled(
    llamacpp_library: Path, limits: dict[str, int]
) -> None:
    """The process that compiles it ends, and this one does not."""
    costly = {"type": "array", "items": {"type": "integer"}, "maxItems": 1_000_000}
    llguidance = LimitedLlguidance(llamacpp_library, **limits)
    try:
        for _ in range(2):
            assert "to compile" in llguidance.problem(schema_grammar(costly))
            assert llguidance.problem(schema_grammar(PERSON)) == ""
            assert "Invalid type" in llguidance.problem(schema_grammar({"type": "intger"}))
    finally:
        llguidance.end()


@pytest.mark.needs("llamacpp")
def test_a_schema_that_exceeds_a_limit_in_the_output_does_not_continue_as_text(
    llguidance: Llguidance,
) -> None:
    """500 optional properties compile; after `{`, llama.cpp logs an error and drops the schema."""
    schema = {"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(500)}}
    assert refusal(Grammars(llguidance), json_schema=schema) == ""
    with (
        llguidance.matcher(schema_grammar(schema)) as matcher,
        pytest.raises(InvalidArgument, match="items; max is 2000") as error,
    ):
        Output(matcher).require_allowed("{", ends=False)
    assert "<state>" not in str(error.value)


@pytest.mark.needs("llamacpp")
def test_a_schema_is_compiled_once(llguidance: Llguidance, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    class Counting(Llguidance):
        def __init__(self) -> None:
            pass

        def problem(self, grammar: str) -> str:
            compiled.append(grammar)
            return llguidance.problem(grammar)

    grammars = Grammars(Counting())
    first = refusal(grammars, json_schema={"type": "intger"})
    assert refusal(grammars, json_schema={"type": "intger"}) == first != ""
    assert refusal(grammars, json_schema=PERSON) == ""
    assert len(compiled) == 2


@pytest.mark.needs("llamacpp")
def test_grammars_of_llguidance_are_compiled_too(llguidance: Llguidance) -> None:
    grammars = Grammars(llguidance)
    assert 'unknown name: "foo"' in refusal(grammars, grammar="%llguidance {}\nstart: foo")
    assert refusal(grammars, grammar='%llguidance {}\nstart: "a" <|im_end|>') == ""


@pytest.mark.needs("llamacpp")
@pytest.mark.parametrize(
    "body", [{"json_schema": {"type": "integer"}}, {"grammar": '%llguidance {}\nstart: "1" | "12"'}]
)
def test_a_grammar_may_end_with_the_end_token_of_the_model(
    llguidance: Llguidance, body: dict[str, Any]
) -> None:
    grammars = Grammars(llguidance)
    ended = grammars.with_end(body | {"seed": 1}, ["<|im_end|>", "</s> of", "<|im_end|>"])
    assert set(ended) == {"grammar", "seed"}
    assert refusal(grammars, grammar=str(ended["grammar"])) == ""
    with llguidance.matcher(str(ended["grammar"])) as matcher:
        assert matcher.accepts(b"1")
        assert matcher.may_end
        assert matcher.accepts(b"2"), "it may also continue"


@pytest.mark.parametrize(
    ("ends", "body"),
    [
        ([], {"json_schema": {}}),
        (["end of text"], {"json_schema": {}}),
        (["<|im_end|>"], {"grammar": 'root ::= "a"'}),
        (["<|im_end|>"], {"temperature": 1.0}),
    ],
)
def test_other_requests_keep_their_grammar(ends: list[str], body: dict[str, Any]) -> None:
    class Unused(Llguidance):
        def __init__(self) -> None:
            pass

    assert Grammars(Unused()).with_end(body, ends) == body
    assert Grammars(None).with_end({"json_schema": {}}, ["<|im_end|>"]) == {"json_schema": {}}


def test_a_library_without_llguidance_leaves_the_verdict_to_llama_cpp(tmp_path: Path) -> None:
    import _ctypes  # any other shared library

    grammars = Grammars.of(Path(_ctypes.__file__), ())
    assert refusal(grammars, json_schema={"type": "intger"}) == ""


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        (None, ""),
        ('root ::= "a"{2,5}', ""),
        ('root ::= "a"{5,5} [b]{3,} "c"{4}', ""),
        ('root ::= "{5,2}" [{5,2}] # {5,2}', ""),
        ('root ::= "a"{5,2}', "minimum of the repetition {5,2}"),
        ('root ::= "\\"" ("a" | [\\]]){ 12 , 3 }', "minimum of the repetition { 12 , 3 }"),
        ("", "empty"),
        (" \n", "empty"),
    ],
)
def test_a_repetition_that_llama_cpp_would_expand_forever_is_refused(
    grammar: str | None, problem: str
) -> None:
    reason = gbnf_problem(grammar)
    assert problem in reason
    assert bool(reason) == bool(problem)


def test_a_panic_of_llguidance_is_readable() -> None:
    error = "panic: assertion failed: symbols.len() < 65525\n   0: llguidance::catch_unwind"
    assert readable(error) == (
        "it is too large for llguidance (assertion failed: symbols.len() < 65525)"
    )


@pytest.mark.needs("llamacpp")
def test_the_reason_has_no_lines_of_the_grammar(llguidance: Llguidance) -> None:
    schema = {"type": "object", "properties": {"url": {"type": "string", "format": "uri"}}}
    content = {"type": "json_schema", "json_schema": schema}
    tag = {"type": "tag", "begin": "<tool_call>", "content": content, "end": "</tool_call>"}
    form = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [tag]}
    grammar = grammar_of({"format": form | {"at_least_one": False}})
    message = refusal(Grammars(llguidance), grammar=grammar)
    assert message.endswith("of this request: Unknown format: uri")
