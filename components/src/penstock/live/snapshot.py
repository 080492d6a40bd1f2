"""Makes a `LiveSnapshot` from the state of a graph and the scrapes of its processes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.live import scrape
from penstock.live.model import (
    STOPPED,
    ComponentView,
    Edge,
    LiveSnapshot,
    Totals,
    WorkerView,
)
from penstock.live.scrape import Interval, Scrapes
from penstock.local.events import STAGES, Event, EventKind
from penstock.local.load import GENERATE, IN_FLIGHT, ROUTER_QUEUE, WORKER_QUEUE, WORKER_REQUESTS
from penstock.local.reconcile import ReplicaState
from penstock.manifests.deployment import Role
from penstock.metrics import Metrics
from penstock.serving.frontend_metrics import (
    CACHED,
    PROMPT,
    REQUESTS,
    STARTED,
    FrontendMetrics,
    summarize,
)
from penstock.text.numbers import count_of

if TYPE_CHECKING:
    from penstock.live.model import GraphState, Replica

STALL_S = 5.0  # a worker that sends nothing for longer hangs, unless it has long prompts
FIRST_PREFILL_S = 60.0  # of a prompt, before the speed of the worker is known
MARGIN, TOKENS = 3.0, 20.0  # factors of the time of the prompts, and of the time of a token
HUNG_SHOWN_S = 60.0  # an alert about requests that have hung
CLIENTS, ROUTER = "clients", "router"
# As a request passes them.
ORDER = (Role.FRONTEND, Role.ENCODE, Role.PREFILL, Role.DECODE, Role.WORKER)


def snapshot(
    state: GraphState, scrapes: Scrapes, events: Sequence[Event], time_s: float
) -> LiveSnapshot:
    """The graph at ``time_s`` (seconds since 1970)."""
    replicas = sorted(
        (r for r in state.replicas if r.role in ORDER),
        key=lambda r: (ORDER.index(r.role), r.program),
    )
    frontends = [i for r in replicas if r.role is Role.FRONTEND and (i := scrapes.interval(r.key))]
    totals = _totals(frontends)
    workers = tuple(_worker(r, scrapes, frontends) for r in replicas)
    components = _components(state, replicas)
    return LiveSnapshot(
        graph=state.source,
        phase=str(state.phase),
        endpoint=state.gateway.url if state.gateway else state.endpoint,
        models=state.models,
        time_s=time_s,
        window_s=max((i.seconds for i in frontends if i.seconds), default=None),
        totals=totals,
        components=components,
        workers=workers,
        edges=tuple(_edges(components, workers, replicas, frontends, scrapes)),
        events=tuple(events),
        alerts=(
            *_alerts(state, workers, components),
            *_hung_requests(workers, [e for e in events if e.time_s > time_s - HUNG_SHOWN_S]),
        ),
    )


def stopped(graph: str, events: Sequence[Event], time_s: float) -> LiveSnapshot:
    """A graph that is not up any more."""
    return LiveSnapshot(
        graph=graph,
        phase=STOPPED,
        endpoint=None,
        models=(),
        time_s=time_s,
        window_s=None,
        totals=Totals(),
        components=(),
        workers=(),
        edges=(),
        events=tuple(events),
        alerts=(),
    )


def _components(state: GraphState, replicas: Sequence[Replica]) -> tuple[ComponentView, ...]:
    """In the order of a request: frontend, prefill, decode."""
    # A pool that was scaled to 0 has no process; in a graph, it has the name of its role.
    roles = {role.value: role for role in ORDER} | {r.program: r.role for r in replicas}
    ready = [r.program for r in replicas if r.state is ReplicaState.READY]
    components = [
        ComponentView(name=name, role=roles[name], desired=desired, ready=ready.count(name))
        for name, desired in state.desired_replicas.items()
        if name in roles
    ]
    return tuple(sorted(components, key=lambda c: (ORDER.index(c.role), c.name)))


def _summary(frontends: Sequence[Interval]) -> FrontendMetrics | None:
    """Over the frontends that were scraped at least twice."""
    pairs = [(i.now.metrics, i.before.metrics) for i in frontends if i.before is not None]
    if not pairs:
        return None
    now = [sample for metrics, _ in pairs for sample in metrics.samples]
    return summarize(now, [sample for _, metrics in pairs for sample in metrics.samples])


def _totals(frontends: Sequence[Interval]) -> Totals:
    summary = _summary(frontends)
    return Totals(
        started_rate=_sum(i.rate([STARTED]) for i in frontends),
        request_rate=_sum(i.rate([REQUESTS]) for i in frontends),
        input_token_rate=_sum(i.rate([PROMPT]) for i in frontends),
        output_token_rate=_sum(i.rate([scrape.OUTPUT]) for i in frontends),
        ttft_s=summary.ttft_s if summary else None,
        itl_s=summary.itl_s if summary else None,
        prefix_hit_rate=summary.prefix_hit_rate if summary else None,
        running=_count(_sum(i.now.metrics.total([scrape.ACTIVE]) for i in frontends)),
        router_queue=_count(_sum(i.now.metrics.total([ROUTER_QUEUE]) for i in frontends)),
    )


def _worker(replica: Replica, scrapes: Scrapes, frontends: Sequence[Interval]) -> WorkerView:
    interval = scrapes.interval(replica.key)
    figures: dict[str, float | int | None] = {}
    if interval is not None and replica.role is Role.FRONTEND:
        totals = _totals([interval])
        figures = {
            "running": totals.running,
            "queued": totals.router_queue,
            "prefix_hit_rate": totals.prefix_hit_rate,
            "request_rate": totals.request_rate,
            "output_token_rate": totals.output_token_rate,
            "ttft_s": totals.ttft_s,
            "itl_s": totals.itl_s,
        }
    elif interval is not None:
        figures = _engine(interval) | _last_latencies(replica, frontends)
    return WorkerView(
        name=replica.name,
        component=replica.program,
        role=replica.role,
        state=replica.state,
        pid=replica.pid,
        restarts=replica.restarts,
        worker_id=replica.worker_id,
        is_substitute=replica.is_substitute,
        responds=scrapes.responds(replica.key),
        stalled_s=scrapes.stalled_s(replica.key),
        stall_limit_s=_stall_limit_s(replica, scrapes, frontends),
        **figures,  # type: ignore[arg-type]
    )


def _engine(interval: Interval) -> dict[str, float | int | None]:
    """Prefill mockers export no figures of an engine: requests in flight are Dynamo's."""
    metrics = interval.now.metrics
    handler_queue = metrics.total([WORKER_QUEUE]) or 0
    in_flight = metrics.total([IN_FLIGHT], **GENERATE)
    running = metrics.total(scrape.ENGINE_RUNNING)
    if running is None and in_flight is not None:
        running = max(0, in_flight - handler_queue)
    waiting = metrics.total(scrape.ENGINE_WAITING) or 0
    return {
        "running": _count(running),
        "in_flight": _count(in_flight),
        "queued": None if running is None else _count(waiting + handler_queue),
        "kv_usage": _gauge(metrics, scrape.ENGINE_KV_USAGE),
        "prefix_hit_rate": _hit_rate(interval),
        "request_rate": interval.rate([WORKER_REQUESTS], **GENERATE),
        "output_token_rate": interval.rate(scrape.GENERATED),
    }


