"""What the adapter does with a request to each engine: set, reject, or report as ignored. Pure.

The rules are those that Dynamo 1.6 and 1.7 need: measured by benchmarks/client_matrix.py, and
listed for users in docs/local-engines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import calls
from .model import Model
from .patterns import costly
from .prompt import Body, renderable
from .prompt_rules import review_prompt
from .refusal import UNSUPPORTED, Refusal
from .responses_fields import review_fields
from .tools import excludes_calls, has_format, understood

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
MOCKER = "mocker"
LLAMACPP = "llamacpp"
VLLM = "vllm"
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
CONTEXT_CODE = "context_length_exceeded"
# OpenAI's words. litellm and others branch on them, and a worker's error has no other field.
CONTEXT_WORDS = "maximum context length is"
# Status → OpenAI's code, for errors of Dynamo and of its workers.
CODES = {
    404: "model_not_found",
    429: "rate_limit_exceeded",
    501: "not_implemented",
    503: "service_unavailable",
}
NO_REASON = ("Bad Request", "Invalid request")  # Dynamo's messages instead of vLLM's


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A parameter that the engine would ignore although it changes the response's format."""

    param: str
    paths: tuple[str, ...]
    is_used: Callable[[Body], bool]
    engines: tuple[str, ...] = (MOCKER,)
    """Those that ignore it; all of them if Dynamo does."""


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """A parameter that OpenAI refuses and every engine would ignore."""

    param: str
    paths: tuple[str, ...]
    is_invalid: Callable[[Body], bool]
    message: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What to do with one request."""

    refusal: Refusal | None = None
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Parameters to set or to replace."""
    ignored: tuple[str, ...] = ()
    """Parameters of the request that have no effect."""
    default_limit: int | None = None
    """Output limit in tokens that the adapter added to the request; None: it added none."""
    checks_calls: bool = False
    """Whether the response contains the generated tokens, for `calls.CorrectedCalls`."""


def _set(name: str) -> Callable[[Body], bool]:
    return lambda body: body.get(name) not in (None, False, "", [], {})


def _is_given(value: Any) -> bool:
    """0 is a value of a parameter, such as a temperature."""
    return value is not None and value is not False and value != []


def _several(name: str) -> Callable[[Body], bool]:
    return lambda body: isinstance(body.get(name), int) and body[name] > 1


def _more_than_n(body: Body) -> bool:
    best_of = body.get("best_of")
    return isinstance(best_of, int) and best_of > (body.get("n") or 1)


def _top_logprobs_alone(body: Body) -> bool:
    return _count(body.get("top_logprobs")) > 0 and body.get("logprobs") in (None, False)


def _count(value: Any) -> int:
    """0 for other types, which Dynamo refuses."""
    return value if isinstance(value, int) else 0


def _outputs_audio(body: Body) -> bool:
    modalities = body.get("modalities")
    return isinstance(modalities, list) and "audio" in modalities


def _requires_a_call(body: Body) -> bool:
    return body.get("tool_choice") not in (None, "none", "auto")


def _changes_verbosity(body: Body) -> bool:
    text = body.get("text")
    return isinstance(text, dict) and text.get("verbosity") not in (None, "medium")


def _includes_logprobs(body: Body) -> bool:
    include = body.get("include")
    return isinstance(include, list) and "message.output_text.logprobs" in include


