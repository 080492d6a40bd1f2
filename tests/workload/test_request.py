"""Blocks of requests that a trace records without any."""

from __future__ import annotations

from penstock.workload import BLOCK_TOKENS, Request
from penstock.workload.request import with_blocks


def request(tokens: int, *blocks: int) -> Request:
    return Request(at_ms=0.0, input_tokens=tokens, output_tokens=1, blocks=blocks)


def test_a_request_without_blocks_gets_some_that_no_other_has() -> None:
    given = [request(BLOCK_TOKENS, 3), request(BLOCK_TOKENS + 1), request(1)]
    assert [one.blocks for one in with_blocks(given)] == [(3,), (4, 5), (6,)]
