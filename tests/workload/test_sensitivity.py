"""Other traffic of the same requests."""

from penstock.workload import BLOCK_TOKENS, Request
from penstock.workload.request import double_inputs, without_shared_prefixes


def request(tokens: int, *blocks: int) -> Request:
    return Request(at_ms=0.0, input_tokens=tokens, output_tokens=5, blocks=blocks)


def test_longer_prompts_share_twice_as_much() -> None:
    first, second = double_inputs((request(100, 1, 2), request(100, 1, 3)))
    assert first.input_tokens == 200
    assert len(first.blocks) == -(-200 // BLOCK_TOKENS)
    assert first.blocks[:2] == second.blocks[:2]
    assert not set(first.blocks[2:]) & set(second.blocks[2:])
    assert first.output_tokens == 5


def test_requests_without_blocks_stay_without() -> None:
    assert double_inputs((request(100),))[0].blocks == ()


def test_nothing_shared_has_no_blocks_in_common() -> None:
    (only,) = without_shared_prefixes((request(100, 1, 2),))
    assert only.blocks == ()
    assert only.input_tokens == 100
