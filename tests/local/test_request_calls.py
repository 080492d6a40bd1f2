"""The calls of a chat completion: only complete ones are passed on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from penstock.local.request_adapter.calls import Asked, CorrectedCalls
from penstock.local.request_adapter.model import Model
from penstock.local.request_adapter.rules import CHAT, RESPONSES, review
from penstock.tokenizer import FOLDER
from tests.local.test_request_adapter import Played, adapted, post

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
PARIS = {"city": "Paris", "days": 3}
HERMES = Model(tool_call_parser="hermes", has_tokenizer=True)


def call(arguments: Any, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": json.dumps(arguments)}, **more}


def text(*calls: Any, name: str = "weather") -> str:
    made = (json.dumps({"name": name, "arguments": one}) for one in calls)
    return "".join(f"<tool_call>\n{one}\n</tool_call>\n" for one in made)


def tokens(generated: str) -> list[int]:
    return [ord(one) for one in generated]


def decode(ids: Any) -> str:
    return "".join(map(chr, ids))


def response(
    generated: str, *calls: Any, finish: str | None = "tool_calls", key: str = "message"
) -> dict[str, Any]:
    message = {"content": None, "tool_calls": list(calls)} if calls else {"content": "so"}
    choice = {"index": 0, key: message, "finish_reason": finish}
    return {"choices": [choice], "nvext": {"completion_token_ids": tokens(generated)}}


def corrected(*stops: str, keeps_tokens: bool = False) -> CorrectedCalls:
    asked = Asked.of({"tools": TOOLS, "stop": list(stops)})
    return CorrectedCalls(decode, asked, keeps_tokens=keeps_tokens)


def passed(given: dict[str, Any], *stops: str, keeps_tokens: bool = False) -> dict[str, Any]:
    made = corrected(*stops, keeps_tokens=keeps_tokens)
    return dict(json.loads(made.body(json.dumps(given).encode())))


@pytest.mark.parametrize(
    ("generated", "calls"),
    [
        (text(PARIS), [call(PARIS)]),
        (text(PARIS, {}), [call(PARIS), call({})]),
        (text(PARIS)[:-13], [call(PARIS)]),  # without its closing tag
        (text({"city": "日 {本}"}) + " and more", [call({"city": "日 {本}"})]),
    ],
)
def test_complete_calls_stay(generated: str, calls: list[Any]) -> None:
    choice = passed(response(generated, *calls))["choices"][0]
    assert choice["message"]["tool_calls"] == calls
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("generated", "parsed"),
    [
        ('<tool_call>\n{"name": "wea', call({}, name="wea")),
        ('<tool_call>\n{"name": "weather", "arguments": {"ci', call({})),
        ('<tool_call>\n{"name": "weather", "arguments": {"city": "Par', call({"city": "Par"})),
        ('<tool_call>\n{"name": "weather", "arguments": {"city": "P"}', call({"city": "P"})),
    ],
)
@pytest.mark.parametrize(
    ("finish", "expected"), [("length", "length"), ("tool_calls", "stop"), ("stop", "stop")]
)
def test_a_call_that_the_parser_completed_is_removed(
    generated: str, parsed: dict[str, Any], finish: str, expected: str
) -> None:
    choice = passed(response(generated, parsed, finish=finish))["choices"][0]
    assert choice == {"index": 0, "message": {"content": None}, "finish_reason": expected}


def test_a_stop_string_ends_the_call_in_which_it_is() -> None:
    """Its tokens may contain more than the response."""
    given = response(text(PARIS), call({"city": ""}))
    choice = passed(given, "Paris")["choices"][0]
    assert choice == {"index": 0, "message": {"content": None}, "finish_reason": "stop"}


def test_the_calls_before_an_incomplete_one_stay() -> None:
    cut = text(PARIS) + '<tool_call>\n{"name": "weather", "arguments": {"city": "Ro'
    choice = passed(response(cut, call(PARIS), call({"city": "Ro"})))["choices"][0]
    assert choice["message"]["tool_calls"] == [call(PARIS)]
    assert choice["finish_reason"] == "tool_calls"


def test_a_closing_tag_in_an_argument_does_not_end_the_call() -> None:
    arguments = {"city": "a</tool_call>b"}
    given = response("So: " + text(arguments), call({"city": "a"}))
    given["choices"][0]["message"]["content"] = 'So: b"}}\n</tool_call>\n'
    choice = passed(given)["choices"][0]
    (made,) = choice["message"]["tool_calls"]
    assert made.pop("id").startswith("call-")
    assert made == call(arguments, type="function")
    assert choice["message"]["content"] == "So: \n"


JOHN = 'Here: {"name": "John", "age": 3} ok?'


@pytest.mark.parametrize("generated", [JOHN, '{"name": "John"', "[" + JOHN + "]"])
@pytest.mark.parametrize("calls", [[], [call({}, "John")]])
def test_an_object_with_a_name_is_text(generated: str, calls: list[Any]) -> None:
    given = response(generated, *calls)
    given["choices"][0]["message"]["content"] = "Here:  ok?"
    choice = passed(given)["choices"][0]
    assert choice == {"index": 0, "message": {"content": generated}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    "generated",
    [
        "Use <tool_call> and {}.",
        text(PARIS, name="storm"),
        '<tool_call>{"age": 3}</tool_call>',
        "<tool_call>{weather}</tool_call> so",
    ],
)
def test_markup_that_is_no_call_of_a_tool_is_text(generated: str) -> None:
    choice = passed(response(generated, call(PARIS, name="storm")))["choices"][0]
    assert choice["message"] == {"content": generated}


def test_the_text_after_a_stop_string_is_left_out() -> None:
    given = response(JOHN, call({}, "John"))
    assert (
        passed(given, "age", "ok")["choices"][0]["message"]["content"] == 'Here: {"name": "John", "'
    )


def test_the_text_of_a_reasoning_parser_stays() -> None:
    given = response("<think>so</think>" + JOHN, finish="stop")
    given["choices"][0]["message"] |= {"content": "ok?", "reasoning_content": "so"}
    assert passed(given)["choices"][0]["message"]["content"] == "ok?"


@pytest.mark.parametrize("extra", [{}, {"timing": 1}])
@pytest.mark.parametrize("keeps_tokens", [True, False])
def test_only_a_client_that_asked_for_the_tokens_gets_them(
    extra: dict[str, Any], keeps_tokens: bool
) -> None:
    given = response("so", finish="stop")
    given["nvext"] |= extra
    expected = extra | ({"completion_token_ids": tokens("so")} if keeps_tokens else {})
    assert passed(given, keeps_tokens=keeps_tokens).get("nvext", {}) == expected


@pytest.mark.parametrize("raw", [b"busy", b"[]", b'{"error": {"message": "a"}}', b"null", b"1e999"])
def test_a_body_that_is_no_response_stays(raw: bytes) -> None:
    assert corrected().body(raw) == raw


def stream(*events: dict[str, Any]) -> bytes:
    lines = [b": keep-alive\n\n", *(f"data: {json.dumps(e)}\n\n".encode() for e in events)]
    return b"".join((*lines, b"data: [DONE]\n\n"))


def streamed(raw: bytes, size: int) -> list[dict[str, Any]]:
    """The choices that arrive if the stream comes in parts of ``size`` bytes."""
    calls = corrected()
    parts = [calls.part(raw[i : i + size]) for i in range(0, len(raw), size)]
    lines = b"".join((*parts, calls.end())).split(b"\n\n")
    assert (lines[0], lines[-2:]) == (b": keep-alive", [b"data: [DONE]", b""])
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines[1:-2]]
    assert not any("nvext" in event for event in events)
    return [event["choices"][0] for event in events]


def part(generated: str, content: str | None = None, *calls: Any, finish: str | None = None) -> Any:
    made = response(generated, *calls, finish=finish, key="delta")
    made["choices"][0]["delta"]["content"] = content
    return made


def content_of(choices: list[dict[str, Any]]) -> list[str]:
    return [one["delta"].get("content") for one in choices]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_stream_has_the_calls_with_consecutive_indices(size: int) -> None:
    generated = text({"a": "日</tool_call>"})
    raw = stream(
        part("Wait: ", "Wait: "),
        part(generated[:-20], "", call({"a": "日"}, index=0)),
        part(generated[-20:-10], '"}'),
        part(generated[-10:], "l>\n"),
        part(text(PARIS), "", call(PARIS, index=1)),
        part("<tool_call>{", "", call({}, index=2), finish="tool_calls"),
    )
    choices = streamed(raw, size)
    made = [one for choice in choices for one in choice["delta"].get("tool_calls") or ()]
    assert [one["index"] for one in made] == [0, 1]
    assert [json.loads(one["function"]["arguments"]) for one in made] == [
        {"a": "日</tool_call>"},
        PARIS,
    ]
    assert "".join(content_of(choices)) == "Wait: \n\n"
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_a_stream_without_a_complete_call_ends_with_stop() -> None:
    cut = part('<tool_call>{"name": "wea', "", call({}, "wea", index=0), finish="tool_calls")
    (choice,) = streamed(stream(cut), 10_000)
    assert choice == {"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}


@pytest.mark.parametrize("calls", [[], [call({}, "John", index=0)]])
def test_the_text_of_a_stream_is_complete(calls: list[Any]) -> None:
    """The parser waits at an object with a name, and then leaves it out."""
    raw = stream(
        part("Here: ", "Here: "),
        part(JOHN.removeprefix("Here: "), " o", *calls),
        part(" <to", " <to"),
        part("ne>", "ne>"),
        part("", None, finish="stop"),
    )
    choices = streamed(raw, 10_000)
    assert content_of(choices)[:3] == ["Here: ", JOHN.removeprefix("Here: "), " "], "<to may begin"
    assert "".join(content_of(choices)) == JOHN + " <tone>"


def test_what_a_stop_string_may_begin_waits() -> None:
    events = [part(JOHN, "Here: "), part(" a", " a"), part("nd so", "nd"), part("", finish="stop")]
    made = corrected("and")
    raw = b"".join(made.part(f"data: {json.dumps(event)}\n\n".encode()) for event in events)
    choices = [json.loads(line[6:])["choices"][0] for line in raw.split(b"\n\n") if line]
    assert content_of(choices) == ["Here: ", JOHN.removeprefix("Here: ") + " ", "", ""]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["completion_token_ids"]),
        ({"nvext": None}, ["completion_token_ids"]),
        ({"nvext": {"extra_fields": ["timing"]}}, ["timing", "completion_token_ids"]),
    ],
)
def test_the_tokens_are_asked_for_if_the_response_may_have_calls(
    given: dict[str, Any], expected: list[str]
) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, **given}
    verdict = review(CHAT, body, "vllm", HERMES)
    assert verdict.checks_calls
    assert verdict.changed["nvext"]["extra_fields"] == expected


@pytest.mark.parametrize(
    ("path", "more", "engine", "model"),
    [
        (CHAT, {"tools": []}, "vllm", HERMES),
        (CHAT, {"tool_choice": "none"}, "vllm", HERMES),
        (CHAT, {"response_format": {"type": "json_object"}}, "vllm", HERMES),
        (CHAT, {}, "mocker", HERMES),
        (CHAT, {}, "llamacpp", Model(tool_call_parser="harmony", has_tokenizer=True)),
        (CHAT, {}, "llamacpp", Model(tool_call_parser="hermes")),
        (RESPONSES, {"input": "Hi"}, "llamacpp", HERMES),  # which state that a call is incomplete
    ],
)
def test_other_responses_are_not_checked(
    path: str, more: dict[str, Any], engine: str, model: Model
) -> None:
    messages = {"messages": [{"role": "user", "content": "Hi"}]} if path == CHAT else {}
    verdict = review(path, {**messages, "tools": TOOLS, **more}, engine, model)
    assert (verdict.refusal, verdict.checks_calls) == (None, False)
    assert "nvext" not in verdict.changed


def test_several_choices_with_tools_are_refused_by_name() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "n": 2}
    refusal = review(CHAT, body, "vllm", HERMES).refusal
    assert refusal is not None
    assert (refusal.param, refusal.code) == ("n", "unsupported_parameter")
    assert "tool_choice" in refusal.message
    assert review(CHAT, body | {"tool_choice": "none"}, "vllm", HERMES).refusal is None


@pytest.mark.asyncio
@pytest.mark.parametrize("is_stream", [True, False])
async def test_the_adapter_removes_what_the_parser_completed(is_stream: bool) -> None:
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(FOLDER / "tokenizer.json")).encode('<tool_call>{"name": "wea').ids
    answer = response("", call({}, "wea", index=0), key="delta" if is_stream else "message")
    answer["nvext"]["completion_token_ids"] = ids

    async def respond(request: web.Request) -> web.StreamResponse:
        if not is_stream:
            return web.json_response(answer)
        made = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await made.prepare(request)
        raw = stream(answer)
        await made.write(raw[:40])
        await made.write(raw[40:])
        return made

    played = Played(respond)
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "stream": is_stream}
    async with adapted(played, "llamacpp", "hermes") as url:
        status, raw, _ = await post(f"{url}{CHAT}", body)
    sent = json.loads(played.bodies[0])
    assert sent["nvext"] == {"extra_fields": ["completion_token_ids"]}
    assert status == 200
    assert b"wea" not in raw
    assert b'"finish_reason":"stop"' in raw
    assert raw.endswith(b"data: [DONE]\n\n" if is_stream else b"}")
