"""Prompts as text."""

from __future__ import annotations

from penstock.workload.prompts import prompt_text
from penstock.workload.request import BLOCK_TOKENS, Request


def text(tokens: int, *blocks: int, salt: str = "a") -> str:
    request = Request(at_ms=0.0, input_tokens=tokens, output_tokens=1, blocks=blocks)
    return prompt_text(request, salt)


def test_a_word_for_each_token() -> None:
    assert len(text(70, 1, 2).split()) == 70


def test_prefixes_are_shared_as_far_as_the_blocks() -> None:
    first, second = text(100, 1, 2).split(), text(100, 1, 3).split()
    assert first[:BLOCK_TOKENS] == second[:BLOCK_TOKENS]
    assert first[BLOCK_TOKENS:] != second[BLOCK_TOKENS:]


def test_another_salt_changes_all_blocks() -> None:
    first, second = text(128, 1, 2).split(), text(128, 1, 2, salt="b").split()
    assert first[:10] != second[:10]
    assert first[BLOCK_TOKENS : BLOCK_TOKENS + 10] != second[BLOCK_TOKENS : BLOCK_TOKENS + 10]
