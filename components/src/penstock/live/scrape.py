"""Scrapes the metrics of all processes of a graph at the same time, each with its own time limit.

A process that does not respond delays the others by at most `WAIT_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from math import isfinite

import httpx

from penstock.live.names import READ
from penstock.local.ports import LOOPBACK
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import ReplicaStatus
from penstock.manifests.deployment import Role
from penstock.metrics import Metrics, parse

WAIT_S = 0.5  # for all processes of one scrape
TIMEOUT_S = 5.0  # of one request; its process counts as not responding from `WAIT_S` on

Read = Callable[[str], Awaitable[str]]  # URL → text; raises OSError or httpx.HTTPError


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """The metrics of one process at one moment."""

    at_s: float
    """On the scraper's clock."""
    metrics: Metrics
    """Only what live views need."""


class Scraper:
    """Reads processes by port. ``clock``: monotonic seconds."""

    def __init__(
        self,
        read: Read | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait_s: float = WAIT_S,
    ) -> None:
        self._client: httpx.AsyncClient | None = None
        self._read, self.clock, self._wait_s = read or self._get, clock, wait_s
        self._open: dict[int, asyncio.Task[Scrape | None]] = {}

    async def scrape(self, replicas: Iterable[ReplicaStatus]) -> dict[int, Scrape | None]:
        """By pid; None for a process that has not responded within ``wait_s``."""
        for replica in replicas:
            if has_metrics(replica) and replica.pid not in self._open:
                self._open[replica.pid] = asyncio.create_task(self._scrape(replica))
        if not self._open:
            return {}
        done, _ = await asyncio.wait(self._open.values(), timeout=self._wait_s)
        found = {pid: t.result() if t in done else None for pid, t in self._open.items()}
        self._open = {pid: task for pid, task in self._open.items() if task not in done}
        return found

    async def close(self) -> None:
        for task in self._open.values():
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _scrape(self, replica: ReplicaStatus) -> Scrape | None:
        port = replica.system_port or replica.port
        try:
            text = await asyncio.wait_for(
                self._read(f"http://{LOOPBACK}:{port}/metrics"), TIMEOUT_S
            )
            return Scrape(at_s=self.clock(), metrics=metrics_of(text))
        except (OSError, httpx.HTTPError, ValueError):  # TimeoutError is an OSError
            return None

    async def _get(self, url: str) -> str:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)
        response = await self._client.get(url)
        return response.raise_for_status().text


def metrics_of(text: str) -> Metrics:
    """What live views need of a scrape; ValueError if it is not in the Prometheus text format.

    Without values that are no numbers, such as NaN: a figure is then unknown.
    """
    # A frontend exports 2,000 lines; parsing all of them takes longer than reading them.
    lines = [line for line in text.splitlines() if line.startswith(READ)]
    samples = parse("\n".join(lines) + "\n")
    return Metrics(tuple(sample for sample in samples if isfinite(sample.value)))


def has_metrics(replica: ReplicaStatus) -> bool:
    """Whether it is a frontend or a worker that should respond."""
    is_alive = replica.state in (ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.UNHEALTHY)
    return is_alive and (replica.system_port is not None or replica.role is Role.FRONTEND)
