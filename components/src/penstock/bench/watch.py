"""Follows a run: its progress, and the processor time that this machine uses meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import psutil

Progress = Callable[[str, int, int], None]
"""Gets what is done, and how many requests of how many are."""


class Watch:
    """Called with the number of recorded requests, several times per second.

    Both the time left and the processor time are counted from the first record on: until then,
    AIPerf starts, for about 10 s and with all processors.
    """

    def __init__(
        self,
        progress: Progress,
        total: int,
        cpu_times: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        """``cpu_times``: busy and all seconds of all processors since some time."""
        self._progress, self._total = progress, total
        self._cpu_times = cpu_times or _cpu_times
        self._from: tuple[float, float] | None = None
        self._to = (0.0, 0.0)

    def __call__(self, done: int) -> None:
        if not done:
            self._progress("starting AIPerf", 0, 0)
            return
        if self._from is None:
            self._progress("sending requests", 0, self._total)
            self._from = self._to = self._cpu_times()
        elif done < self._total:
            self._to = self._cpu_times()
        self._progress("sending requests", done, self._total)

    @property
    def cpu_share(self) -> float:
        """Of the processor time while requests were sent; 0 if it was too short to measure."""
        if self._from is None:
            return 0.0
        busy, every = (to - since for to, since in zip(self._to, self._from, strict=True))
        # The kernel's counters are not read at one moment: idle time can decrease.
        return min(1.0, busy / every) if every else 0.0


def _cpu_times() -> tuple[float, float]:
    times = psutil.cpu_times()
    every = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return every - times.idle - getattr(times, "iowait", 0.0), every
