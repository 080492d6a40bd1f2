"""Work that waits for replays, in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def in_parallel(work: Callable[[A], B], items: Sequence[A], threads: int | None = None) -> list[B]:
    """The results in order. ``threads``: at most; None means one for each item.

    Does not wait for what still runs after an error or Ctrl-C: `Replays` ends its processes.
    """
    pool = ThreadPoolExecutor(max(1, len(items) if threads is None else threads))
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
