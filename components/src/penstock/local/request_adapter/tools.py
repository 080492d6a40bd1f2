"""The tools of a request, as Dynamo and the engines understand them. Pure."""

from __future__ import annotations

from typing import Any

from .prompt import Body

# OpenAI's meaning of a function without parameters. An engine would generate any JSON value, and
# without `const`, a small model on vLLM writes white space between the braces until the limit.
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False, "const": {}}

# Keys of a JSON schema that allow and forbid nothing. Pydantic and zod write some of them.
ANNOTATIONS = frozenset({"title", "description", "$schema", "$id", "$comment"})


def has_format(body: Body) -> bool:
    """A format other than text, of chat completions or of responses."""
    text = body.get("text")
    form = body.get("response_format") or (text.get("format") if isinstance(text, dict) else None)
    return isinstance(form, dict) and form.get("type") not in (None, "text")


def excludes_calls(body: Body) -> bool:
    """Whether the format of the output leaves no room for the calls of its optional tools.

    Dynamo's parsers would then take a JSON object with a `name` for a call. A grammar or a regular
    expression may describe calls.
    """
    is_json = has_format(body) or body.get("guided_json") is not None
    return bool(body.get("tools")) and body.get("tool_choice") in (None, "auto") and is_json


def understood(body: Body) -> Body:
    """Parameters to set instead of the request's own."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return {}
    changed: Body = {"tool_choice": "none"} if excludes_calls(body) else {}
    made = [_with_parameters(tool) for tool in tools]
    requires_call = body.get("tool_choice") not in (None, "auto", "none")
    if requires_call and body.get("parallel_tool_calls") is None:
        # Otherwise a small model on vLLM writes text after the call until the limit.
        changed |= {"parallel_tool_calls": False}
    return changed | ({"tools": made} if made != tools else {})


def _with_parameters(tool: Any) -> Any:
    """Chat completions nest the function; responses do not."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    function = tool.get("function")
    if isinstance(function, dict):
        return tool | {"function": function | _parameters(function)}
    return tool | _parameters(tool)


def _parameters(function: Body) -> Body:
    given = function.get("parameters")
    if given is not None and not isinstance(given, dict):
        return {}
    rest = {key: value for key, value in (given or {}).items() if key not in ANNOTATIONS}
    filled = any(value not in ({}, [], False, "object") for value in rest.values())
    return {} if filled else {"parameters": NO_PARAMETERS}
