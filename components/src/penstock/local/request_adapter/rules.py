"""What the adapter does with a request to each engine: refuse it, set a default, or name what has
no effect. Pure.

The rows are those that Dynamo 1.6 and 1.7 need: measured by benchmarks/client_matrix.py, and
listed for users in docs/local-engines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from .errors import CHAT, COMPLETIONS, PROMPTS, RESPONSES, UNSUPPORTED, Refusal

Body = dict[str, Any]
IsUsed = Callable[[Any, Body], bool]
"""Whether the value of a parameter, in this body, asks for what the engine does not do."""

MOCKER, VLLM, LLAMACPP = "mocker", "vllm", "llamacpp"
ENGINES = (MOCKER, VLLM, LLAMACPP)
LIMITS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    COMPLETIONS: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
}
# They change only the text. The mocker's is random, and clients send some of them by default.
IGNORED_BY_THE_MOCKER = (
    *("temperature", "top_p", "top_k", "min_p", "seed"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty"),
    *("tools", "parallel_tool_calls", "reasoning", "reasoning_effort"),
)
IGNORED_BY_DYNAMO = ("store", "prediction")
GUIDED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
IGNORED_HEADER = "x-penstock-ignored"
# Of a request whose client accepts that the mocker ignores what it would be refused for.
ACCEPT_IGNORED_HEADER = "x-penstock-accept-ignored"
DEFAULT_LIMIT_HEADER = "x-penstock-default-max-tokens"

# The parameters of /v1/responses: OpenAI's, then Dynamo's. Dynamo ignores all others there.
KNOWN_OF_RESPONSES = (
    *("background", "context_management", "conversation", "include", "input", "instructions"),
    *("max_output_tokens", "max_tool_calls", "metadata", "model", "moderation"),
    *("parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key"),
    *("prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier"),
    *("service_tier", "store", "stream", "stream_options", "temperature", "text"),
    *("tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
    *("chat_template_args", "chat_template_kwargs", "nvext", "thinking_token_budget"),
)
# A parameter of chat completions → what /v1/responses has for it.
INSTEAD = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "guided_json": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
# OpenAI's meaning of a function without parameters. An engine would generate any JSON value, and
# without `const`, a small model on vLLM writes white space between the braces until the limit.
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False, "const": {}}
ANNOTATIONS = ("title", "description", "$schema", "$id", "$comment")  # of a JSON schema

# How large a request may be. Dynamo renders the chat template and counts the tokens of a prompt in
# the frontend: 16,000 empty messages take it 8 to 10 s, also after the client has left.
MOST_MESSAGES = 1024
# More than almost all text has: English about 4 to 5. JSON writes some characters with 6.
BYTES_PER_TOKEN = 16
OTHER_BYTES = 64 * 2**10  # of tools, parameters and the format
UNKNOWN_BYTES = 2 * 2**20  # if the context length is not known


def _is_set(part: Any, _: Body) -> bool:
    return part not in (None, False, "", [], {})


def _is_given(part: Any, _: Body) -> bool:
    return part is not None


def _is_several(part: Any, _: Body) -> bool:
    return isinstance(part, int) and part > 1


def _is_format(part: Any, _: Body) -> bool:
    return isinstance(part, dict) and part.get("type") not in (None, "text")


def _requires_call(part: Any, _: Body) -> bool:
    return part not in (None, "none", "auto")


def _lacks_logprobs(part: Any, body: Body) -> bool:
    return isinstance(part, int) and part > 0 and body.get("logprobs") in (None, False)


def _contains(text: str) -> IsUsed:
    return lambda part, _: isinstance(part, list) and text in part


class Rule(NamedTuple):
    """A parameter that the engines would ignore although it changes the response's format."""

    param: str
    """With dots for what is nested."""
    paths: tuple[str, ...]
    is_used: IsUsed = _is_set
    engines: tuple[str, ...] = ENGINES
    """Those that ignore it; all of them if Dynamo does."""
    contradiction: str = ""
    """The message for a request that OpenAI refuses as well."""

    def refusal(self, engine: str) -> Refusal:
        if self.contradiction:
            return Refusal(message=self.contradiction, param=self.param)
        if self.engines == ENGINES:
            message = (
                f"Dynamo does not support {self.param!r} with this value, on any engine. Remove "
                "it from the request."
            )
        else:
            name = "the mocker, which generates random text," if engine == MOCKER else engine
            message = (
                f"{self.param!r} with this value is not supported by {name} on this machine. "
                "Remove it, or run a graph with another engine: docs/local-engines.md lists what "
                "each supports."
            )
        return Refusal(message=message, param=self.param, code=UNSUPPORTED)


