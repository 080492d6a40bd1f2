"""The probes of responses: length, streams, repeatability, parsers and cancellation."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from penstock.manifests.deployment import Role
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ApiResponse, NotReportedError, ProbeTarget

CONTEXT_LENGTH = "dynamo_frontend_model_context_length"
SHORT_OUTPUT = 4  # tokens


def context_length(target: ProbeTarget) -> ProbeResult:
    """A sequence of exactly the context length is served; a longer prompt gets status 400."""
    exported = target.metrics().gauge(CONTEXT_LENGTH, model=target.model)
    stated = target.expected.context_length if target.expected is not None else None
    limit = stated or (int(exported) if exported else None)
    if limit is None:
        return cannot_tell("neither the graph nor the frontend's metrics give the context length")
    if exported is not None and int(exported) != limit:
        return failed(
            f"context length: {limit} tokens in the graph, {int(exported)} in the frontend",
            "Restart the workers with the graph's context length.",
        )
    served = _ask(target, limit - SHORT_OUTPUT, SHORT_OUTPUT)
    tokens = (served.body.get("usage") or {}).get("total_tokens")
    if served.status != 200 or tokens != limit:
        return failed(
            f"{limit} tokens of prompt and output: HTTP {served.status}, {tokens} tokens: "
            f"{served.text}"
        )
    # The prompt alone is too long: some engines shorten the output when only the sum is.
    rejected = _ask(target, limit + 1, 1)
    if rejected.status == 500 and target.is_mocked:
        return cannot_tell(
            f"{limit} tokens served; a prompt of {limit + 1} gets status 500, as mockers respond"
        )
    if rejected.status != 400:
        return failed(
            f"a prompt of {limit + 1} tokens: HTTP {rejected.status}, not 400: {rejected.text}"
        )
    return passed(f"{limit} tokens served, a prompt of {limit + 1} rejected with status 400")


def _ask(target: ProbeTarget, prompt: int, output: int) -> ApiResponse:
    body = {"model": target.model, "prompt": target.prompt(prompt), "max_tokens": output}
    return target.post("/v1/completions", {**body, "ignore_eos": True})


STREAM_PROMPT, STREAM_OUTPUT = 50, 16  # tokens


def streaming(target: ProbeTarget) -> ProbeResult:
    """A stream has the tokens and the usage of a response without one, and ends with [DONE]."""
    prompt = target.prompt(STREAM_PROMPT)
    response = target.complete(prompt, STREAM_OUTPUT)
    events = list(target.stream(prompt, STREAM_OUTPUT))
    if not events or events[-1] is not None:
        return failed("the stream ended without [DONE]", "A proxy cuts or buffers the stream.")
    chunks = [event for event in events if event is not None]
    ids = [i for c in chunks for i in (c.get("nvext") or {}).get("completion_token_ids") or []]
    text = "".join(choice.get("text") or "" for c in chunks for choice in c.get("choices") or [])
    reasons = [
        r for c in chunks for choice in c.get("choices") or [] if (r := choice.get("finish_reason"))
    ]
    usage = next((c["usage"]["completion_tokens"] for c in chunks if c.get("usage")), None)
    if reasons != [response.choice.get("finish_reason")] or usage != STREAM_OUTPUT:
        return failed(
            f"finish reasons {reasons}, {usage} tokens in usage, expected {STREAM_OUTPUT}"
        )
    if (ids, text) == (response.token_ids, response.choice.get("text")):
        return passed(f"the same {STREAM_OUTPUT} tokens in {len(chunks)} events")
    if target.complete(prompt, STREAM_OUTPUT).token_ids != response.token_ids:
        return cannot_tell("greedy outputs are not repeatable, so two cannot be compared")
    return failed(f"streamed {text!r}, not streamed {response.choice.get('text')!r}")


GREEDY_PROMPT, GREEDY_OUTPUT, GREEDY_REPEATS = 150, 24, 4


def greedy(target: ProbeTarget) -> ProbeResult:
    """The same prompt at temperature 0 gives the same tokens, on any worker.

    With llama.cpp the first output, of the prompt that is not cached, may differ. Without a graph,
    penstock recognizes such a cache by the number of cached tokens, and cannot tell a mocker's
    output from that of faulty workers.
    """
    if target.is_mocked:
        return cannot_tell("a mocker runs, and its output is random")
    prompt = target.prompt(GREEDY_PROMPT)
    responses = _comparable(
        target, [target.complete(prompt, GREEDY_OUTPUT) for _ in range(GREEDY_REPEATS)]
    )
    if len(responses) < 2:
        return cannot_tell("equal requests went to different workers, with separate caches")
    tokens = [response.token_ids for response in responses]
    if len(tokens[0]) != GREEDY_OUTPUT:
        return cannot_tell(f"{len(tokens[0])} token ids for an output of {GREEDY_OUTPUT} tokens")
    if target.expected is None and len({tuple(ids) for ids in tokens}) == len(tokens):
        return cannot_tell(
            f"all {len(tokens)} outputs of one prompt differ, as with a mocker",
            "Add --graph GRAPH: it names the engine.",
        )
    if any(other != tokens[0] for other in tokens):
        return failed(
            f"{len(tokens)} outputs of one prompt differ: {tokens[0]} and "
            f"{next(other for other in tokens if other != tokens[0])}",
            "Workers differ in weights or data types, or the arithmetic depends on the batch.",
        )
    cached = responses[-1].cached_tokens
    return passed(
        f"{len(tokens)} times the same {GREEDY_OUTPUT} tokens; last time {cached} of "
        f"{GREEDY_PROMPT} prompt tokens from the cache"
    )


def _comparable(target: ProbeTarget, responses: list[ApiResponse]) -> list[ApiResponse]:
    """Without those whose prompt was not cached, if the engine caches all tokens but the last."""
    if target.caches_single_tokens:
        return responses[1:]
    cached = [response for response in responses if response.cached_tokens == GREEDY_PROMPT - 1]
    return cached if target.expected is None and cached else responses


MARKERS = (
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<think>",
    "</think>",
    "<tool_call>",
)
# Detokenizing drops special tokens; this remains of Harmony's headers.
REMAINS = re.compile(r"^analysis(?=\S)|assistant(?:final|commentary|analysis)")
NO_VOCABULARY = r"Failed to load Harmony encoding"
NO_VOCABULARY_HINT = (
    "The frontend may lack the parser's vocabulary, and then loses reasoning and tool calls: put "
    "o200k_base.tiktoken on a volume and set model.harmony_vocabulary."
)


def _message_of(
    target: ProbeTarget, question: str, parser: str, **more: Any
) -> Mapping[str, Any] | ProbeResult:
    """The chat message in response to ``question``; a failure when ``parser`` (flag and name) left
    markers in it or lost its content."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 512, **more}
    response = target.post("/v1/chat/completions", {"model": target.model, **body})
    if response.status != 200:
        return failed(f"HTTP {response.status}: {response.text}")
    message: Mapping[str, Any] = response.choice.get("message") or {}
    marker = _leaked(message)
    if marker is not None:
        return failed(f"the client receives {marker}", f"Start the workers with {parser}.")
    if not any(message.get(part) for part in ("content", "reasoning_content", "tool_calls")):
        tokens = (response.body.get("usage") or {}).get("completion_tokens")
        matches = target.log_matches(NO_VOCABULARY)
        reason = f" (the frontend's log: {matches[-1][0]})" if matches else ""
        return failed(f"an empty message of {tokens} tokens{reason}", NO_VOCABULARY_HINT)
    return message


