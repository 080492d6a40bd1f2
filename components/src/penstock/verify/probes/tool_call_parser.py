"""A tool call arrives in `tool_calls` with a known name and JSON arguments."""

from __future__ import annotations

import json

from penstock.verify.probes.harmony import message_of
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

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
QUESTION = "What is the weather in Oslo now? Use the tool."


def probe(target: ProbeTarget) -> ProbeResult:
    if target.expected is None or target.expected.tool_call_parser is None:
        return cannot_tell("the graph configures no tool-call parser")
    parser = f"--dyn-tool-call-parser {target.expected.tool_call_parser}"
    message = message_of(target, QUESTION, parser, tools=[TOOL])
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
