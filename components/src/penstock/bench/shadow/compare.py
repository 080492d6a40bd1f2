"""The differences of two responses to the same request. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from penstock.bench.shadow.requests import ShadowRequest
from penstock.bench.shadow.response import ShadowResponse


class DifferenceClass(StrEnum):
    """What can differ, in the order of the output."""

    ERROR = "error"
    PROMPT_TOKENS = "prompt_tokens"
    TOOL_CALLS = "tool_calls"
    TOOL_ARGUMENTS = "tool_arguments"
    JSON = "json"
    REASONING = "reasoning"
    FINISH_REASON = "finish_reason"
    LENGTH = "length"
    TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One class of difference, in one pair of responses to which it applies."""

    differs: bool
    detail: str = ""
    """The two values; never text of the prompt or of the response."""
    position: int | None = None
    """First character that differs, from 0; None if the class has no position."""


def compared(
    request: ShadowRequest,
    first: ShadowResponse,
    second: ShadowResponse,
    *,
    has_random_text: bool = False,
) -> dict[DifferenceClass, Compared]:
    """Only classes that apply: all but `ERROR` need two complete responses, and `TEXT` does not
    apply if ``has_random_text``."""
    by_class = dict(_compared(request, first, second))
    if has_random_text:
        by_class.pop(DifferenceClass.TEXT, None)
    return by_class


def _compared(
    request: ShadowRequest, first: ShadowResponse, second: ShadowResponse
) -> Iterator[tuple[DifferenceClass, Compared]]:
    has_error = bool(first.error), bool(second.error)
    yield (
        DifferenceClass.ERROR,
        _values(has_error[0] != has_error[1], first.error or "ok", second.error or "ok"),
    )
    if any(has_error):
        return
    if first.prompt_tokens is not None and second.prompt_tokens is not None:
        tokens = first.prompt_tokens, second.prompt_tokens
        yield DifferenceClass.PROMPT_TOKENS, _values(tokens[0] != tokens[1], *tokens)
    yield from _tools(request, first, second)
    if request.wants_json and not (first.tool_calls or second.tool_calls):
        valid = _is_json(first.text), _is_json(second.text)
        names = ("invalid", "valid")
        yield DifferenceClass.JSON, _values(valid[0] != valid[1], *(names[each] for each in valid))
    reasons = bool(first.reasoning), bool(second.reasoning)
    names = ("none", "present")
    finish = _values(reasons[0] != reasons[1], *(names[reason] for reason in reasons))
    yield DifferenceClass.REASONING, finish
    ends = first.finish_reason or "none", second.finish_reason or "none"
    yield DifferenceClass.FINISH_REASON, _values(ends[0] != ends[1], *ends)
    if (first.completion_tokens is None) == (second.completion_tokens is None):
        lengths = first.length, second.length
        yield DifferenceClass.LENGTH, _values(lengths[0] != lengths[1], *lengths)
    yield DifferenceClass.TEXT, _text(first, second)


def _tools(
    request: ShadowRequest, first: ShadowResponse, second: ShadowResponse
) -> Iterator[tuple[DifferenceClass, Compared]]:
    if not (request.has_tools or first.tool_calls or second.tool_calls):
        return
    names = [[call.name for call in each.tool_calls] for each in (first, second)]
    described_names = [_call_names(request, name) for name in names]
    yield DifferenceClass.TOOL_CALLS, _values(names[0] != names[1], *described_names)
    if names[0] and names[0] == names[1]:
        keys = [[call.keys for call in each.tool_calls] for each in (first, second)]
        described = [_described(key) for key in keys]
        yield DifferenceClass.TOOL_ARGUMENTS, _values(keys[0] != keys[1], *described)


def _call_names(request: ShadowRequest, names: list[str]) -> str:
    """Names of the request's own tools; others are output of the model, which is not shown."""
    known = request.tool_names
    return ", ".join(name if name in known else "unknown tool" for name in names) or "none"


def _described(keys: list[tuple[str, ...] | None]) -> str:
    return "; ".join("invalid JSON" if key is None else f"keys: {len(key)}" for key in keys)


def _values(differs: bool, first: object, second: object) -> Compared:
    return Compared(differs=differs, detail=f"{first} → {second}" if differs else "")


def _text(first: ShadowResponse, second: ShadowResponse) -> Compared:
    """Reasoning and content. Where one of them is missing, `REASONING` shows it."""
    for part, each, other in (
        ("reasoning", first.reasoning, second.reasoning),
        ("content", first.text, second.text),
    ):
        if each != other:
            both = zip(each, other, strict=False)
            position = len(list(takewhile(lambda pair: pair[0] == pair[1], both)))
            return Compared(
                differs=True,
                detail=f"{part}: {len(each)} → {len(other)} characters",
                position=position,
            )
    return Compared(differs=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
