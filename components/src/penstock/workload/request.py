"""One request of a workload, sampled or recorded."""

from __future__ import annotations

from dataclasses import dataclass

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
        """Of its input and its output."""
        return self.input_tokens + self.output_tokens