def _hit_rate(interval: Interval) -> float | None:
    """Of the interval from counters, or the engine's own."""
    queries, hits = interval.increase(scrape.QUERIES), interval.increase(scrape.HITS)
    if queries and hits is not None:
        return min(1.0, hits / queries)
    return _gauge(interval.now.metrics, scrape.HIT_RATE)


def _last_latencies(
    replica: Replica, frontends: Sequence[Interval]
) -> dict[str, float | int | None]:
    return {
        "ttft_s": _of_worker(scrape.LAST_TTFT, replica, frontends),
        "itl_s": _of_worker(scrape.LAST_ITL, replica, frontends),
    }


def _of_worker(name: str, replica: Replica, frontends: Sequence[Interval]) -> float | None:
    """A gauge of the worker, as its frontends measured it; of several frontends, the largest."""
    if replica.worker_id is None:
        return None
    label = _label(replica.worker_id)
    found = (s.value for i in frontends for s in i.now.metrics.find(name, worker_id=label))
    return max(found, default=None)


def _label(worker_id: str) -> str:
    """As frontends write the ID."""
    return str(int(worker_id, 16))


def _stall_limit_s(replica: Replica, scrapes: Scrapes, frontends: Sequence[Interval]) -> float:
    """How long a worker may send nothing: several times the prefill of the prompts that it has now,
    at the speed of its last ones, and the time of several tokens."""
    if replica.worker_id is None:
        return STALL_S
    tokens = _of_worker(scrape.PREFILL_TOKENS, replica, frontends)
    speed = scrapes.prefill_speed(_label(replica.worker_id))
    if tokens and speed is None:
        return FIRST_PREFILL_S
    # The tokens that the worker has are those that it computes, its speed includes cached ones.
    computed = 1 - _share_cached(frontends)
    prefill_s = tokens / (speed * computed) if tokens and speed and computed else 0.0
    itl_s = _of_worker(scrape.LAST_ITL, replica, frontends) or 0.0
    return max(STALL_S, MARGIN * prefill_s, TOKENS * itl_s)


