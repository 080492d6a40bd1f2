"""Which slot computes a request, and the KV events that describe the slots."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.llamacpp.slots import Block, Changes, Slots, blocks, common_prefix

SIZE = 4


def tokens(*parts: int) -> tuple[int, ...]:
    """Blocks that contain the same number four times."""
    return tuple(part for part in parts for _ in range(SIZE))


def hashes(of: tuple[int, ...]) -> list[int]:
    return [block.hash for block in blocks(of, SIZE)]


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


def test_a_block_is_identified_by_all_tokens_before_it() -> None:
    first, second = blocks(tokens(1, 2), SIZE)
    (other,) = blocks(tokens(2), SIZE)
    assert (first.parent, second.parent) == (None, first.hash)
    assert second.tokens == other.tokens
    assert second.hash != other.hash


def test_tokens_after_the_last_full_block_are_in_no_block() -> None:
    assert [*blocks((1, 2, 3), SIZE)] == []
    assert hashes((*tokens(1), 2, 3)) == hashes(tokens(1))


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [((), (1,), 0), ((1, 2), (1, 2), 2), ((1, 2, 3), (1, 2), 2), ((1, 2, 3), (1, 4, 3), 1)],
)
def test_common_prefix(first: tuple[int, ...], second: tuple[int, ...], shared: int) -> None:
    assert common_prefix(first, second) == common_prefix(second, first) == shared


def test_a_shared_prefix_is_stored_once_and_removed_with_its_last_slot() -> None:
    slots = Slots(2, SIZE)
    first, two = tokens(1, 2), tokens(1, 3)
    assert [b.hash for b in slots.set_content(0, first).stored] == hashes(first)
    assert [b.hash for b in slots.set_content(1, two).stored] == hashes(two)[1:]
    assert slots.set_content(0, ()) == Changes((), (hashes(first)[1],))
    assert slots.set_content(1, ()).removed == tuple(hashes(two))


def test_content_that_grows_stores_only_the_new_block() -> None:
    slots = Slots(1, SIZE)
    slots.set_content(0, tokens(1))
    (stored,) = slots.set_content(0, tokens(1, 2)).stored
    assert stored == Block(tokens(2), hashes(tokens(1, 2))[1], hashes(tokens(1))[0])


CONTENT = st.lists(st.sampled_from([1, 2]), max_size=4).map(lambda parts: tokens(*parts))
STEPS = st.lists(st.tuples(st.integers(0, 2), CONTENT, st.integers(0, 3)), max_size=20)


@given(STEPS)
def test_events_describe_exactly_the_blocks_of_all_slots(
    steps: list[tuple[int, tuple[int, ...], int]],
) -> None:
    slots = Slots(3, SIZE)
    router: Counter[int] = Counter()
    content: list[tuple[int, ...]] = [()] * 3
    for slot, full, missing in steps:
        content[slot] = full[: max(0, len(full) - missing)]
        changes = slots.set_content(slot, content[slot])
        for block in changes.stored:
            assert block.parent is None or router[block.parent] == 1, "its parent is unknown"
            router[block.hash] += 1
        router.subtract(changes.removed)
        expected = {number for prompt in content for number in hashes(prompt)}
        assert {n for n, count in router.items() if count} == expected
        assert set(router.values()) <= {0, 1}


@in_a_loop
async def test_a_prompt_gets_the_slot_with_its_prefix() -> None:
    slots = Slots(3, SIZE)
    slots.set_content(1, tokens(1, 2))
    assert await slots.acquire(tokens(1, 2, 3)) == 1
    assert slots.shared(1, tokens(1, 2, 3)) == 2 * SIZE


@in_a_loop
async def test_a_short_prompt_does_not_overwrite_a_long_prefix() -> None:
    slots = Slots(2, SIZE)
    slots.set_content(0, tokens(1, 2, 3, 4, 5))
    assert await slots.acquire(tokens(1)) == 1


@in_a_loop
async def test_of_equal_slots_the_least_recently_used_one_is_taken() -> None:
    slots = Slots(3, SIZE)
    taken = [await slots.acquire(tokens(9)) for _ in range(3)]
    for slot in reversed(taken):
        slots.release(slot)
    assert [await slots.acquire(tokens(9)) for _ in range(3)] == [*reversed(taken)]


@in_a_loop
async def test_requests_wait_in_the_order_in_which_they_came() -> None:
    slots = Slots(1, SIZE)
    order: list[int] = []

    async def request(number: int) -> None:
        slot = await slots.acquire(tokens(number))
        order.append(number)
        slots.release(slot)

    first = await slots.acquire(())
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(request(number))
        await asyncio.sleep(0)
        assert (slots.running, slots.waiting) == (1, 4)
        slots.release(first)
    assert order == [0, 1, 2, 3]
    assert (slots.running, slots.waiting) == (0, 0)


@in_a_loop
async def test_a_request_that_is_cancelled_while_it_waits_takes_no_slot() -> None:
    slots = Slots(1, SIZE)
    slot = await slots.acquire(())
    waiting = asyncio.create_task(slots.acquire(()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert slots.waiting == 0
    slots.release(slot)
    assert slots.running == 0


@in_a_loop
async def test_a_request_that_is_cancelled_when_it_gets_a_slot_passes_it_on() -> None:
    slots = Slots(1, SIZE)
    slot = await slots.acquire(())
    cancelled, next_ = (asyncio.create_task(slots.acquire(())) for _ in range(2))
    await asyncio.sleep(0)
    slots.release(slot)  # gives the slot to `cancelled`, which has not run since
    cancelled.cancel()
    assert await next_ == slot
    assert cancelled.cancelled()
    assert (slots.running, slots.waiting) == (1, 0)


@in_a_loop
async def test_used_blocks_are_those_of_busy_slots() -> None:
    slots = Slots(2, SIZE)
    for index in range(2):
        slots.set_content(index, tokens(index, 7))
    assert slots.used_blocks == 0
    await slots.acquire(tokens(0, 7))
    assert slots.used_blocks == 2
