"""Follows one running graph: reads its state often, and its metrics once per second."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from penstock.errors import InputError
from penstock.live.model import LiveSnapshot
from penstock.live.scrape import Scraper, Scrapes
from penstock.live.snapshot import snapshot, stopped
from penstock.local.control import status
from penstock.local.events import read_events
from penstock.local.ports import LOOPBACK
from penstock.local.state import StateDir
from penstock.local.state_file import LocalState, ReplicaStatus

STATE_S = 0.25  # between two reads of the state: an event is shown within one second
SCRAPE_S = 1.0
TIMEOUT_S = 5.0  # of one request; its process counts as not responding from `WAIT_S` on
EVENTS = 100  # that a view shows


class LiveGraph:
    """The graph at ``path``. NotUpError or InputError if it does not run; later, it may stop."""

    def __init__(
        self,
        path: Path,
        sets: Sequence[str] = (),
        scraper: Scraper | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = StateDir(path)
        self._state: LocalState | None = status(path, sets).state
        self._graph = self._state.source
        self._scraper, self._scrapes, self._clock = (
            scraper or Scraper(self._metrics),
            Scrapes(),
            clock,
        )
        # For loopback; loading certificates takes 50 ms.
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=False)  # noqa: S501
        self._scraping: asyncio.Task[None] | None = None
        self._scraped_at: float | None = None

    async def snapshot(self) -> LiveSnapshot:
        """The graph now, with the metrics of the last scrape, which starts again when it is due."""
        self._read_state()
        if self._state is None:
            return stopped(self._graph, read_events(self._folder.path, EVENTS), self._clock())
        self._begin_scrape(self._state)
        return self._snapshot(self._state)

    @property
    def chat_url(self) -> str | None:
        """Base URL of the endpoint that needs no key; None once the graph has stopped."""
        return self._state.endpoint if self._state else None

    async def measured(self, seconds: float = SCRAPE_S) -> LiveSnapshot:
        """After two scrapes with this time in between, for rates."""
        for pause in (seconds, 0.0):
            self._read_state()
            if self._state is not None:
                await self._scrape(self._state)
            await asyncio.sleep(pause)
        return self._snapshot(self._state) if self._state else await self.snapshot()

    async def close(self) -> None:
        if self._scraping is not None:
            self._scraping.cancel()
            await asyncio.gather(self._scraping, return_exceptions=True)
        await self._scraper.close()
        await self._client.aclose()

    def _snapshot(self, state: LocalState) -> LiveSnapshot:
        events = read_events(self._folder.path, EVENTS)
        return snapshot(state, self._scrapes, events, self._clock())

    def _read_state(self) -> None:
        """None once the graph is down; while another `up` of it starts, its last state."""
        if not self._folder.is_locked():
            self._state = None
            return
        with contextlib.suppress(InputError):  # another version of penstock runs it now
            self._state = self._folder.read() or self._state

    def _begin_scrape(self, state: LocalState) -> None:
        now = self._scraper.clock()
        is_due = self._scraped_at is None or now - self._scraped_at >= SCRAPE_S
        if is_due and (self._scraping is None or self._scraping.done()):
            self._scraped_at = now
            self._scraping = asyncio.create_task(self._scrape(state))

    async def _scrape(self, state: LocalState) -> None:
        scrapes = await self._scraper.scrape(state.replicas)
        self._scrapes.add(scrapes, [replica.pid for replica in state.replicas])

    async def _metrics(self, replica: ReplicaStatus) -> str:
        url = f"http://{LOOPBACK}:{replica.system_port or replica.port}/metrics"
        response = await asyncio.wait_for(self._client.get(url), TIMEOUT_S)
        return response.raise_for_status().text
