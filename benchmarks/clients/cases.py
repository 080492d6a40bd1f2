"""The requests of the client matrix, and what a client must get for "supported".

Each case is a function of a `Session`; it returns a `Cell`. A 200 with a wrong result fails.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import jsonschema

from clients.drivers import Driver
from penstock.metrics import parse

SUPPORTED, REJECTED, NOT_APPLICABLE, FAILED = "supported", "rejected", "n/a", "FAILED"
QUESTION = "What is the capital of France? Answer in one sentence."
SENTENCE = "The pressure at the gate rises with the level of the lake behind it. "
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Rome", "Lima"]},
        "days": {"type": "integer", "enum": [1, 2, 3]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
SUM = {
    "type": "object",
    "properties": {"a": {"type": "integer", "enum": [1, 2]}},
    "required": ["a"],
    "additionalProperties": False,
}
PARAMETERS = {"weather": CITY, "add": SUM}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": f"the tool {name}", "parameters": schema},
    }
    for name, schema in PARAMETERS.items()
]
IGNORED_HEADER = "x-penstock-ignored"
CANCELLED = "dynamo_frontend_model_cancellation_total"
INFLIGHT = "dynamo_frontend_inflight_requests"
CANCEL_AFTER = 3  # chunks
ATTEMPTS = 3


@dataclass(frozen=True)
class Cell:
    """The result of one case with one client on one engine."""

    state: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Session:
    """One client at one endpoint."""

    driver: Driver
    base_url: str
    model: str
    context_length: int
    output_is_random: bool
    """The engine draws its tokens at random, as the mocker does."""
    max_tokens: int = 16
    cancel_tokens: int = 1500

    def chat(self, prompt: str = QUESTION, **request: Any) -> dict[str, Any]:
        params = {"max_tokens": self.max_tokens} | request.pop("params", {})
        params = {name: value for name, value in params.items() if value is not None}
        return self.driver.ask({"api": "chat", "prompt": prompt, "params": params, **request})

    def ignored(self, **params: Any) -> str:
        """The header in which the endpoint reports parameters without effect."""
        body = {"model": self.model, "messages": [{"role": "user", "content": "Hello"}]}
        url = f"{self.base_url}/chat/completions"
        answer = httpx.post(url, json={**body, "max_tokens": 2, **params}, timeout=60)
        return str(answer.headers.get(IGNORED_HEADER, ""))

    def metric(self, name: str) -> float:
        text = httpx.get(self.base_url.removesuffix("/v1") + "/metrics", timeout=10).text
        return sum(sample.value for sample in parse(text) if sample.name == name)


def refused(result: dict[str, Any], param: str) -> Cell | None:
    """REJECTED for a 400 that names the parameter; a cell for any other error; else None."""
    if "absent" in result:
        return Cell(NOT_APPLICABLE, result["absent"])
    error = result.get("error")
    if error is None:
        return None
    if error["status"] == 400 and f"'{param}'" in error["message"]:
        return Cell(REJECTED, error["message"])
    return Cell(FAILED, f"{error['class']} {error['status']}: {error['message'][:200]}")


def check(condition: bool, note: str, result: dict[str, Any]) -> Cell:
    return Cell(SUPPORTED) if condition else Cell(FAILED, f"{note}: {json.dumps(result)[:300]}")


def plain_chat(session: Session) -> Cell:
    result = session.chat()
    return refused(result, "") or _is_text(result, session.max_tokens)


def completions(session: Session) -> Cell:
    params = {"max_tokens": session.max_tokens}
    ask = {"api": "completions", "prompt": "The capital of France is", "params": params}
    result = session.driver.ask(ask)
    return refused(result, "") or _is_text(result, session.max_tokens)


def responses(session: Session) -> Cell:
    params = {"max_output_tokens": session.max_tokens}
    result = session.driver.ask({"api": "responses", "prompt": QUESTION, "params": params})
    return refused(result, "") or _is_text(result, session.max_tokens)


def _is_text(result: dict[str, Any], limit: int) -> Cell:
    usage = result["usage"]
    fits = usage is not None and usage["prompt"] > 0 and 0 < usage["completion"] <= limit
    return check(bool(result["texts"][0]) and fits, "text and usage expected", result)


def streaming(session: Session) -> Cell:
    result = session.chat(stream=True)
    if cell := refused(result, ""):
        return cell
    usage = result["usage"]
    has_usage = usage is not None and 0 < usage["completion"] <= session.max_tokens
    return check(result["chunks"] >= 2 and has_usage, "chunks and usage expected", result)


def cached_tokens(session: Session) -> Cell:
    prompt = f"{uuid.uuid4()} {SENTENCE * 20}Why?"
    first, second = session.chat(prompt), session.chat(prompt)
    if cell := refused(first, "") or refused(second, ""):
        return cell
    was, now = first["usage"]["cached"], second["usage"]["cached"]
    return check(was < 32 < now, f"cached {was}, then {now}", second)


def no_max_tokens(session: Session) -> Cell:
    result = session.chat(params={"max_tokens": None})
    if cell := refused(result, "max_tokens"):
        return cell
    used, end = result["usage"]["completion"], result["finish"][0]
    return check(used > 16 or end == "stop", f"{used} tokens, finish reason {end}", result)


def stop(session: Session) -> Cell:
    """The text before a word of the greedy output; on random output, a text without an `e`."""
    params: dict[str, Any] = {"temperature": 0, "max_tokens": 48}
    free = session.chat(params=params)
    if cell := refused(free, ""):
        return cell
    text = free["texts"][0]
    word = "e" if session.output_is_random else _middle(text)
    limit = 400 if session.output_is_random else 48
    result = session.chat(params=params | {"stop": [word], "max_tokens": limit})
    if cell := refused(result, "stop"):
        return cell
    ended = result["finish"][0] == "stop" and word not in result["texts"][0]
    is_prefix = session.output_is_random or result["texts"][0] == text[: text.find(word)]
    return check(ended and is_prefix, f"expected the text before {word!r}", result)


def _middle(text: str) -> str:
    words = text.split()
    return max(words[len(words) // 3 :], key=len)


def seed(session: Session) -> Cell:
    def text(value: int) -> dict[str, Any]:
        return session.chat(params={"seed": value, "temperature": 1.0, "max_tokens": 24})

    results = [text(value) for value in (7, 7, 8, 9)]
    if cell := next((c for r in results if (c := refused(r, "seed"))), None):
        return cell
    texts = [result["texts"][0] for result in results]
    if session.output_is_random and "seed" in session.ignored(seed=7):
        return Cell(NOT_APPLICABLE, f"the text is random; the header {IGNORED_HEADER} says so")
    same, others = texts[0] == texts[1], set(texts) != {texts[0]}
    return check(same and others, "same text for the same seed only", {"texts": texts})


def several(session: Session) -> Cell:
    result = session.chat(params={"n": 2, "temperature": 1.0})
    if cell := refused(result, "n"):
        return cell
    return check(len(result["texts"]) == 2 and all(result["texts"]), "two choices", result)


def logprobs(session: Session) -> Cell:
    params = {"logprobs": True, "top_logprobs": 2, "max_tokens": 4}
    result = session.chat(params=params)
    if cell := refused(result, "logprobs"):
        return cell
    found = result["logprobs"][0]
    is_right = all(value <= 0 and top >= 2 for value, top in found)
    count = result["usage"]["completion"]  # with the end token, which may have no entry
    return check(0 < count - 1 <= len(found) <= count and is_right, "logprobs", result)


def tools(session: Session) -> Cell:
    """One of two tools must be called."""
    return _calls(session, "required", tuple(PARAMETERS))


def tool_choice(session: Session) -> Cell:
    """The named one of two tools must be called."""
    return _calls(session, {"type": "function", "function": {"name": "add"}}, ("add",))


def _calls(session: Session, choice: Any, names: tuple[str, ...]) -> Cell:
    params = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 200, "temperature": 0}
    result = session.chat("How is the weather in Paris, and for how many days?", params=params)
    if cell := refused(result, "tool_choice"):
        return cell
    calls = result["calls"][0]
    try:
        for call in calls:
            jsonschema.validate(json.loads(call["arguments"]), PARAMETERS[call["name"]])
    except (ValueError, KeyError, jsonschema.ValidationError) as error:
        return Cell(FAILED, f"{error!r}: {json.dumps(result)[:300]}")
    return check({call["name"] for call in calls} <= set(names) and bool(calls), "calls", result)


def json_schema(session: Session) -> Cell:
    form = {"type": "json_schema", "json_schema": {"name": "trip", "schema": CITY, "strict": True}}
    params = {"response_format": form, "max_tokens": 200, "temperature": 0}
    result = session.chat("Plan a trip. Answer in JSON.", params=params)
    if cell := refused(result, "response_format"):
        return cell
    try:
        jsonschema.validate(json.loads(result["texts"][0]), CITY)
    except (ValueError, jsonschema.ValidationError) as error:
        return Cell(FAILED, f"{error!r}: {json.dumps(result)[:300]}")
    return Cell(SUPPORTED)


def over_long(session: Session) -> Cell:
    """Supported is OpenAI's error: 400 with the code `context_length_exceeded`."""
    result = session.chat("Hello " * session.context_length, params={"max_tokens": 5})
    error = result.get("error")
    if error is None:
        return Cell(FAILED, f"no error: {json.dumps(result)[:300]}")
    # litellm and llm report no code; they keep OpenAI's words.
    is_named = error["code"] == "context_length_exceeded" or (
        "maximum context length" in error["message"]
    )
    return check(error["status"] == 400 and is_named, "a 400 for the context length", result)


