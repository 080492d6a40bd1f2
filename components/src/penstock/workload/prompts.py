"""Prompts as token ids or, for the chat API, which takes no token ids, as text.

Token ids have exactly the lengths and shared prefixes of the workload.
"""

from __future__ import annotations

from random import Random

from penstock.workload.request import BLOCK_TOKENS, Request

FIRST_ID, LAST_ID = 100, 4000  # within the packaged tokenizer's 4096, beyond special ones
# Each is one token, with the space before it, in the vocabularies of gpt-oss (o200k_base) and
# SmolLM2; other vocabularies for English have most of them too.
WORDS = tuple(
    word
    for line in (
        "time year people way day man thing woman life child world school state family",
        "student group country problem hand part place case week company system program",
        "question work government number night point home water room mother area money story",
        "fact month lot right study book eye job word business issue side kind head house",
        "service friend father power hour game line end member law car city community name",
        "president team minute idea kid body information back parent face others level office",
        "door health person art war history party result change morning reason research girl",
        "guy moment air teacher force education",
    )
    for word in line.split()
)


def prompt(request: Request, salt: str) -> list[int]:
    """Token ids; blocks with the same id have the same tokens. ``salt`` changes all of them."""
    ids: list[int] = []
    for block in request.blocks:
        draw = Random(f"{salt} {block}")
        ids += (draw.randrange(FIRST_ID, LAST_ID) for _ in range(BLOCK_TOKENS))
    return ids[: request.input_tokens]


def prompt_text(request: Request, salt: str) -> str:
    """One word for each input token; blocks with the same id have the same words. ``salt`` changes
    all of them. The chat template of the server adds tokens."""
    words: list[str] = []
    for block in request.blocks:
        words += Random(f"{salt} {block}").choices(WORDS, k=BLOCK_TOKENS)
    return "".join(f" {word}" for word in words[: request.input_tokens])
