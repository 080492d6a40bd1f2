from __future__ import annotations

from penstock.workload import BLOCK_TOKENS, Request
from penstock.workload.prompts import FIRST_ID, LAST_ID, prompt


def test_equal_blocks_have_equal_tokens_and_another_salt_changes_them() -> None:
    one, other = (
        Request(at_ms=0.0, input_tokens=BLOCK_TOKENS + 10, output_tokens=1, blocks=blocks)
        for blocks in ((1, 2), (1, 3))
    )
    first, second = prompt(one, ""), prompt(other, "")
    assert first[:BLOCK_TOKENS] == second[:BLOCK_TOKENS]
    assert first[BLOCK_TOKENS:] != second[BLOCK_TOKENS:]
    assert prompt(one, "other")[:BLOCK_TOKENS] != first[:BLOCK_TOKENS]
    assert len(first) == BLOCK_TOKENS + 10
    assert min(first) >= FIRST_ID
    assert max(first) < LAST_ID
