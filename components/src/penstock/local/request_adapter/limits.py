"""How large a request may be: what a frontend computes for it before it can refuse it. Pure.

Dynamo renders the chat template and counts the tokens of a prompt in the frontend. 16,000 empty
messages take it 8 to 10 s, also after the client has left.
"""

from __future__ import annotations

from dataclasses import dataclass

from .prompt import Body, media
from .refusal import Refusal

MOST_MESSAGES = 1024
ROLES_OF_TOOLS = 1000
# More than almost all text has: English about 4 to 5. JSON writes some characters with 6.
BYTES_PER_TOKEN = 16
OTHER_BYTES = 64 * 2**10  # of tools, parameters and the format
# A longer prompt is probably refused. Such requests wait for each other: Dynamo would count the
# tokens of each on a core of its own.
LIKELY_BYTES_PER_TOKEN = 8
UNKNOWN_BYTES = 2 * 2**20  # if the context length is not known
MOST_PARSED_BYTES = 32 * 2**20


def most_bytes(context_tokens: int | None) -> int:
    """Of a request's body, for a model with this context length; as `Limits.for_context`."""
    if context_tokens is None:
        return UNKNOWN_BYTES
    return BYTES_PER_TOKEN * context_tokens + OTHER_BYTES


def is_probably_too_long(size: int, context_tokens: int | None) -> bool:
    """Whether a prompt has more bytes than almost all that fit the context length."""
    if context_tokens is None:
        return False
    return size > LIKELY_BYTES_PER_TOKEN * context_tokens + OTHER_BYTES


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """Of one request."""

    max_messages: int = MOST_MESSAGES
    max_bytes: int | None = None
    """None: `most_bytes`."""

    def refused_unparsed(self, raw: bytes, param: str, context: int | None) -> Refusal | None:
        """For a body that would cost too much to parse. ``param``: the field with the messages.

        Each message has the key `role`, and quotes in a text are escaped. To parse 16,000 messages
        takes 10 ms. Schemas of tools have such keys too, so `refused` decides unless there are far
        more.
        """
        if len(raw) > MOST_PARSED_BYTES and (refusal := self._too_large(len(raw), None, context)):
            return refusal
        if raw.count(b'"role"') <= 2 * self.max_messages + ROLES_OF_TOOLS:
            return None
        return _refused(f"{param} has more elements than the limit of {self.max_messages}.", param)

    def refused(self, size: int, body: Body | None, context: int | None) -> Refusal | None:
        """``size``: in bytes; ``body``: None if it is no JSON object."""
        return self._too_large(size, body, context) or self._too_many(body or {})

    def _too_large(self, size: int, body: Body | None, context: int | None) -> Refusal | None:
        """Media is refused by its own rule."""
        limit = most_bytes(context) if self.max_bytes is None else self.max_bytes
        if size <= limit or (body is not None and media(body) is not None):
            return None
        known = f" for a context of {context} tokens" if context and not self.max_bytes else ""
        message = f"The request has {size} bytes, more than the limit of {limit}{known}."
        return _refused(f"{message} Shorten the prompt.", _prompt(body))

    def _too_many(self, body: Body) -> Refusal | None:
        """For a list of more messages, input items or prompts than are accepted."""
        most = self.max_messages
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
