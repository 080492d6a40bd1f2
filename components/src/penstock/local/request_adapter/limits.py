"""How large a request may be: what a frontend computes for it before it can refuse it. Pure.

Dynamo renders the chat template and counts the tokens of a prompt in the frontend. 16,000 empty
messages take it 8 to 10 s, also after the client has left.
"""

from __future__ import annotations

from .prompt import Body, media
from .refusal import Refusal

MOST_MESSAGES = 1024
# More than almost all text has: English about 4 to 5. JSON writes some characters with 6.
BYTES_PER_TOKEN = 16
OTHER_BYTES = 64 * 2**10  # of tools, parameters and the format
# A longer prompt is probably refused. Such requests wait for each other: Dynamo would count the
# tokens of each on a core of its own.
LIKELY_BYTES_PER_TOKEN = 8
UNKNOWN_BYTES = 2 * 2**20  # if the context length is not known
MOST_PARSED_BYTES = 32 * 2**20


def most_bytes(context_tokens: int | None) -> int:
    """Of a request's body, for a model with this context length."""
    if context_tokens is None:
        return UNKNOWN_BYTES
    return BYTES_PER_TOKEN * context_tokens + OTHER_BYTES


def is_probably_too_long(size: int, context_tokens: int | None) -> bool:
    """Whether a prompt has more bytes than almost all that fit the context length."""
    if context_tokens is None:
        return False
    return size > LIKELY_BYTES_PER_TOKEN * context_tokens + OTHER_BYTES


def too_large(size: int, body: Body | None, context_tokens: int | None) -> Refusal | None:
    """``size``: in bytes; ``body``: None if it was not parsed. Media is refused by its own rule."""
    limit = most_bytes(context_tokens)
    if size <= limit or (body is not None and media(body) is not None):
        return None
    known = f" for a context of {context_tokens} tokens" if context_tokens else ""
    message = f"The request has {size} bytes, more than the limit of {limit}{known}."
    return _refused(f"{message} Shorten the prompt.", _prompt(body))


def too_many_roles(raw: bytes, param: str, most: int = MOST_MESSAGES) -> Refusal | None:
    """For a body that is not parsed yet: each message has the key `role`, and quotes in a text are
    escaped. To parse 16,000 messages takes 10 ms. ``param``: the field with the messages."""
    if raw.count(b'"role"') <= most:
        return None
    return _refused(f"{param} has more elements than the limit of {most}.", param)


def too_many(body: Body, most: int = MOST_MESSAGES) -> Refusal | None:
    """For a list of more messages, input items or prompts than are accepted."""
    for name in ("messages", "input", "prompt"):
        items = body.get(name)
        if isinstance(items, list) and len(items) > most:
            if all(isinstance(item, int) for item in items):
                continue  # one prompt, as token ids
            message = f"{name} has {len(items)} elements, more than the limit of {most}."
            return _refused(message, name)
    return None


def _refused(message: str, param: str | None) -> Refusal:
    return Refusal(message=message, param=param, code="request_too_large", status=413)


def _prompt(body: Body | None) -> str | None:
    """The field with the prompt."""
    return next((n for n in ("messages", "input", "prompt") if (body or {}).get(n)), None)