N_WITH_TOOLS = (
    "On this machine, 'n' above 1 is not supported with tools. Remove one of them, or set "
    "'tool_choice' to 'none'."
)
CONTRADICTIONS = (
    Contradiction(
        param="top_logprobs",
        paths=(CHAT,),
        is_invalid=_top_logprobs_alone,
        message="'top_logprobs' requires 'logprobs' to be true.",
    ),
    Contradiction(
        param="guided_choice",
        paths=(CHAT, COMPLETIONS),
        is_invalid=lambda body: body.get("guided_choice") == [],
        message="'guided_choice' has no choices. Give at least one, or remove it.",
    ),
    Contradiction(
        param="response_format",
        paths=(CHAT,),
        is_invalid=lambda body: has_format(body) and any(_set(name)(body) for name in GUIDED),
        message="'response_format' and a 'guided_…' parameter both constrain the output, and "
        "Dynamo would apply only one of them. Remove one.",
    ),
)
RULES = (
    Rule(
        param="n",
        paths=(CHAT, COMPLETIONS),
        is_used=_several("n"),
        engines=(MOCKER, LLAMACPP),
    ),
    Rule(param="logprobs", paths=(CHAT,), is_used=_set("logprobs")),
    Rule(
        param="logprobs",  # 0 asks for those of the chosen tokens
        paths=(COMPLETIONS,),
        is_used=lambda body: body.get("logprobs") is not None,
    ),
    Rule(param="tool_choice", paths=(CHAT, RESPONSES), is_used=_requires_a_call),
    Rule(param="response_format", paths=(CHAT,), is_used=has_format),
    Rule(param="text.format", paths=(RESPONSES,), is_used=has_format),
    *(Rule(param=name, paths=(CHAT, COMPLETIONS), is_used=_set(name)) for name in GUIDED),
    Rule(
        param="text.verbosity",
        paths=(RESPONSES,),
        is_used=_changes_verbosity,
        engines=ENGINES,
    ),
    Rule(
        param="logit_bias",
        paths=(CHAT, COMPLETIONS),
        is_used=_set("logit_bias"),
        engines=ENGINES,
    ),
    Rule(param="echo", paths=(COMPLETIONS,), is_used=_set("echo"), engines=ENGINES),
    Rule(param="suffix", paths=(COMPLETIONS,), is_used=_set("suffix"), engines=ENGINES),
    Rule(param="best_of", paths=(COMPLETIONS,), is_used=_more_than_n, engines=ENGINES),
    Rule(param="modalities", paths=(CHAT,), is_used=_outputs_audio, engines=ENGINES),
    Rule(param="audio", paths=(CHAT,), is_used=_set("audio"), engines=ENGINES),
    Rule(
        param="web_search_options",
        paths=(CHAT,),
        is_used=lambda body: body.get("web_search_options") is not None,
        engines=ENGINES,
    ),
    Rule(param="conversation", paths=(RESPONSES,), is_used=_set("conversation"), engines=ENGINES),
    # Dynamo answers these with a 501, which clients try again.
    Rule(param="functions", paths=(CHAT,), is_used=_set("functions"), engines=ENGINES),
    Rule(param="function_call", paths=(CHAT,), is_used=_set("function_call"), engines=ENGINES),
    Rule(
        param="max_tool_calls", paths=(RESPONSES,), is_used=_set("max_tool_calls"), engines=ENGINES
    ),
    Rule(param="include", paths=(RESPONSES,), is_used=_includes_logprobs, engines=ENGINES),
    Rule(param="top_logprobs", paths=(RESPONSES,), is_used=_set("top_logprobs"), engines=ENGINES),
)


def review(
    path: str, body: Body, engine: str, model: Model, output_limit: int | None = None
) -> Verdict:
    """``body``: the request's JSON object. A path without rules is passed on unchanged.

    ``output_limit``: in tokens, of requests that set none; None: the engine's own.
    """
    if path not in LIMITS:
        return Verdict()
    for found in CONTRADICTIONS:
        if path in found.paths and found.is_invalid(body):
            return Verdict(refusal=Refusal(message=found.message, param=found.param, code=None))
    for rule in RULES:
        if path in rule.paths and engine in rule.engines and rule.is_used(body):
            return Verdict(refusal=_refusal(rule, engine))
    refusal = review_fields(body) if path == RESPONSES else None
    if engine == VLLM:  # llama.cpp's worker compiles in a child process with limits
        refusal = refusal or costly(body)
    refusal = refusal or review_prompt(
        body,
        _prompt_param(path),
        is_text_only=engine in (MOCKER, LLAMACPP),
        # The mocker may run with the packaged tokenizer, and computes with no token.
        model=Model() if engine == MOCKER else model,
    )
    if refusal is not None:
        return Verdict(refusal=refusal)
    has_limit = any(body.get(name) is not None for name in LIMITS[path])
    default_limit = None if has_limit else output_limit
    changed = {} if default_limit is None else {LIMITS[path][0]: default_limit}
    changed |= renderable(body, model) | ({} if engine == MOCKER else understood(body))
    makes_calls = path == CHAT and engine != MOCKER
    checks_calls = makes_calls and calls.are_checked(body | changed, model)
    if checks_calls and _several("n")(body):
        return Verdict(refusal=Refusal(message=N_WITH_TOOLS, param="n", code=UNSUPPORTED))
    return Verdict(
        changed=changed | (calls.with_tokens(body) if checks_calls else {}),
        ignored=tuple(name for name in _ignored(body, engine, model) if _is_given(body.get(name))),
        default_limit=default_limit,
        checks_calls=checks_calls,
    )


