"""Request rate, latencies and queues of a running graph, from its processes' Prometheus endpoints.

`status` and the table of `up` show them. Names of metrics: Dynamo 1.6, vLLM, TensorRT-LLM, SGLang.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http.client import HTTPException
from typing import Any

from penstock.local.ports import LOOPBACK
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import LocalState, ReplicaStatus
from penstock.manifests.deployment import Role
from penstock.metrics import Metrics, Sample, parse
from penstock.serving.frontend_metrics import (
    CACHED,
    ITL,
    PROMPT,
    REQUESTS,
    TTFT,
    FrontendMetrics,
    summarize,
)

TIMEOUT_S = 2.0
ROUTER_QUEUE = "dynamo_frontend_router_queue_pending_requests"
IN_FLIGHT = "dynamo_component_inflight_requests"
WORKER_REQUESTS = "dynamo_component_requests_total"
WORKER_QUEUE = "dynamo_work_handler_queue_depth"
GENERATE = {"dynamo_endpoint": "generate"}
RUNNING = (
    "vllm:num_requests_running",
    "trtllm:num_requests_running",
    "trtllm_num_requests_running",
    "sglang:num_running_reqs",
)
WAITING = (
    "vllm:num_requests_waiting",
    "trtllm:num_requests_waiting",
    "trtllm_num_requests_waiting",
    "sglang:num_queue_reqs",
)
KV_USAGE = (
    "vllm:kv_cache_usage_perc",
    "trtllm:kv_cache_usage_perc",
    "trtllm_kv_cache_utilization",
    "sglang:token_usage",
)
# A frontend exports 2,000 lines; parsing all of them takes longer than reading them.
_READ = (
    *(TTFT, ITL, CACHED, PROMPT, REQUESTS),
    *(ROUTER_QUEUE, IN_FLIGHT, WORKER_REQUESTS, WORKER_QUEUE),
    *(*RUNNING, *WAITING, *KV_USAGE),
)

Read = Callable[[str], str]  # URL → text; raises OSError or HTTPException


@dataclass(frozen=True, kw_only=True)
class WorkerLoad:
    """One worker. None: it does not export the figure, or there is no earlier sample."""

    running: int | None
    """Requests in the engine."""
    queued: int | None
    """Requests that have reached the worker and wait for the engine."""
    request_rate: float | None
    """Requests/s since the previous sample."""
    kv_usage: float | None
    """Share of the KV cache in use, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class GraphLoad:
    """One sample of a running graph, and what happened since the previous one."""

    interval_s: float | None
    """Time since the previous sample; None for the first."""
    interval: FrontendMetrics | None
    """Since the previous sample; None for the first, or if no frontend responds."""
    total: FrontendMetrics | None
    """Since the frontends started; None if none responds."""
    router_queue: int
    """Requests that wait in the routers of the frontends."""
    workers: Mapping[str, WorkerLoad]
    """By replica; without those that do not respond."""

    @property
    def request_rate(self) -> float | None:
        """Completed requests/s since the previous sample."""
        if self.interval is None or not self.interval_s:
            return None
        return self.interval.requests / self.interval_s

    def as_dict(self) -> dict[str, Any]:
        """`load` of `penstock status --json`."""
        return {
            "interval_s": self.interval_s,
            "request_rate": self.request_rate,
            "interval": _figures(self.interval),
            "since_start": _figures(self.total),
            "router_queue": self.router_queue,
            "workers": {name: asdict(worker) for name, worker in self.workers.items()},
        }


def _figures(metrics: FrontendMetrics | None) -> dict[str, Any] | None:
    if metrics is None:
        return None
    return {
        "requests": metrics.requests,
        "ttft_p50_s": metrics.ttft_s,
        "itl_p50_s": metrics.itl_s,
        "prefix_hit_rate": metrics.prefix_hit_rate,
    }


class LoadSampler:
    """Samples one graph. A process that restarts between two samples starts again at 0."""

    def __init__(
        self, read: Read | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read or _get
        self._clock = clock
        self._before: dict[tuple[str, int], list[Sample]] = {}
        self._sampled_at: float | None = None

    def sample(self, state: LocalState) -> GraphLoad:
        """Read all processes that are ready or draining; those that do not respond are left out."""
        replicas = [r for r in state.replicas if _serves(r)]
        with ThreadPoolExecutor(max_workers=8) as pool:
            read = list(pool.map(self._samples, replicas))
        now = self._clock()
        by_name = {
            r.name: (r, samples) for r, samples in zip(replicas, read, strict=True) if samples
        }
        interval_s = None if self._sampled_at is None else now - self._sampled_at
        frontends = [(r, s) for r, s in by_name.values() if r.role is Role.FRONTEND]
        current = [sample for _, samples in frontends for sample in samples]
        before = [sample for r, _ in frontends for sample in self._before.get((r.name, r.pid), ())]
        load = GraphLoad(
            interval_s=interval_s,
            interval=summarize(current, before) if current and interval_s else None,
            total=summarize(current) if current else None,
            router_queue=_count(current, [ROUTER_QUEUE]) or 0,
            workers={
                name: self._worker(r, samples, interval_s)
                for name, (r, samples) in by_name.items()
                if r.role is not Role.FRONTEND
            },
        )
        self._before = {(r.name, r.pid): samples for r, samples in by_name.values()}
        self._sampled_at = now
        return load

    def _samples(self, replica: ReplicaStatus) -> list[Sample]:
        """Empty if the process does not respond."""
        port = replica.system_port or replica.port
        try:
            text = self._read(f"http://{LOOPBACK}:{port}/metrics")
            lines = [line for line in text.splitlines() if line.startswith(_READ)]
            return parse("\n".join(lines) + "\n")
        except (OSError, HTTPException, ValueError):
            return []

    def _worker(
        self, replica: ReplicaStatus, samples: list[Sample], interval_s: float | None
    ) -> WorkerLoad:
        """Prefill mockers export no figures of an engine: the requests in flight are Dynamo's."""
        handler_queue = _count(samples, [WORKER_QUEUE]) or 0
        in_flight = _count(samples, [IN_FLIGHT], **GENERATE)
        waiting = _count(samples, WAITING)
        running = _count(samples, RUNNING)
        if running is None and in_flight is not None:
            running = max(0, in_flight - handler_queue)
        before = self._before.get((replica.name, replica.pid), [])
        requests = Metrics(tuple(samples)).total([WORKER_REQUESTS], **GENERATE) or 0.0
        earlier = Metrics(tuple(before)).total([WORKER_REQUESTS], **GENERATE) or 0.0
        return WorkerLoad(
            running=running,
            queued=None if running is None else (waiting or 0) + handler_queue,
            request_rate=max(0.0, requests - earlier) / interval_s if interval_s else None,
            kv_usage=max((s.value for s in samples if s.name in KV_USAGE), default=None),
        )


def _serves(replica: ReplicaStatus) -> bool:
    is_alive = replica.state in (ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.UNHEALTHY)
    has_port = replica.system_port is not None or replica.role is Role.FRONTEND
    return is_alive and has_port


def _count(samples: Iterable[Sample], names: Iterable[str], **labels: str) -> int | None:
    total = Metrics(tuple(samples)).total(names, **labels)
    return None if total is None else round(total)


def _get(url: str) -> str:
    """Without a proxy, and without httpx, whose import takes longer than the other work."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=TIMEOUT_S) as response:
        return str(response.read().decode("utf-8", "replace"))