BOTH, ONLY_MOCKER = (CHAT, COMPLETIONS), (MOCKER,)
NO_LOGPROBS = "'top_logprobs' requires 'logprobs' to be true."
NO_CHOICES = "'guided_choice' has no choices. Give at least one, or remove it."
TWO_CONSTRAINTS = (
    "'response_format' and a 'guided_…' parameter both constrain the output, and Dynamo would "
    "apply only one of them. Remove one."
)
RULES = (
    Rule("top_logprobs", (CHAT,), _lacks_logprobs, contradiction=NO_LOGPROBS),
    Rule("guided_choice", BOTH, lambda part, _: part == [], contradiction=NO_CHOICES),
    Rule(
        "response_format",
        (CHAT,),
        lambda part, body: _is_format(part, body) and any(body.get(name) for name in GUIDED),
        contradiction=TWO_CONSTRAINTS,
    ),
    Rule("n", BOTH, _is_several, (MOCKER, LLAMACPP)),
    Rule("logprobs", (CHAT,), engines=ONLY_MOCKER),
    Rule("logprobs", (COMPLETIONS,), _is_given, ONLY_MOCKER),  # 0: of the chosen tokens
    Rule("tool_choice", (CHAT, RESPONSES), _requires_call, ONLY_MOCKER),
    Rule("response_format", (CHAT,), _is_format, ONLY_MOCKER),
    Rule("text.format", (RESPONSES,), _is_format, ONLY_MOCKER),
    *(Rule(name, BOTH, engines=ONLY_MOCKER) for name in GUIDED),
    Rule("text.verbosity", (RESPONSES,), lambda part, _: part not in (None, "medium")),
    Rule("logit_bias", BOTH),
    Rule("echo", (COMPLETIONS,)),
    Rule("suffix", (COMPLETIONS,)),
    Rule(
        "best_of",
        (COMPLETIONS,),
        lambda part, body: isinstance(part, int) and part > (body.get("n") or 1),
    ),
    Rule("modalities", (CHAT,), _contains("audio")),
    Rule("audio", (CHAT,)),
    Rule("web_search_options", (CHAT,), _is_given),
    Rule("conversation", (RESPONSES,)),
    # Dynamo answers these with a 501, which clients try again.
    Rule("functions", (CHAT,)),
    Rule("function_call", (CHAT,)),
    Rule("max_tool_calls", (RESPONSES,)),
    Rule("include", (RESPONSES,), _contains("message.output_text.logprobs")),
    Rule("top_logprobs", (RESPONSES,)),
)


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A request that the frontend gets."""

    changed: Body = field(default_factory=dict)
    """Parameters to set or to replace."""
    headers: dict[str, str] = field(default_factory=dict)
    """To add to the response: what has no effect, and the limit that was set."""


def review(
    path: str,
    body: Body,
    engine: str,
    *,
    renders_tools: bool = True,
    output_limit: int | None = None,
    accepts_ignored: bool = False,
) -> Accepted | Refusal:
    """``path``: one of `LIMITS`; ``body``: the request's JSON object.

    ``renders_tools``: whether the chat template writes the tools into the prompt.
    ``output_limit``: in tokens, of requests that set none; None: the engine's own.
    ``accepts_ignored``: whether the client accepts that the mocker ignores parameters.
    """
    accepted: list[str] = []
    for name, rule in _rules_for(path, engine):
        if name in body and rule.is_used(_value_at(body, rule.param), body):
            if not (accepts_ignored and rule.engines == ONLY_MOCKER):
                return rule.refusal(engine)
            accepted.append(rule.param)
    if (refusal := _unknown_parameter(path, body) or _unread_part(path, body, engine)) is not None:
        return refusal
    changed = {} if engine == MOCKER else _understood_tools(path, body)
    headers = {}
    names = _ignored(body, engine, renders_tools and "tool_choice" not in changed)
    ignored = ", ".join([*accepted, *names])
    if ignored:
        headers[IGNORED_HEADER] = ignored
    if output_limit is not None and all(body.get(name) is None for name in LIMITS[path]):
        changed[LIMITS[path][0]] = output_limit
        headers[DEFAULT_LIMIT_HEADER] = str(output_limit)
    return Accepted(changed=changed, headers=headers)


@cache
def _rules_for(path: str, engine: str) -> list[tuple[str, Rule]]:
    """Each with the name of its parameter in the body."""
    rules = [rule for rule in RULES if path in rule.paths and engine in rule.engines]
    return [(rule.param.partition(".")[0], rule) for rule in rules]


def _value_at(body: Body, param: str) -> Any:
    name, _, inner = param.partition(".")
    part = body.get(name)
    return (part.get(inner) if isinstance(part, dict) else None) if inner else part


def _unknown_parameter(path: str, body: Body) -> Refusal | None:
    if path != RESPONSES:
        return None
    names = (n for n, value in body.items() if n not in KNOWN_OF_RESPONSES and value is not None)
    param = next(names, None)
    if param is None:
        return None
    fix = f"Use {INSTEAD[param]!r}" if param in INSTEAD else "Remove it from the request"
    message = f"{path} has no parameter {param!r}, so Dynamo would ignore it. {fix}."
    return Refusal(message=message, param=param, code=UNSUPPORTED)


def _unread_part(path: str, body: Body, engine: str) -> Refusal | None:
    """For a part of the prompt that would be ignored: media, or the name of a stored item."""
    param = PROMPTS[path]
    items = body.get(param)
    for index, message in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(message, dict):
            continue
        if message.get("type") == "item_reference":
            text = (
                f"'{param}[{index}]' refers to a stored item. Dynamo stores none, and would ignore "
                "it: send the item itself."
            )
            return Refusal(message=text, param=param, code=UNSUPPORTED)
        for place, kind in () if engine == VLLM else _media(message):
            text = (
                f"{param!r} has a content part of type {kind!r} ({param}[{index}].content[{place}])"
                ", and the engine on this machine accepts text only. Remove the part, or run a "
                "graph with another engine: docs/local-engines.md lists what each supports."
            )
            return Refusal(message=text, param=param, code=UNSUPPORTED)
    return None


def _media(message: Body) -> Iterator[tuple[int, str]]:
    content = message.get("content")
    for place, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, dict) and part.get("type") not in TEXT_PARTS:
            yield place, str(part.get("type"))


def _ignored(body: Body, engine: str, sees_tools: bool) -> list[str]:
    names: tuple[str, ...] = IGNORED_BY_DYNAMO
    if engine == MOCKER:
        names += IGNORED_BY_THE_MOCKER
    elif not sees_tools and body.get("tool_choice") in (None, "auto"):
        names += ("tools",)  # a required call follows a grammar, not the prompt
    # 0 is a value of a parameter, such as a temperature, and equals False.
    return [n for n in names if (v := body.get(n)) is not None and v is not False and v != []]


def _with_parameters(tool: Any) -> Any:
    """Chat completions nest the function; responses do not."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    nested = tool.get("function")
    function = nested if isinstance(nested, dict) else tool
    if not _is_empty(function.get("parameters")):
        return tool
    function = function | {"parameters": NO_PARAMETERS}
    return function if nested is None else tool | {"function": function}


