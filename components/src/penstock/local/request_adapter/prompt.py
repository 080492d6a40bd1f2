"""The prompt of a request: its text, its parts, and what a chat template cannot render. Pure."""

from __future__ import annotations

from typing import Any

from .model import Model

Body = dict[str, Any]

TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def messages(body: Body) -> list[Body]:
    """The messages of a chat completion, or the items of a response's input."""
    items = body.get(_name(body))
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _name(body: Body) -> str:
    return "messages" if body.get("messages") else "input"


def parts(message: Body) -> list[Body]:
    """The content parts of one message; none if its content is a string."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict)]


def media(body: Body) -> str | None:
    """Which content part is not text: its type and place, else None."""
    for index, message in enumerate(messages(body)):
        for place, part in enumerate(parts(message)):
            if part.get("type") not in TEXT_PARTS:
                where = f"{_name(body)}[{index}].content[{place}]"
                return f"a content part of type {part.get('type')!r} ({where})"
    return None


def empty_content(body: Body) -> str | None:
    """The place of a message whose content is a list without parts, else None."""
    for index, message in enumerate(messages(body)):
        if message.get("content") == []:
            return f"{_name(body)}[{index}].content"
    return None


def reference(body: Body) -> str | None:
    """The place of an item of a response's input that only names another one, else None."""
    for index, item in enumerate(messages(body)):
        if item.get("type") == "item_reference":
            return f"{_name(body)}[{index}]"
    return None


def unknown_token(body: Body, model: Model) -> int | None:
    """A token id of the prompt that is not in the vocabulary, else None."""
    if model.vocabulary is None:
        return None
    tokens = (token for prompt in _tokens(body) for token in prompt if isinstance(token, int))
    return next((token for token in tokens if not 0 <= token < model.vocabulary), None)


def prompt_ids(body: Body) -> int:
    """The length of the longest prompt that is given as token ids."""
    return max((len(prompt) for prompt in _tokens(body)), default=0)


def _tokens(body: Body) -> list[list[Any]]:
    """The prompts that are given as token ids."""
    prompt = body.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        return []
    if all(isinstance(token, int) for token in prompt):
        return [prompt]
    return [tokens for tokens in prompt if isinstance(tokens, list)]


def prompt_text(body: Body) -> str:
    """All text of the prompt, to count its tokens."""
    prompt = body.get("prompt") or body.get("input")
    texts = [prompt] if isinstance(prompt, str) else []
    texts += [p for p in prompt if isinstance(p, str)] if isinstance(prompt, list) else []
    for message in messages(body):
        content = message.get("content")
        texts += [content] if isinstance(content, str) else []
        texts += [str(part.get("text", "")) for part in parts(message)]
    return "\n".join(texts)


def renderable(body: Body, model: Model) -> Body:
    """The messages or the input to send instead, as `{name: items}`; empty if all can be rendered.

    A template without tool calls fails at a message whose content is null, as that of a tool call
    is. It would render nothing of the call, so the content becomes "". Templates render no
    refusal: it becomes the content, as Dynamo makes it for /v1/responses.
    """
    name = _name(body)
    items = body.get(name)
    if not isinstance(items, list):
        return {}
    if name == "messages":
        made = [_with_content(item, model) if _is_assistant(item) else item for item in items]
    else:
        made = items if model.renders_tool_calls else _without_calls(items)
    return {name: made} if made != items else {}


def _is_assistant(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "assistant"


def _with_content(message: Body, model: Model) -> Body:
    if message.get("content") is None:
        if model.renders_tool_calls and message.get("tool_calls"):
            return message
        return message | {"content": message.get("refusal") or ""}
    if any(part.get("type") == "refusal" for part in parts(message)):
        return message | {"content": [_as_text(part) for part in message["content"]]}
    return message


def _as_text(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") != "refusal":
        return part
    return {"type": "text", "text": part.get("refusal")}


def _without_calls(items: list[Any]) -> list[Any]:
    """Dynamo adds the calls to the assistant's message before them, else to one without content."""
    made: list[Any] = []
    for item in items:
        if not isinstance(item, dict) or item.get("type") != "function_call":
            made.append(item)
        elif not made or not _is_assistant(made[-1]):
            made.append({"role": "assistant", "content": ""})
    return made
