"""How many tokens prefix caches must hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.simulate.study import Row
from penstock.simulate.working_set import needed_again, possible_hits, working_set
from penstock.workload import BLOCK_TOKENS, Request
from penstock.workload.load import parse_workload
from tests.plan.simulated_study import replayed_deployment
from tests.simulate.test_metrics import steady


def request(at_ms: float | None, *blocks: int, session: str = "", think_ms: float = 0.0) -> Request:
    return Request(
        at_ms=at_ms,
        input_tokens=len(blocks) * BLOCK_TOKENS,
        output_tokens=1,
        blocks=blocks,
        session=session,
        think_ms=think_ms,
    )


@pytest.mark.parametrize(
    ("requests", "blocks"),
    [
        # Block 1 is needed until 30, block 2 from 20 to 40, and the rest only once.
        ([request(0, 1, 9), request(20, 2, 8), request(30, 1), request(40, 2, 7)], 2),
        # One after the other, prefixes take the same space.
        ([request(0, 1), request(10, 1), request(20, 2), request(30, 2)], 1),
        ([request(0, 1), request(10, 2)], 0),
    ],
)
def test_blocks_count_from_their_first_use_to_their_last(
    requests: list[Request], blocks: int
) -> None:
    assert needed_again(requests, request_ms=5) == blocks * BLOCK_TOKENS


@pytest.mark.parametrize(("think_ms", "blocks"), [(0.0, 1), (100.0, 2)])
def test_a_conversation_needs_its_history_until_its_next_turn(think_ms: float, blocks: int) -> None:
    first = [request(0, 1, session="a"), request(None, 1, 2, session="a", think_ms=think_ms)]
    second = [request(60, 3, session="b"), request(None, 3, 4, session="b", think_ms=think_ms)]
    assert needed_again([*first, *second], request_ms=50) == blocks * BLOCK_TOKENS


PROMPTS = parse_workload(
    "requests: 100\ninput: 4096\noutput: 8\narrival: {poisson: 4}\n"
    "system_prompts: {tokens: 2048, count: 3}\n",
    "prompts.yaml",
)


def row(**engine: bool | int) -> Row:
    deployment = replayed_deployment()
    (pool,) = deployment.pools
    changed = {**pool.engine, "engine": {**pool.engine["engine"], **engine}}
    pools = (replace(pool, engine=changed),)
    return Row(replayable=replace(deployment, pools=pools), metrics=(), results=(steady(),))


def test_system_prompts_are_compared_with_the_cache_of_the_workers() -> None:
    needed = working_set(row(), PROMPTS)
    assert needed is not None
    assert needed.tokens == 3 * 2048
    assert needed.fits
    small = working_set(row(num_gpu_blocks=10), PROMPTS)
    assert small is not None
    assert not small.fits
    assert "the working set does not fit" in str(small)


def test_nothing_is_compared_without_a_cache_or_shared_prefixes() -> None:
    alone = parse_workload("requests: 9\ninput: 99\noutput: 8\narrival: {poisson: 4}\n", "a.yaml")
    assert working_set(row(enable_prefix_caching=False), PROMPTS) is None
    assert working_set(row(), alone) is None


def test_possible_hits_include_outputs_where_workers_have_them() -> None:
    first = replace(request(0, 1, 2, session="a"), output_tokens=2 * BLOCK_TOKENS)
    later = request(None, 1, 2, 3, 4, 5, session="a")
    assert possible_hits([first, later]) == 2 / 5
    assert possible_hits([first, later], with_outputs=True) == 4 / 5
