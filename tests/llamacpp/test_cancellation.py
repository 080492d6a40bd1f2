"""An iteration that ends from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from penstock.llamacpp.cancellation import until


class Requests:
    """Numbers, of which the third never comes."""

    def __init__(self) -> None:
        self.has_ended = False

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
            await asyncio.Event().wait()
        finally:
            self.has_ended = True


def run(test: Callable[[Requests, asyncio.Future[None]], Awaitable[list[int]]]) -> list[int]:
    async def main() -> list[int]:
        requests = Requests()
        seen = await asyncio.wait_for(test(requests, asyncio.get_running_loop().create_future()), 5)
        assert requests.has_ended
        assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []
        return seen

    return asyncio.run(main())


def test_it_ends_while_the_next_item_is_awaited() -> None:
    async def stopped_later(requests: Requests, stopped: asyncio.Future[None]) -> list[int]:
        asyncio.get_running_loop().call_later(0.02, stopped.set_result, None)
        return [number async for number in until(stopped, requests.numbers())]

    assert run(stopped_later) == [1, 2]


def test_it_ends_when_it_is_closed_or_cancelled() -> None:
    async def closed(requests: Requests, stopped: asyncio.Future[None]) -> list[int]:
        numbers = until(stopped, requests.numbers())
        seen = [await anext(numbers)]
        await numbers.aclose()
        return seen

    async def cancelled(requests: Requests, stopped: asyncio.Future[None]) -> list[int]:
        seen = []

        async def read() -> None:
            async for number in until(stopped, requests.numbers()):
                seen.append(number)

        task = asyncio.ensure_future(read())
        while seen != [1, 2]:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return seen

    assert run(closed) == [1]
    assert run(cancelled) == [1, 2]


def test_it_ends_with_the_items_or_their_error() -> None:
    async def few(fails: bool) -> AsyncGenerator[int, None]:
        yield 1
        if fails:
            raise ValueError("of the items")

    async def read(fails: bool) -> list[int]:
        never = asyncio.get_running_loop().create_future()
        return [number async for number in until(never, few(fails))]

    assert asyncio.run(read(False)) == [1]
    with pytest.raises(ValueError, match="of the items"):
        asyncio.run(read(True))