def _is_empty(schema: Any) -> bool:
    """Whether a JSON schema describes no parameter. Pydantic and zod write the annotations."""
    if not isinstance(schema, dict):
        return schema is None
    rest = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
    return all(value in ({}, [], False, "object") for value in rest.values())


def _understood_tools(path: str, body: Body) -> Body:
    """The parameters to set so that an engine calls tools as OpenAI's API describes it."""
    tools = body.get("tools")
    changed: Body = {}
    if not isinstance(tools, list) or not tools:
        return changed
    with_parameters = [_with_parameters(tool) for tool in tools]
    if with_parameters != tools:
        changed["tools"] = with_parameters
    form = _value_at(body, "text.format" if path == RESPONSES else "response_format")
    if _requires_call(body.get("tool_choice"), body):
        if body.get("parallel_tool_calls") is None:
            # Otherwise a small model on vLLM writes text after the call until the limit.
            changed["parallel_tool_calls"] = False
    elif body.get("tool_choice") != "none" and (
        _is_format(form, body) or body.get("guided_json") is not None
    ):
        changed["tool_choice"] = "none"  # the format leaves no room for a call
    return changed


def most_bytes(context_tokens: int | None) -> int:
    """Of a request's body, for a model with this context length; as `Limits.for_context`."""
    if context_tokens is None:
        return UNKNOWN_BYTES
    return BYTES_PER_TOKEN * context_tokens + OTHER_BYTES


def review_size(
    path: str, size: int, body: Body, max_bytes: int, max_messages: int
) -> Refusal | None:
    """``size``: of the request in bytes. Media is refused by its own rule."""
    param = PROMPTS[path]
    items = body.get(param)
    items = items if isinstance(items, list) else []
    has_media = any(isinstance(item, dict) and any(_media(item)) for item in items)
    if size > max_bytes and not has_media:
        message = (
            f"The request has {size} bytes, more than the limit of {max_bytes}. Shorten the prompt."
        )
    elif len(items) > max_messages and not all(isinstance(item, int) for item in items):
        message = f"{param} has {len(items)} elements, more than the limit of {max_messages}."
    else:
        return None  # a list of numbers is one prompt, as token ids
    return Refusal(message=message, param=param, code="request_too_large", status=413)
