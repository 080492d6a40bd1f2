"""One request of a workload, as it is drawn or read."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_TOKENS = 64  # of one entry of `Request.blocks`; divides into every engine's blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``at_ms``: its arrival, None for a later turn, which comes ``think_ms`` after the answer to
    the turn before; ``session``: what its turns have in common. ``blocks``: ids of its prompt's
    blocks of ``block_tokens`` tokens; equal ids, from the first on, are equal tokens."""

    at_ms: float | None
    think_ms: float = 0.0
    session: str = ""
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