def _share_cached(frontends: Sequence[Interval]) -> float:
    """Of all prompt tokens since the frontends started, 0 to 1."""
    cached, prompt = (
        sum(i.now.metrics.total([name]) or 0.0 for i in frontends) for name in (CACHED, PROMPT)
    )
    return min(1.0, cached / prompt) if prompt else 0.0


def _edges(
    components: Sequence[ComponentView],
    workers: Sequence[WorkerView],
    replicas: Sequence[Replica],
    frontends: Sequence[Interval],
    scrapes: Scrapes,
) -> Iterable[Edge]:
    """Of a request: clients → frontend → router → worker pools, and the KV transfers between
    them."""
    pools = [c for c in components if c.role is not Role.FRONTEND]
    for component in components:
        if component.role is Role.FRONTEND:
            rate = _sum(i.rate([STARTED]) for i in frontends)
            yield Edge(source=CLIENTS, target=component.name, request_rate=rate)
            # One admission per phase: in a disaggregated graph, two for each request.
            admitted = [
                _sum(i.rate([scrape.ADMITTED], worker_type=t) for i in frontends)
                for t in ("prefill", "decode")
            ]
            routed = max((count for count in admitted if count is not None), default=None)
            yield Edge(source=component.name, target=ROUTER, request_rate=routed)
    for pool in pools:
        rate = _sum(w.request_rate for w in workers if w.component == pool.name)
        yield Edge(source=ROUTER, target=pool.name, request_rate=rate)
    prefill = [c for c in pools if c.role is Role.PREFILL]
    for source in prefill:
        for target in (c for c in pools if c.role is Role.DECODE):
            readers = [r for r in replicas if r.program == target.name]
            intervals = [i for r in readers if (i := scrapes.interval(r.key)) is not None]
            yield Edge(
                source=source.name,
                target=target.name,
                request_rate=_sum(w.request_rate for w in workers if w.component == source.name),
                byte_rate=_sum(i.rate(scrape.KV_BYTES) for i in intervals),
                is_kv_transfer=True,
            )


def _alerts(
    state: GraphState, workers: Sequence[WorkerView], components: Sequence[ComponentView]
) -> Iterable[str]:
    for component in components:
        if not component.desired:
            yield f"{component.name} has no replicas"
    for worker in workers:
        if worker.state is ReplicaState.CRASHED:
            yield f"{worker.name} has crashed and will be restarted"
        elif worker.state is ReplicaState.UNHEALTHY:
            yield f"{worker.name} failed its last health check"
        elif worker.responds is False:
            yield f"{worker.name} does not return its metrics"
        elif worker.stalled_s > worker.stall_limit_s:
            yield (
                f"{worker.name} hangs: {count_of(worker.in_flight or 0, 'request')} in flight, and "
                f"nothing sent for {worker.stalled_s:.0f} s (stage: {STAGES[worker.role]})"
            )
    if state.rejected_edit:
        yield f"the last edit was rejected: {state.rejected_edit[0]}"
    if state.gateway is not None and not state.gateway.is_running:
        yield "the gateway is not running"


def _hung_requests(workers: Sequence[WorkerView], events: Sequence[Event]) -> Iterable[str]:
    hangs = Counter(event.subject for event in events if event.kind is EventKind.HANG)
    for worker in workers:
        if count := hangs[worker.name]:
            yield (
                f"{worker.name}: {count_of(count, 'request')} hung in the last minute (stage: "
                f"{STAGES[worker.role]})"
            )


def _gauge(metrics: Metrics, gauges: Iterable[str]) -> float | None:
    """Of the first of these gauges that the process exports; of several ranks, the largest."""
    for name in gauges:
        if values := [sample.value for sample in metrics.find(name)]:
            return max(values)
    return None


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that were measured; None if none was."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)
