"""Refusals of a prompt that name the place in it. Otherwise Dynamo rejects it without a reason."""

from __future__ import annotations

from .model import Model
from .prompt import Body, empty_content, media, reference, unknown_token
from .refusal import UNSUPPORTED, Refusal


def review_prompt(body: Body, param: str, *, is_text_only: bool, model: Model) -> Refusal | None:
    """``param``: of the prompt; ``is_text_only``: whether the engine takes no images or audio."""
    if is_text_only and (part := media(body)) is not None:
        return Refusal(
            message=f"{param!r} has {part}, and the engine on this machine accepts text only. "
            "Remove the part, or run a graph with another engine: docs/local-engines.md lists "
            "what each supports.",
            param=param,
            code=UNSUPPORTED,
        )
    if (place := empty_content(body)) is not None:
        return Refusal(
            message=f"{place!r} is an empty list. Give it at least one part, or a string.",
            param=param,
            code=None,
        )
    if (place := reference(body)) is not None:
        return Refusal(
            message=f"{place!r} refers to a stored item. Dynamo stores none, and would ignore it: "
            "send the item itself.",
            param=param,
            code=UNSUPPORTED,
        )
    if (token := unknown_token(body, model)) is not None:
        return Refusal(
            message=f"{param!r} has the token id {token}, but the model's vocabulary has the ids "
            f"0 to {(model.vocabulary or 0) - 1}. Encode the prompt with the model's tokenizer.",
            param=param,
            code=None,
        )
    return None
