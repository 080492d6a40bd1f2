"""Follows one release on a cluster: reads its objects, and scrapes its pods."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.frontends import HTTP_PORT, frontend_port
from penstock.cluster.progress import Observation, OwnObjects, progress_of, read_objects
from penstock.cluster.release import Release, read_installed, require_installed
from penstock.cluster.workloads import FRONTEND, POD_GRAPH, WORKLOAD_KINDS, Object, workloads
from penstock.errors import ClusterError, PenstockError
from penstock.helm import ReleaseTarget
from penstock.live.cluster.events import changes, events_of, history, merged
from penstock.live.cluster.state import PodReplica, ReleaseState, replicas_of, role_of
from penstock.live.model import LiveSnapshot, WorkerView
from penstock.live.scrape import Scraper, Scrapes
from penstock.live.snapshot import ORDER, snapshot, stopped
from penstock.local.events import Event
from penstock.local.load import IN_FLIGHT, WORKER_REQUESTS
from penstock.local.reconcile import ReplicaState
from penstock.manifests.deployment import Role
from penstock.serving.frontend_metrics import REQUESTS

MOST = 16  # requests at the same time; the API server limits those of a user
WAIT_S = 10.0  # for all pods of one scrape; each request has the time limit of the connection
PATH = "metrics"

TIMEOUT_S = 3.0  # of one request to the API server
STATE_S = 2.0  # between two reads of the state
PODS_PER_S = 20  # scraped at most, on average: the API server passes on every response
EVENTS = 100  # that a view shows
UNREACHABLE = "unreachable"
RELEASE_S = 10.0  # between two reads of Helm's record, which costs more than a list of pods
EVENTS_S = 4.0  # between two lists of all events of the namespace


def rule(resource: str, verb: str) -> str:
    """The rule of a Role, as an imperative."""
    return (
        f'add the rule {{apiGroups: [""], resources: ["{resource}"], verbs: ["{verb}"]}} to the '
        "Role of the kubeconfig's user"
    )


@dataclass
class ReleaseReader:
    """Blocking; one read at a time."""

    api: Api
    target: ReleaseTarget
    url: str | None = None
    events: tuple[tuple[Object, str], ...] = ()
    """About the release's objects, each with its component, as last listed."""
    events_error: ForbiddenError | None = None
    _own: OwnObjects = field(init=False)
    _release: Release | None = field(default=None)
    _release_at_s: float = float("-inf")
    _events_at_s: float = float("-inf")

    def __post_init__(self) -> None:
        self._own = OwnObjects(self.api, self.target)

    def first(self) -> Release:
        """Raises ClusterError if the release is not installed."""
        self._release = require_installed(self.target, self.api)
        return self._release

    def read(self, now_s: float) -> ReleaseState | None:
        """The current state; None if the release is not installed any more. ``now_s``: monotonic.

        Raises ClusterError: ForbiddenError if the user may not list pods.
        """
        if now_s - self._release_at_s >= RELEASE_S or self._release is None:
            self._release = read_installed(self.target, self.api)
            self._release_at_s = now_s
        release = self._release
        if release is None or release.revision.is_uninstalled:
            return None
        pods = self._pods()
        self._own.add_pods(pods)
        self._read_events(now_s)
        manifests = [o for o in release.objects if o["kind"] in WORKLOAD_KINDS]
        live = tuple(
            content
            for _, content in read_objects(self.api, manifests)
            if not isinstance(content, ForbiddenError)
        )
        events = tuple(event for event, _ in self.events)
        forbidden = self._own.forbidden
        observation = Observation(live=live, pods=pods, events=events, forbidden=forbidden)
        progress = progress_of(release.objects, observation)
        components = {
            name: workload
            for name, workload in workloads((*release.objects, *live)).items()
            if role_of(workload) in ORDER
        }
        port = frontend_port(release) if FRONTEND in components else HTTP_PORT
        desired = {p.name: p.desired for p in progress.pools if p.name in components}
        return ReleaseState(
            source=f"{self.target.name} (namespace {self.target.namespace})",
            phase="ready" if progress.is_done else "updating",
            endpoint=self.url,
            desired_replicas=desired,
            replicas=replicas_of(pods, components, port),
            progress=progress,
        )

    def _pods(self) -> tuple[Object, ...]:
        try:
            return tuple(self.api.list("Pod", f"{POD_GRAPH}={self.target.name}"))
        except ForbiddenError as error:
            (problem,) = error.problems
            fix = f"{rule('pods', 'list').capitalize()}."
            raise ForbiddenError(replace(problem, fix=fix)) from None

    def _read_events(self, now_s: float) -> None:
        if now_s - self._events_at_s < EVENTS_S:
            return
        self._events_at_s = now_s
        self._own.forbidden.clear()
        try:
            listed, self.events_error = self.api.list("Event"), None
        except ForbiddenError as error:
            self.events, self.events_error = (), error
            return
        causes = (
            (event, self._own.component(event.get("involvedObject") or {})) for event in listed
        )
        self.events = tuple((event, name) for event, name in causes if name is not None)


class ClusterGraph:
    """A release. ClusterError if it is not installed or the cluster cannot be reached; later, the
    API server may go away and come back, and the release may be uninstalled.

    ``url``: base URL of its endpoint, for the chat.
    """

    def __init__(self, target: ReleaseTarget, url: str | None = None) -> None:
        api = Api.connect(target)
        api.timeout_s = TIMEOUT_S
        self._reader, self._state_s = ReleaseReader(api, target, url), STATE_S
        self._scraper, self._scrapes = Scraper(self._metrics, wait_s=WAIT_S), Scrapes()
        self._threads = ThreadPoolExecutor(MOST, thread_name_prefix="scrape")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._refused: ForbiddenError | None = None
        self._forbidden: ForbiddenError | None = None
        """Of the last scrape: the user may not use the proxy."""
        self._own_events: deque[Event] = deque(maxlen=EVENTS)
        self._error: PenstockError | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: dict[str, float] = {}
        self._last: LiveSnapshot | None = None
        self._reader.first()
        self._state: ReleaseState | None = None
        self._take(self._reader.read(time.monotonic()))

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
        await self._scraper.close()
        for threads in (self._thread, self._threads):
            threads.shutdown(wait=False, cancel_futures=True)

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
            new = history(state) if before is None else changes(before, state, time.time())
            self._own_events.extend(new)
        self._state = state

    async def _scrape(self) -> None:
        if self._state is None:
            return
        self._refused = None
        scrapes = await self._scraper.scrape(self._state.replicas)
        self._forbidden = self._refused
        if not any(scrapes.values()) and self._forbidden is None:
            # Do the pods not respond, or the API server?
            await self._read_state()
        if self._error is None and self._state is not None:
            self._scrapes.add(scrapes, [pod.key for pod in self._state.replicas])

    async def _metrics(self, pod: PodReplica) -> str:
        read, loop = self._reader.api.get_from_pod, asyncio.get_running_loop()
        try:
            port = pod.system_port or 0
            return await loop.run_in_executor(self._threads, read, pod.name, port, PATH)
        except ForbiddenError as error:
            self._refused = error
            raise

    def _snapshot(self) -> LiveSnapshot:
        now_s = time.time()
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
        is_forbidden = self._forbidden is not None
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
