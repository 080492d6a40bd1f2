"""What a parser makes of one line or message: a request, or the reason why there is none."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, lcm

from penstock.text.numbers import limit_text
from penstock.workload.request import BLOCK_TOKENS

LARGEST_TOKENS = 10**9
LARGEST_MS = 10**14  # the year 5138; larger values are microseconds or nanoseconds


class BrokenRecordError(Exception):
    """A record that cannot be read; the message contains nothing of a prompt or a key."""


class LeftOut(StrEnum):
    """Records that are valid and not part of a trace."""

    OTHER_EVENT = "records of other events"
    SERVER_MESSAGE = "messages of Envoy itself"
    OTHER_PATH = "requests that do not generate text (path or method)"
    FAILED = "requests that failed (status not 200)"
    NO_LENGTHS = "records without token counts"
    DUPLICATE = "duplicate records"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, without its text. Times are Unix times in ms."""

    key: str  # of its log; records with equal keys and arrivals are duplicates
    arrival_ms: float
    end_ms: float
    writer_ms: float | None = None  # of the log writer's monotonic clock, at the end
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    # One for each block of `block_tokens` of the input; equal ones stand for equal prefixes.
    prefixes: array[int] = field(default_factory=lambda: array("Q"))
    block_tokens: int = BLOCK_TOKENS
    workers: tuple[int, ...] = ()  # Dynamo's IDs of those that served it


def trace_block_tokens(block_tokens: int) -> int:
    """The size of a trace's blocks for hashes per ``block_tokens``: a multiple of both sizes."""
    return lcm(block_tokens, BLOCK_TOKENS)


def prefixes_of(hashes: list[int], block_tokens: int, input_tokens: int) -> array[int]:
    """One hash per block of the trace.

    Each hash stands for the whole prompt up to its end, so a trace's block needs only the last one
    in it. Raises BrokenRecordError if the number of hashes contradicts the length.
    """
    needed = ceil(input_tokens / block_tokens)
    if len(hashes) != needed:
        length = f"{input_tokens} tokens in blocks of {block_tokens}"
        raise BrokenRecordError(f"{len(hashes)} prefix hashes instead of {needed} for {length}")
    step = trace_block_tokens(block_tokens) // block_tokens
    kept = hashes[step - 1 :: step]
    if len(hashes) % step:
        kept.append(hashes[-1])
    return array("Q", kept)


def checked_time(ms: float, name: str) -> float:
    """BrokenRecordError for a number that is no Unix time in ms."""
    if not 0 < ms < LARGEST_MS:
        raise BrokenRecordError(f"{name} is {limit_text(ms)}, not a Unix time in ms")
    return ms


def checked_tokens(count: int | None, name: str) -> int | None:
    """BrokenRecordError for a number of tokens that is negative or too large."""
    if count is not None and not 0 <= count <= LARGEST_TOKENS:
        raise BrokenRecordError(f"{name} is {count}, not a number of tokens")
    return count
