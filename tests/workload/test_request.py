"""Blocks of requests, their prompts, and variants with other traffic."""

from __future__ import annotations

import pytest

from penstock.workload.request import (
    BLOCK_TOKENS,
    FIRST_ID,
    LAST_ID,
    Request,
    double_inputs,
    prompt,
    prompt_text,
    with_blocks,
    without_shared_prefixes,
)


def request(tokens: int, *blocks: int) -> Request:
    return Request(at_ms=0.0, input_tokens=tokens, output_tokens=1, blocks=blocks)


def test_a_request_without_blocks_gets_new_ones() -> None:
    requests = [request(BLOCK_TOKENS, 3), request(BLOCK_TOKENS + 1), request(1)]
    assert [each.blocks for each in with_blocks(requests)] == [(3,), (4, 5), (6,)]


def words(request: Request, salt: str) -> list[str]:
    return prompt_text(request, salt).split()


@pytest.mark.parametrize("prompt_of", [prompt, words])
def test_equal_blocks_have_equal_tokens_and_another_salt_changes_them(prompt_of: object) -> None:
    assert callable(prompt_of)
    tokens = BLOCK_TOKENS + 10
    first, second = (prompt_of(request(tokens, 1, last), "a") for last in (2, 3))
    assert len(first) == tokens
    assert first[:BLOCK_TOKENS] == second[:BLOCK_TOKENS]
    assert first[BLOCK_TOKENS:] != second[BLOCK_TOKENS:]
    salted = prompt_of(request(tokens, 1, 2), "b")
    assert salted[:BLOCK_TOKENS] != first[:BLOCK_TOKENS]
    assert salted[BLOCK_TOKENS:] != first[BLOCK_TOKENS:]


def test_token_ids_are_within_the_packaged_vocabulary() -> None:
    assert set(prompt(request(200, 1, 2, 3, 4), "")) <= set(range(FIRST_ID, LAST_ID))


def test_longer_prompts_share_twice_as_much() -> None:
    first, second, plain = double_inputs((request(100, 1, 2), request(100, 1, 3), request(100)))
    assert (first.input_tokens, first.output_tokens) == (200, 1)
    assert len(first.blocks) == -(-200 // BLOCK_TOKENS)
    assert first.blocks[:2] == second.blocks[:2]
    assert not set(first.blocks[2:]) & set(second.blocks[2:])
    assert plain.blocks == ()


def test_without_shared_prefixes_a_request_has_no_blocks() -> None:
    (only,) = without_shared_prefixes((request(100, 1, 2),))
    assert (only.blocks, only.input_tokens) == ((), 100)
