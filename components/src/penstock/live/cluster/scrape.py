"""Scrapes the metrics of pods through the API server's proxy, a few at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from penstock.cluster.api_errors import ForbiddenError
from penstock.errors import ClusterError
from penstock.live.cluster.state import PodReplica
from penstock.live.scrape import Scrape, metrics_of

MOST = 16  # requests at the same time; the API server limits those of a user
WAIT_S = 10.0  # for all pods of one scrape; each request has the time limit of the connection
PATH = "metrics"

Read = Callable[[str, int, str], str]  # pod, port, path → text; raises ClusterError


class PodScraper:
    """``read``: a blocking request to a pod. ``clock``: monotonic seconds."""

    def __init__(self, read: Read, clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self.clock = read, clock
        self._threads = ThreadPoolExecutor(MOST, thread_name_prefix="scrape")
        self._open: dict[str, asyncio.Future[Scrape | None]] = {}
        self._refused: ForbiddenError | None = None
        self.forbidden: ForbiddenError | None = None
        """Of the last scrape: the user may not use the proxy."""

    async def scrape(self, pods: Iterable[PodReplica]) -> dict[str, Scrape | None]:
        """By key; None for a pod that has not responded."""
        self._refused = None
        loop = asyncio.get_running_loop()
        for pod in pods:
            if pod.has_metrics and pod.key not in self._open:
                self._open[pod.key] = loop.run_in_executor(self._threads, self._scrape, pod)
        if not self._open:
            self.forbidden = None
            return {}
        done, _ = await asyncio.wait(self._open.values(), timeout=WAIT_S)
        self.forbidden = self._refused
        asked = self._open
        self._open = {key: future for key, future in asked.items() if future not in done}
        return {key: f.result() if f in done else None for key, f in asked.items()}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _scrape(self, pod: PodReplica) -> Scrape | None:
        try:
            text = self._read(pod.name, pod.port or 0, PATH)
            return Scrape(at_s=self.clock(), metrics=metrics_of(text))
        except ForbiddenError as error:
            self._refused = error
        except (ClusterError, ValueError):  # a pod that ends, hangs, or has no metrics
            pass
        return None
