"""Variants of a workload's requests, for the sensitivity analysis of `plan`."""

from __future__ import annotations

from dataclasses import replace

from penstock.workload.request import BLOCK_TOKENS, Request

Requests = tuple[Request, ...]


def double_inputs(requests: Requests) -> Requests:
    """Inputs and shared prefixes twice as long."""
    return tuple(map(_doubled, requests))


def _doubled(request: Request) -> Request:
    tokens = 2 * request.input_tokens
    doubled = [part for block in request.blocks for part in (2 * block, 2 * block + 1)]
    needed = -(-tokens // BLOCK_TOKENS)
    return replace(request, input_tokens=tokens, blocks=tuple(doubled[:needed]))


def without_shared_prefixes(requests: Requests) -> Requests:
    """The same lengths and arrivals, without a shared prefix."""
    return tuple(replace(request, blocks=()) for request in requests)
