"""The calls of a chat completion: only complete ones are passed on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from penstock.local.request_adapter.calls import CompleteCalls
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
    generated: str, *calls: Any, finish: str = "tool_calls", key: str = "message"
) -> dict[str, Any]:
    message = {"content": None, "tool_calls": list(calls)} if calls else {"content": "so"}
    choice = {"index": 0, key: message, "finish_reason": finish}
    return {"choices": [choice], "nvext": {"completion_token_ids": tokens(generated)}}


def passed(given: dict[str, Any], keeps_tokens: bool = False) -> dict[str, Any]:
    edited = CompleteCalls(decode, keeps_tokens=keeps_tokens).body(json.dumps(given).encode())
    return dict(json.loads(edited))


@pytest.mark.parametrize(
    ("generated", "calls"),
    [
        (text(PARIS), [call(PARIS)]),
        (text(PARIS, {}), [call(PARIS), call({})]),
        (json.dumps({"name": "weather", "parameters": PARIS}), [call(PARIS)]),
        ("{ } {a: " + text({"city": "日 {本}"}) + " and more", [call({"city": "日 {本}"})]),
        (text({"city": "a</tool_call>b"}), [call({"city": "a</tool_call>b"})]),
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
        (text({"city": "a</tool_call>b"}), call({"city": "a"})),
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


def test_the_calls_before_an_incomplete_one_stay() -> None:
    cut = text(PARIS) + '<tool_call>\n{"name": "weather", "arguments": {"city": "Ro'
    choice = passed(response(cut, call(PARIS), call({"city": "Ro"})))["choices"][0]
    assert choice["message"]["tool_calls"] == [call(PARIS)]
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("extra", [{}, {"timing": 1}])
@pytest.mark.parametrize("keeps_tokens", [True, False])
def test_only_a_client_that_asked_for_the_tokens_gets_them(
    extra: dict[str, Any], keeps_tokens: bool
) -> None:
    given = response("so", finish="stop")
    given["nvext"] |= extra
    expected = extra | ({"completion_token_ids": tokens("so")} if keeps_tokens else {})
    assert passed(given, keeps_tokens).get("nvext", {}) == expected


@pytest.mark.parametrize("raw", [b"busy", b"[]", b'{"error": {"message": "a"}}', b"null", b"1e999"])
def test_a_body_that_is_no_response_stays(raw: bytes) -> None:
    assert CompleteCalls(decode, keeps_tokens=False).body(raw) == raw


def stream(*events: dict[str, Any]) -> bytes:
    lines = [b": keep-alive\n\n", *(f"data: {json.dumps(e)}\n\n".encode() for e in events)]
    return b"".join((*lines, b"data: [DONE]\n\n"))


def streamed(raw: bytes, size: int) -> list[dict[str, Any]]:
    """The choices that arrive if the stream comes in parts of ``size`` bytes."""
    calls = CompleteCalls(decode, keeps_tokens=False)
    parts = [calls.part(raw[i : i + size]) for i in range(0, len(raw), size)]
    lines = b"".join((*parts, calls.end())).split(b"\n\n")
    assert (lines[0], lines[-2:]) == (b": keep-alive", [b"data: [DONE]", b""])
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines[1:-2]]
    assert not any("nvext" in event for event in events)
    return [event["choices"][0] for event in events]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_stream_has_the_complete_calls_with_consecutive_indices(size: int) -> None:
    raw = stream(
        response("Wait: ", key="delta", finish=""),
        response(text({"a": "日</tool_call>"})[:-9], call({"a": "日"}, index=0), key="delta"),
        response(text(PARIS)[:9], key="delta"),
        response(text(PARIS)[9:], call(PARIS, index=1), key="delta"),
        response("<tool_call>{", call({}, index=2), key="delta"),
    )
    choices = streamed(raw, size)
    assert [one["delta"].get("tool_calls") for one in choices] == [
        *(None, None, None),
        [call(PARIS, index=0)],
        None,
    ]
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_a_stream_without_a_complete_call_ends_with_stop() -> None:
    cut = response('<tool_call>{"name": "wea', call({}, "wea", index=0), key="delta")
    (choice,) = streamed(stream(cut), 10_000)
    assert choice == {"index": 0, "delta": {"content": None}, "finish_reason": "stop"}


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

    ids = Tokenizer.from_file(str(FOLDER / "tokenizer.json")).encode('{"name": "wea').ids
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
