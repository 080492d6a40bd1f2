"""Prompts as token ids, which have exactly the lengths and shared prefixes of the workload."""

from __future__ import annotations

from random import Random

from penstock.workload.request import BLOCK_TOKENS, Request

FIRST_ID, LAST_ID = 100, 4000  # within the packaged tokenizer's 4096, beyond special ones


def prompt(request: Request, salt: str) -> list[int]:
    """Token ids; blocks with the same id have the same tokens. ``salt`` changes all of them."""
    ids: list[int] = []
    for block in request.blocks:
        draw = Random(f"{salt} {block}")
        ids += (draw.randrange(FIRST_ID, LAST_ID) for _ in range(BLOCK_TOKENS))
    return ids[: request.input_tokens]
