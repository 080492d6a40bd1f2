"""Log which request blocks the adapter's event loop, or has no response from the frontend.

While the event loop is blocked, the frontend responds to no request and no health check. Dynamo
renders chat templates in threads: each rendering that does not end occupies one of them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEAT_S, STALLED_S = 0.25, 2.0
UNANSWERED_S = 20.0  # less than the time after which a frontend that hangs is replaced


class Watch:
    """`begin` in the event loop, `end` at the end; ``say`` prints a line, in another thread."""

    def __init__(
        self,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        stalled_s: float = STALLED_S,
    ) -> None:
        self._say, self._stalled_s = say, stalled_s
        self._beat_at, self._current = time.monotonic(), ""
        self._ended = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._beat())
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        self._ended.set()
        if self._task is not None:
            self._task.cancel()

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """``what``: the request that the loop works on in the block, which must not await."""
        self._current = what
        try:
            yield
        finally:
            self._current = ""

    @contextmanager
    def unanswered(self, what: str) -> Iterator[asyncio.TimerHandle]:
        """Names ``what`` after UNANSWERED_S, unless it is cancelled at the first byte."""
        line = (
            f"request adapter: {what} has no response after {UNANSWERED_S:.0f} s: it waits for a "
            "worker, its output is not streamed, or the model's chat template does not end"
        )
        timer = asyncio.get_running_loop().call_later(UNANSWERED_S, self._say, line)
        try:
            yield timer
        finally:
            timer.cancel()

    async def _beat(self) -> None:
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_S)

    def _run(self) -> None:
        reported = 0.0
        while not self._ended.wait(BEAT_S):
            beat_at, current = self._beat_at, self._current
            stands_s = time.monotonic() - beat_at
            if stands_s > self._stalled_s and reported != beat_at:
                reported = beat_at
                what = current or "no request of the adapter: the frontend itself holds it"
                self._say(f"request adapter: the event loop stands for {stands_s:.1f} s at {what}")