def _ignored(body: Body, engine: str, model: Model) -> tuple[str, ...]:
    if engine == MOCKER:
        return (*IGNORED_BY_DYNAMO, *IGNORED_BY_THE_MOCKER)
    # A required call follows the grammar that Dynamo makes of the tools, not the prompt.
    is_rendered = model.renders_tools and not excludes_calls(body)
    has_effect = is_rendered or body.get("tool_choice") not in (None, "auto")
    return IGNORED_BY_DYNAMO if has_effect else (*IGNORED_BY_DYNAMO, "tools")


def _refusal(rule: Rule, engine: str) -> Refusal:
    if rule.engines == ENGINES:
        message = (
            f"Dynamo does not support {rule.param!r} with this value, on any engine. Remove it "
            "from the request."
        )
    else:
        name = "the mocker, which generates random text," if engine == MOCKER else engine
        message = (
            f"{rule.param!r} with this value is not supported by {name} on this machine. Remove "
            "it, or run a graph with another engine: docs/local-engines.md lists what each "
            "supports."
        )
    return Refusal(message=message, param=rule.param, code=UNSUPPORTED)


NOT_UTF8 = Refusal(
    message="The body of the request is not valid UTF-8.",
    param=None,
    code=None,
)


def no_embeddings(engine: str) -> Refusal:
    """Dynamo reports a model without embeddings as not found."""
    return Refusal(
        message=f"The models of this graph generate text with {engine} and have no embeddings. "
        "Send the request to /v1/chat/completions or /v1/completions.",
        param="model",
        code="unsupported_endpoint",
    )


def no_route(method: str, path: str, status: int) -> Refusal:
    """For an empty 404 or 405: Dynamo has the path, but no such method, or no model for it."""
    if status == 405:
        message = f"{path} does not accept {method}. The header Allow names what it accepts."
    else:
        message = (
            f"The models of this graph have no endpoint {path}. They generate text: send the "
            "request to /v1/chat/completions or /v1/completions."
        )
    return Refusal(message=message, param=None, code="unsupported_endpoint", status=status)


def too_long(path: str, limit: int, tokens: int) -> Refusal:
    """OpenAI's words and code: clients recognize an exceeded context length by them."""
    param = _prompt_param(path)
    return Refusal(
        message=f"This model's maximum context length is {limit} tokens. However, your request "
        f"needs {tokens} tokens ({param} and output). Please reduce the length of the {param}.",
        param=param,
        code=CONTEXT_CODE,
    )


def context_error(path: str, answer: Any) -> Refusal | None:
    """For the error with which Dynamo reports a worker's context length, else None."""
    details = answer.get("details") if isinstance(answer, dict) else None
    if not isinstance(details, dict) or details.get("type") != "context_length":
        return None
    limit, tokens = details.get("limit"), details.get("actual")
    if not isinstance(limit, int) or not isinstance(tokens, int):
        return None
    return too_long(path, limit, tokens)


def unwrapped_error(path: str, status: int, answer: Any) -> Refusal | None:
    """For Dynamo's own error body, which has no `error` object and a number as its code, else
    None. An empty 404 stays: it means that the model has no workers (`local/envoy.py`)."""
    if not isinstance(answer, dict) or "error" in answer:
        return None
    message = answer.get("message")
    if not isinstance(message, str):
        return None
    if status == 400 and CONTEXT_WORDS in message:
        return Refusal(message=message, param=_prompt_param(path), code=CONTEXT_CODE)
    has_a_model = path in (*LIMITS, EMBEDDINGS) or path.startswith("/v1/models/")
    code = CODES.get(status) if has_a_model or status != 404 else None  # an unknown path
    return _reworded(message, code, status)


def event_error(event: Any) -> Refusal | None:
    """For a stream that begins with an error, which Dynamo sends with status 200, else None."""
    error = event.get("error") if isinstance(event, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    status = error.get("code")
    if not isinstance(status, int) or not 400 <= status < 600:
        return None
    return _reworded(error["message"], CODES.get(status), status)


def _reworded(message: str, code: str | None, status: int) -> Refusal:
    if message in NO_REASON:
        message = (
            "Dynamo or the engine rejected the request, and Dynamo passes on no reason: see the "
            "log of the graph (`penstock logs`)."
        )
    return Refusal(message=message, param=None, code=code, status=status)


def _prompt_param(path: str) -> str:
    return {CHAT: "messages", COMPLETIONS: "prompt"}.get(path, "input")
