"""One request of a workload, sampled or recorded, its variants and its prompt.

A prompt is token ids or, for the chat API, which takes no token ids, text. Token ids have exactly
the lengths and shared prefixes of the workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

BLOCK_TOKENS = 64  # of one entry of `Request.blocks`; divides every engine's block size


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    at_ms: float | None  # its arrival; None for a later turn of a conversation
    think_ms: float = 0.0  # from the end of the turn before to the arrival of this one
    session: str = ""  # the conversation; equal for all its turns
    input_tokens: int
    output_tokens: int
    # Ids of the input's blocks of `BLOCK_TOKENS` tokens. Requests share a prefix as far as their
    # first ids are equal.
    blocks: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """The tokens of its input and its output."""
        return self.input_tokens + self.output_tokens


def with_blocks(requests: Sequence[Request]) -> tuple[Request, ...]:
    """A request without blocks gets new ones, which it shares with no other."""
    unused = 1 + max((max(r.blocks, default=0) for r in requests), default=0)
    complete = []
    for request in requests:
        count = 0 if request.blocks else -(-request.input_tokens // BLOCK_TOKENS)
        blocks = request.blocks or tuple(range(unused, unused + count))
        complete.append(replace(request, blocks=blocks))
        unused += count
    return tuple(complete)


def double_inputs(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Inputs and shared prefixes twice as long."""
    return tuple(map(_doubled, requests))


def _doubled(request: Request) -> Request:
    tokens = 2 * request.input_tokens
    doubled = [part for block in request.blocks for part in (2 * block, 2 * block + 1)]
    needed = -(-tokens // BLOCK_TOKENS)
    return replace(request, input_tokens=tokens, blocks=tuple(doubled[:needed]))


def without_shared_prefixes(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """The same lengths and arrivals, without a shared prefix."""
    return tuple(replace(request, blocks=()) for request in requests)


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