def _leaked(message: Mapping[str, Any]) -> str | None:
    """The part of the chat format that the client receives; None when there is none."""
    received = f"{message.get('content') or ''}{message.get('reasoning_content') or ''}"
    remains = REMAINS.search(received)
    if remains is not None:
        return f"{remains[0]!r} (Harmony headers without their special tokens)"
    return next((marker for marker in MARKERS if marker in received), None)


REASONING_QUESTION = (
    "A train leaves at 9:40 and arrives at 11:05. How many minutes is that? Think first."
)


def reasoning_parser(target: ProbeTarget) -> ProbeResult:
    """Reasoning is separate from the content, and neither contains chat-format markers."""
    if target.expected is None or target.expected.reasoning_parser is None:
        return cannot_tell("the graph configures no reasoning parser")
    message = _message_of(
        target, REASONING_QUESTION, f"--dyn-reasoning-parser {target.expected.reasoning_parser}"
    )
    if isinstance(message, ProbeResult):
        return message
    if not message.get("reasoning_content"):
        return cannot_tell("the model did not reason", "Use a model that reasons.")
    return passed(
        f"{len(message['reasoning_content'])} characters of reasoning, separate from the content"
    )


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
TOOL_QUESTION = "What is the weather in Oslo now? Use the tool."


def tool_call_parser(target: ProbeTarget) -> ProbeResult:
    """A tool call arrives in `tool_calls` with a known name and JSON arguments."""
    if target.expected is None or target.expected.tool_call_parser is None:
        return cannot_tell("the graph configures no tool-call parser")
    parser = f"--dyn-tool-call-parser {target.expected.tool_call_parser}"
    message = _message_of(target, TOOL_QUESTION, parser, tools=[TOOL])
    if isinstance(message, ProbeResult):
        return message
    calls = message.get("tool_calls") or []
    if not calls:
        if "get_weather" in (message.get("content") or ""):
            return failed("the call is in the content", f"Start the workers with {parser}.")
        return cannot_tell("the model called no tool", "Use a model that calls tools.")
    function = calls[0].get("function") or {}
    try:
        arguments = json.loads(function.get("arguments") or "")
    except ValueError:
        return failed(f"the arguments are not JSON: {function.get('arguments')!r}")
    if function.get("name") != "get_weather":
        return failed(
            f"the call names {function.get('name')!r}, which is not a tool of the request"
        )
    return passed(f"get_weather({arguments})")


