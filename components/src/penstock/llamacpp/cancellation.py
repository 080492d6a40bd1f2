"""Ends an iteration from outside, also while its next item is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress
from typing import TypeVar

T = TypeVar("T")


async def until(
    stopped: Awaitable[object], items: AsyncGenerator[T, None]
) -> AsyncGenerator[T, None]:
    """The items, until ``stopped`` is done: then, and when the iterator is closed, ``items`` ends
    where it is."""
    end = asyncio.ensure_future(stopped)
    async with aclosing(items):
        try:
            while True:
                item = asyncio.ensure_future(items.__anext__())
                try:
                    await asyncio.wait({item, end}, return_when=asyncio.FIRST_COMPLETED)
                    if not item.done():
                        return
                    yield item.result()
                except StopAsyncIteration:
                    return
                finally:
                    item.cancel()
                    with suppress(asyncio.CancelledError, Exception):
                        await item
        finally:
            end.cancel()
