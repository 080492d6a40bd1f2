"""Ctrl-C and signals that end a drill: the first ends it early, later ones shorten the wait.

A drill has stopped processes and started a graph: it always undoes this before it exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_once() -> None:
    """From now on the first signal raises KeyboardInterrupt; while that cleans up, others wait."""
    for number in SIGNALS:
        signal.signal(number, _raise)


@contextlib.contextmanager
def raised_once() -> Iterator[None]:
    """`raise_once` within a block."""
    with _restored():
        raise_once()
        yield


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    for other in SIGNALS:
        signal.signal(other, _ignore)
    raise KeyboardInterrupt


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignore the signal; SIG_IGN would be inherited by child processes."""


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Ignore signals during a short cleanup after which the result is printed."""
    with _restored():
        for number in SIGNALS if _is_main() else ():
            signal.signal(number, _ignore)
        yield


@contextlib.contextmanager
def calling(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call ``interrupt`` in the running event loop at each signal."""
    loop = asyncio.get_running_loop()
    with _restored():
        for number in SIGNALS if _is_main() else ():
            loop.add_signal_handler(number, interrupt)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number in SIGNALS if _is_main() else ():
            signal.signal(number, before[number])


def _is_main() -> bool:
    """Only the main thread may set handlers."""
    return threading.current_thread() is threading.main_thread()
