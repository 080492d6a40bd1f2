"""One request of a workload, sampled or recorded, and variants for a sensitivity analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
