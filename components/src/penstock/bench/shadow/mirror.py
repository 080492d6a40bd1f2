"""Runs the proxy of `--listen` and its workers until the comparison ends.

It ends after a number of requests, after a time, or with Ctrl-C. Copies and repeats that wait are
then still sent while clients are served. A second Ctrl-C ends it at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

from penstock.bench.shadow.client import connected
from penstock.bench.shadow.live import LiveComparison
from penstock.bench.shadow.proxy import listening
from penstock.bench.shadow.run import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where the proxy listens, and for how long."""

    host: str
    port: int
    """0 for any free port."""
    duration_s: float | None
    """None for no limit."""


def mirror(live: LiveComparison, listen: Listen) -> str:
    """Serve until the end; the results are in ``live``. Returns what ended it early; empty if
    nothing did. PortInUseError."""
    try:
        asyncio.run(_mirror(live, listen))
    except asyncio.CancelledError:
        return INTERRUPTED
    return ""


async def _mirror(live: LiveComparison, listen: Listen) -> None:
    run = live.run
    async with AsyncExitStack() as opened:
        first, second = [
            await opened.enter_async_context(connected(endpoint, run.timeout_s))
            for endpoint in run.endpoints
        ]
        proxy = listening(live, listen.host, listen.port, drain_s=run.timeout_s)
        ended = asyncio.Event()
        opened.enter_context(_signals(live, ended))  # also while the proxy ends
        url = await opened.enter_async_context(proxy)
        live.say(f"{url} forwards to {run.endpoints[0]}, with copies to {run.endpoints[1]}")
        live.say("Ctrl-C ends the comparison and prints the verdict")
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(live.work(first, second)) for _ in range(run.concurrency)]
            await _until_end(live, ended, listen.duration_s)
            await live.finish()
            for worker in workers:
                worker.cancel()


async def _until_end(live: LiveComparison, ended: asyncio.Event, duration_s: float | None) -> None:
    waiting = [asyncio.create_task(ended.wait()), asyncio.create_task(live.until_enough())]
    await asyncio.wait(waiting, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


@contextmanager
def _signals(live: LiveComparison, ended: asyncio.Event) -> Iterator[None]:
    """The first signal sets ``ended``, the second one cancels this task. Signals that are ignored,
    as `nohup` does, stay ignored."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if ended.is_set() and task is not None:
            task.cancel()
        else:
            live.say("ending: sending what waits; press Ctrl-C again to end at once")
            ended.set()

    before = {each: signal.getsignal(each) for each in SIGNALS}
    used = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    for number in used:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in used:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
