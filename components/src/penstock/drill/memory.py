"""Memory of the graph's processes during a drill: samples, and their slope."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

INTERVAL_S = 5.0
SETTLED_S = 120.0  # caches fill first
SHORTEST_S = 300.0  # shorter runs give no meaningful slope
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class MemoryTrend:
    """Resident memory of one process, without its first two minutes."""

    process: str
    """Name of the process, such as `frontend.0`; `penstock` is the process that runs the graph."""
    minutes: float
    """Duration of the samples in minutes."""
    first_mib: float
    """Resident memory at the first sample in MiB."""
    last_mib: float
    """Resident memory at the last sample in MiB."""
    slope_mib_per_hour: float
    """Least-squares slope of the resident memory in MiB/h."""


@dataclass
class MemorySampler:
    """Samples in a thread while the context is open. ``processes``: name → pid of those now."""

    processes: Callable[[], Mapping[str, int]]
    samples: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)
    """Process and pid → (seconds, bytes)."""

    def __post_init__(self) -> None:
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(INTERVAL_S):
            for name, pid in self.processes().items():
                try:
                    rss = psutil.Process(pid).memory_info().rss
                except psutil.Error:
                    continue  # it has ended
                self.samples.setdefault((name, pid), []).append((time.monotonic(), float(rss)))

    def trends(self) -> tuple[MemoryTrend, ...]:
        """The trends of the processes that ran for long enough."""
        fits = (trend(name, samples) for (name, _), samples in sorted(self.samples.items()))
        return tuple(fit for fit in fits if fit is not None)


def trend(process: str, samples: list[tuple[float, float]]) -> MemoryTrend | None:
    """None for less than five minutes after the first two. ``samples``: (seconds, bytes)."""
    late = [(at, rss / MIB) for at, rss in samples if at - samples[0][0] >= SETTLED_S]
    if not late or late[-1][0] - late[0][0] < SHORTEST_S:
        return None
    times, sizes = zip(*late, strict=True)
    return MemoryTrend(
        process=process,
        minutes=(times[-1] - times[0]) / 60,
        first_mib=sizes[0],
        last_mib=sizes[-1],
        slope_mib_per_hour=statistics.linear_regression(times, sizes).slope * 3600,
    )
