"""Follows one release on a cluster: reads its objects, and scrapes its pods."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.errors import ClusterError, PenstockError
from penstock.helm import ReleaseTarget
from penstock.live.cluster.events import changes, events_of, history, merged
from penstock.live.cluster.read import ReleaseReader, rule
from penstock.live.cluster.state import PodReplica, ReleaseState
from penstock.live.model import LiveSnapshot, WorkerView
from penstock.live.scrape import Scrape, Scrapes, metrics_of
from penstock.live.snapshot import snapshot, stopped
from penstock.local.events import Event
from penstock.local.load import IN_FLIGHT, WORKER_REQUESTS
from penstock.local.reconcile import ReplicaState
from penstock.manifests.deployment import Role
from penstock.serving.frontend_metrics import REQUESTS

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


TIMEOUT_S = 3.0  # of one request to the API server
STATE_S = 2.0  # between two reads of the state
PODS_PER_S = 20  # scraped at most, on average: the API server passes on every response
EVENTS = 100  # that a view shows
UNREACHABLE = "unreachable"


class ClusterGraph:
    """A release. ClusterError if it is not installed or the cluster cannot be reached; later, the
    API server may go away and come back, and the release may be uninstalled.

    ``url``: base URL of its endpoint, for the chat. ``clock``: seconds since 1970.
    """

    def __init__(
        self,
        reader: ReleaseReader,
        scraper: PodScraper | None = None,
        clock: Callable[[], float] = time.time,
        state_s: float = STATE_S,
    ) -> None:
        self._reader, self._clock, self._state_s = reader, clock, state_s
        self._scraper = scraper or PodScraper(reader.api.get_from_pod)
        self._scrapes = Scrapes()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._own_events: deque[Event] = deque(maxlen=EVENTS)
        self._error: PenstockError | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: dict[str, float] = {}
        self._last: LiveSnapshot | None = None
        reader.first()
        self._state: ReleaseState | None = None
        self._take(reader.read(time.monotonic()))

    @classmethod
    def connect(cls, target: ReleaseTarget, url: str | None = None) -> ClusterGraph:
        """Raises ClusterError."""
        api = Api.connect(target)
        api.timeout_s = TIMEOUT_S
        return cls(ReleaseReader(api, target, url))

    @property
    def chat_url(self) -> str | None:
        return self._reader.url

    async def snapshot(self) -> LiveSnapshot:
        """The last state and the last metrics, both of which are read again when due."""
        self._begin("state", self._state_s, self._read_state)
        if self._state is not None and self._error is None:
            pods = len(self._state.replicas)
            self._begin("scrape", max(self._state_s, pods / PODS_PER_S), self._scrape)
        return self._snapshot()

    async def measured(self) -> LiveSnapshot:
        """After two scrapes, `STATE_S` apart."""
        await self._scrape()
        await asyncio.sleep(self._state_s)
        await self._read_state()
        await self._scrape()
        return self._snapshot()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._scraper.close()

    def _begin(self, name: str, every_s: float, run: Callable[[], object]) -> None:
        now, task = self._scraper.clock(), self._tasks.get(name)
        is_due = now - self._begun.get(name, float("-inf")) >= every_s
        if task is not None and task.done() and not task.cancelled():
            task.result()  # raises an unexpected exception, instead of showing an old state forever
        if is_due and (task is None or task.done()):
            self._begun[name] = now
            self._tasks[name] = asyncio.create_task(run())  # type: ignore[arg-type]

    async def _read_state(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            state = await loop.run_in_executor(self._thread, self._reader.read, time.monotonic())
        except ClusterError as error:
            self._error = error
            return
        self._error = None
        self._take(state)

    def _take(self, state: ReleaseState | None) -> None:
        if state is not None:
            before = self._state
            new = history(state) if before is None else changes(before, state, self._clock())
            self._own_events.extend(new)
        self._state = state

    async def _scrape(self) -> None:
        if self._state is None:
            return
        scrapes = await self._scraper.scrape(self._state.replicas)
        if not any(scrapes.values()) and self._scraper.forbidden is None:
            # Do the pods not respond, or the API server?
            await self._read_state()
        if self._error is None and self._state is not None:
            self._scrapes.add(scrapes, [pod.key for pod in self._state.replicas])

    def _snapshot(self) -> LiveSnapshot:
        now_s = self._clock()
        if self._error is not None and self._last is not None:
            clock = time.strftime("%H:%M:%S", time.localtime(self._last.time_s))
            problem = self._error.problems[0]
            text = f"{problem.message}; the view shows the state of {clock}. {problem.fix}".strip()
            return replace(self._last, phase=UNREACHABLE, alerts=(text,))
        if self._state is None:
            name = f"{self._reader.target.name} (namespace {self._reader.target.namespace})"
            return stopped(name, tuple(self._own_events), now_s)
        state = self._completed(self._state)
        current = snapshot(state, self._scrapes, self._events(), now_s)
        alerts = tuple(self._alerts(state, current.workers))
        self._last = replace(current, alerts=alerts)
        return self._last

    def _events(self) -> tuple[Event, ...]:
        listed = events_of(self._reader.events)
        return merged([listed, tuple(self._own_events)], EVENTS)

    def _completed(self, state: ReleaseState) -> ReleaseState:
        """With the models and the worker IDs, which only the metrics contain."""
        frontends = [pod for pod in state.replicas if pod.role is Role.FRONTEND]
        models = sorted({name for pod in frontends for name in self._labels(pod, "model")})
        pods = tuple(
            replace(pod, worker_id=next(iter(self._labels(pod, "worker_id")), None))
            for pod in state.replicas
        )
        return replace(state, models=tuple(models), replicas=pods)

    def _labels(self, pod: PodReplica, label: str) -> Iterator[str]:
        interval = self._scrapes.interval(pod.key)
        if interval is None:
            return
        names = (REQUESTS,) if label == "model" else (WORKER_REQUESTS, IN_FLIGHT)
        samples = itertools.chain.from_iterable(map(interval.now.metrics.find, names))
        yield from (value for s in samples if (value := s.labels.get(label)))

    def _alerts(self, state: ReleaseState, workers: tuple[WorkerView, ...]) -> Iterator[str]:
        if state.progress.waiting_for:
            yield f"not ready: {state.progress.waiting_for}"
        yield from map(str, state.progress.diagnoses)
        yield from state.progress.forbidden
        is_forbidden = self._scraper.forbidden is not None
        if is_forbidden:
            fix = rule("pods/proxy", "get")
            yield f"no metrics: the user may not get pods/proxy. Fix: {fix}"
        if self._reader.events_error is not None:
            yield f"no events: the user may not list events. Fix: {rule('events', 'list')}"
        for worker in workers:
            if worker.state is ReplicaState.UNHEALTHY:
                yield f"{worker.name} is no longer ready"
            elif worker.responds is False and not is_forbidden:
                yield f"{worker.name} does not return its metrics"
