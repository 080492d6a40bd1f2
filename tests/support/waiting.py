"""Wait for what another process does. Within the process of the test, an Event or a queue tells.

`tests/test_layout.py` lists the few files outside `tests/e2e` that sleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

LIMIT_S = 60.0  # long, for a busy machine
ATTEMPTS = 3
Result = TypeVar("Result")


def wait_for(
    condition: Callable[[], Result], what: object, *, look_s: float = 0.02, limit_s: float = LIMIT_S
) -> Result:
    """The first result that is true; AssertionError with ``what`` after ``limit_s`` without one.

    ``look_s``: between two looks; longer for a condition that costs much.
    """
    deadline = time.monotonic() + limit_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(look_s)
    return result


async def first(
    read: Callable[[], Awaitable[Result]], is_met: Callable[[Result], bool], what: object
) -> Result:
    """The first result of ``read`` that meets the condition, as `wait_for`."""
    async with asyncio.timeout(LIMIT_S):
        while not is_met(found := await read()):
            await asyncio.sleep(0.02)
    return found


def first_good(run: Callable[[int], Result], is_good: Callable[[Result], bool]) -> Result:
    """The result of the first good run, or else of the last one: so that only a run that always
    goes wrong fails, not one that a busy machine spoils. ``run`` gets its number."""
    for number in range(ATTEMPTS - 1):
        result = run(number)
        if is_good(result):
            return result
    return run(ATTEMPTS - 1)
