"""Other traffic made of the same requests, for what-if questions."""

from __future__ import annotations

from dataclasses import replace

from penstock.workload.request import BLOCK_TOKENS, Request

Requests = tuple[Request, ...]


def double_inputs(requests: Requests) -> Requests:
    """Prompts twice as long, which share twice as much."""
    return tuple(map(_doubled, requests))


def _doubled(request: Request) -> Request:
    tokens = 2 * request.input_tokens
    doubled = [part for block in request.blocks for part in (2 * block, 2 * block + 1)]
    needed = -(-tokens // BLOCK_TOKENS)
    return replace(request, input_tokens=tokens, blocks=tuple(doubled[:needed]))


def without_shared_prefixes(requests: Requests) -> Requests:
    """The same lengths at the same times, and no two prompts with a beginning in common."""
    return tuple(replace(request, blocks=()) for request in requests)