def cancellation(session: Session) -> Cell:
    """The endpoint frees the request within 2 s, and its metrics count it as cancelled.

    A response with its usage was complete before the client left: the model may end early.
    """
    before = session.metric(CANCELLED)
    for _ in range(ATTEMPTS):
        result = _leave_a_stream(session)
        if cell := refused(result, ""):
            return cell
        if result["usage"] is None:
            break
    begun = time.monotonic()
    while session.metric(INFLIGHT) > 0 and time.monotonic() - begun < 30:
        time.sleep(0.05)
    freed, cancelled = time.monotonic() - begun, session.metric(CANCELLED) - before
    note = f"in flight for {freed:.1f} s more, {cancelled:.0f} cancelled"
    return check(freed < 2 and cancelled == 1, note, result)


def _leave_a_stream(session: Session) -> dict[str, Any]:
    params = {"max_tokens": session.cancel_tokens, "temperature": 1.0}
    prompt = f"{uuid.uuid4()} Count to one thousand, one number per line."
    return session.chat(prompt, stream=True, cancel_after=CANCEL_AFTER, params=params)


Case = Callable[[Session], Cell]
CASES: Mapping[str, Case] = {
    "chat": plain_chat,
    "completions": completions,
    "streaming": streaming,
    "cached tokens": cached_tokens,
    "no max_tokens": no_max_tokens,
    "stop": stop,
    "seed": seed,
    "n": several,
    "logprobs": logprobs,
    "tools": tools,
    "tool_choice": tool_choice,
    "json_schema": json_schema,
    "over-long prompt": over_long,
    "cancellation": cancellation,
    "/v1/responses": responses,
}