CANCELED_PROMPT = 16
SHORT_PREFILL = 64  # tokens; the first prompt has twice as many
PREFILL_S = 1.0  # of the prompts whose clients leave, more than of a short one
PREFILLS, MOST_PREFILLS = 8, 96  # of each worker, and of all: httpx has 100 connections
LEFT = 0.25  # share of the time of a prefill, after which clients leave
# Times a prefill, which a short request may wait: half of the prompts of a worker. llama.cpp
# notices within 1 s that clients have left, and ends the batch that it has begun.
MOST_WAITED = PREFILLS / 2
WITHOUT_CLIENT = "prefills run to the end without a client"
REMOTE = (
    f"{WITHOUT_CLIENT}, because Dynamo does not tell prefill workers that a client has left "
    "(github.com/ai-dynamo/dynamo/issues/13691, pull/14507)"
)
LIMIT = "Limit at the gateway how many requests a client may send"
CANCEL_S = 5.0
INFLIGHT = ("dynamo_component_inflight_requests",)
RUNNING = (
    "vllm:num_requests_running",
    "trtllm_num_requests_running",
    "trtllm:num_requests_running",
)


def cancel(target: ProbeTarget) -> ProbeResult:
    """A client that disconnects frees its slot: its request is canceled, also in prefill."""
    metrics = target.metrics()
    limit = int(metrics.gauge(CONTEXT_LENGTH, model=target.model) or 0)
    before = metrics.total(INFLIGHT, dynamo_endpoint="generate")
    if before is None or not limit:
        return cannot_tell(
            "no worker exports its requests in flight", "Give the workers' metrics (--metrics)."
        )
    if before:
        return cannot_tell(f"{before:.0f} other requests are in flight", "Stop other traffic.")
    stream = target.stream(target.prompt(CANCELED_PROMPT), limit - CANCELED_PROMPT)
    started = time.monotonic()
    for _ in range(3):
        next(stream, None)
    seconds_per_token = (time.monotonic() - started) / 3
    during = _inflight(target)
    stream.close()
    if not during:
        return cannot_tell("no worker showed the request in flight", "Give every worker's metrics.")
    client_left = time.monotonic()
    if not target.wait_for(lambda: _inflight(target) == 0, CANCEL_S):
        return failed(
            f"{_inflight(target):.0f} requests in flight {CANCEL_S:.0f} s after the client left",
            "A proxy in front of the frontend keeps the connection open.",
        )
    if seconds_per_token * (limit - CANCELED_PROMPT) < CANCEL_S:
        return cannot_tell(
            "the complete output takes no longer than the time limit of the cancellation"
        )
    running = target.metrics().total(RUNNING)
    engine = "" if running is None else f", {running:.0f} running in the engines"
    free = f"the slot was free {time.monotonic() - client_left:.1f} s after the client left{engine}"
    return canceled_prefills(target, free, limit)


def canceled_prefills(target: ProbeTarget, free: str, limit: int) -> ProbeResult:
    """Whether a short request has to wait for prompts whose clients left before the first token.

    ``free``: what is known about streams. ``limit``: the context length.
    """
    short_s = min(_first_token_s(target, CANCELED_PROMPT) for _ in range(2))
    tokens, long_s = SHORT_PREFILL, 0.0
    while long_s < short_s + PREFILL_S and tokens <= limit // 4:
        tokens *= 2
        long_s = _first_token_s(target, tokens)
    if long_s < short_s + PREFILL_S:
        fast = f"{tokens} tokens take {long_s:.1f} s"
        return passed(f"{free}; {fast}, too short to see whether a prefill is canceled")
    prefilling, are_remote = _prefilling(target)
    count = min(PREFILLS * prefilling, MOST_PREFILLS)
    prompts = [target.prompt(tokens) for _ in range(count)]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda prompt: target.leave(prompt, long_s * LEFT), prompts))
    after_s = _first_token_s(target, CANCELED_PROMPT)
    waited = (
        f"after the clients of {count} prompts of {tokens} tokens left, a short request took "
        f"{after_s:.1f} s ({short_s:.1f} s before; one such prompt takes {long_s:.1f} s)"
    )
    if after_s <= short_s + MOST_WAITED * long_s:
        return passed(f"{free}; {waited}")
    if are_remote:  # nothing in the graph is wrong
        return passed(f"{free}; {waited}: {REMOTE}. {LIMIT}")
    return failed(f"{free}; {waited}: {WITHOUT_CLIENT}", LIMIT)


def _prefilling(target: ProbeTarget) -> tuple[int, bool]:
    """(number of the workers that compute prompts, 1 if it is not known; whether these are prefill
    workers)."""
    try:
        roles = [instance.role for instance in target.instances()]
    except NotReportedError:
        return 1, False
    prefills = roles.count(Role.PREFILL)
    return prefills or len(roles) or 1, prefills > 0


def _first_token_s(target: ProbeTarget, tokens: int) -> float:
    """Seconds until the first token of a new prompt."""
    started = time.monotonic()
    with closing(target.stream(target.prompt(tokens), 1)) as events:
        next(events, None)
    return time.monotonic() - started


def _inflight(target: ProbeTarget) -> float:
    return target.metrics().total(INFLIGHT, dynamo_endpoint="generate") or 0.0
