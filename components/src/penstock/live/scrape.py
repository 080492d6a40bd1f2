"""Scrapes the metrics of all processes of a graph, and computes rates from two scrapes.

A process that does not respond delays the others by at most `WAIT_S`. The names of metrics were
read from local processes (Dynamo 1.6.1's frontend, worker runtime and mocker, llama.cpp worker,
vLLM on a CPU). Those of TensorRT-LLM and SGLang are from `k8s/monitoring` or their collectors.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any

import httpx

from penstock.errors import ClusterError
from penstock.local.load import (
    GENERATE,
    IN_FLIGHT,
    KV_USAGE,
    ROUTER_QUEUE,
    RUNNING,
    WAITING,
    WORKER_QUEUE,
    WORKER_REQUESTS,
)
from penstock.local.reconcile import ReplicaState
from penstock.manifests.deployment import Role
from penstock.metrics import Metrics, Sample, parse
from penstock.serving.frontend_metrics import CACHED, FRONTEND, ITL, PROMPT, REQUESTS, STARTED, TTFT

if TYPE_CHECKING:
    from penstock.live.model import Replica

OUTPUT = f"{FRONTEND}output_tokens_total"
ACTIVE = f"{FRONTEND}active_requests"
ADMITTED = f"{FRONTEND}router_admission_received_total"
SENT = "dynamo_component_response_bytes_total"
PREFILL_TOKENS = f"{FRONTEND}worker_active_prefill_tokens"
LAST_INPUT = f"{FRONTEND}worker_last_input_sequence_tokens"
LAST_TTFT = f"{FRONTEND}worker_last_time_to_first_token_seconds"
LAST_ITL = f"{FRONTEND}worker_last_inter_token_latency_seconds"

ENGINE_RUNNING = (*RUNNING, "llamacpp_requests_running")
ENGINE_WAITING = (*WAITING, "llamacpp_requests_waiting")
# Gauges, from the engine's own to the one of Dynamo's runtime.
ENGINE_KV_USAGE = (*KV_USAGE, "dynamo_component_gpu_cache_usage_percent")
HITS = ("vllm:prefix_cache_hits_total", "llamacpp_cached_tokens_total")
QUERIES = ("vllm:prefix_cache_queries_total", "llamacpp_prompt_tokens_total")
HIT_RATE = ("trtllm_kv_cache_hit_rate", "sglang:cache_hit_rate")
GENERATED = (
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
    "llamacpp_generated_tokens_total",
)
# Bytes that decode workers have read from prefill workers.
KV_BYTES = (
    "llamacpp_kv_transfer_bytes_total",
    "vllm:nixl_bytes_transferred_sum",
    "trtllm_kv_transfer_bytes_sum",
)
READ = (
    *(TTFT, ITL, CACHED, PROMPT, REQUESTS, STARTED, OUTPUT, ACTIVE, ADMITTED),
    *(
        SENT,
        PREFILL_TOKENS,
        LAST_INPUT,
        LAST_TTFT,
        LAST_ITL,
        ROUTER_QUEUE,
        IN_FLIGHT,
        WORKER_REQUESTS,
        WORKER_QUEUE,
    ),
    *(*ENGINE_RUNNING, *ENGINE_WAITING, *ENGINE_KV_USAGE),
    *(*HITS, *QUERIES, *HIT_RATE, *GENERATED, *KV_BYTES),
)


Key = int | str
WAIT_S = 0.5  # for all processes of one scrape

Read = Callable[[str], Awaitable[str]]  # URL → text; raises OSError or httpx.HTTPError


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """The metrics of one process at one moment."""

    at_s: float
    """On the scraper's clock."""
    metrics: Metrics
    """Only what live views need."""


class Scraper:
    """``read``: the metrics of a process; any error of it means that it does not respond.
    ``clock``: monotonic seconds. ``wait_s``: for all processes of one scrape."""

    def __init__(
        self,
        read: Callable[[Any], Awaitable[str]],
        clock: Callable[[], float] = time.monotonic,
        wait_s: float = WAIT_S,
    ) -> None:
        self._read, self.clock, self._wait_s = read, clock, wait_s
        self._open: dict[Key, asyncio.Task[Scrape | None]] = {}

    async def scrape(self, replicas: Iterable[Replica]) -> dict[Key, Scrape | None]:
        """By key; None for a process that has not responded within ``wait_s``."""
        for replica in replicas:
            if has_metrics(replica) and replica.key not in self._open:
                self._open[replica.key] = asyncio.create_task(self._scrape(replica))
        if not self._open:
            return {}
        done, _ = await asyncio.wait(self._open.values(), timeout=self._wait_s)
        scrapes = {key: task.result() if task in done else None for key, task in self._open.items()}
        self._open = {key: task for key, task in self._open.items() if task not in done}
        return scrapes

    async def close(self) -> None:
        for task in self._open.values():
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    async def _scrape(self, replica: Replica) -> Scrape | None:
        try:
            text = await self._read(replica)
            return Scrape(at_s=self.clock(), metrics=metrics_of(text))
        except (OSError, httpx.HTTPError, ClusterError, ValueError):  # TimeoutError is an OSError
            return None


def metrics_of(text: str) -> Metrics:
    """What live views need of a scrape; ValueError if it is not in the Prometheus text format.

    Without values that are no numbers, such as NaN: a figure is then unknown.
    """
    # A frontend exports 2,000 lines; parsing all of them takes longer than reading them.
    lines = [line for line in text.splitlines() if line.startswith(READ)]
    samples = parse("\n".join(lines) + "\n")
    return Metrics(tuple(sample for sample in samples if isfinite(sample.value)))


def has_metrics(replica: Replica) -> bool:
    """Whether it is a frontend or a worker that should respond."""
    is_alive = replica.state in (ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.UNHEALTHY)
    return is_alive and (replica.system_port is not None or replica.role is Role.FRONTEND)


PREFILLS = 16  # of one worker, for its speed
WINDOW_S = 5.0  # rates of one second jump between 0 and 2 at one request per second


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Two scrapes of one process: the last, and the newest that is at least `WINDOW_S` older."""

    now: Scrape
    before: Scrape | None
    """The first scrape if none is that old; None if there is only one."""

    @property
    def seconds(self) -> float | None:
        seconds = self.now.at_s - self.before.at_s if self.before else 0.0
        return seconds if seconds > 0 else None

    def increase(self, names: Iterable[str], **labels: str) -> float | None:
        """Of counters, summed over the series; None if the process exports none of them, or was
        scraped only once. A counter that has become smaller was reset, and has started at 0."""
        names = tuple(names)
        if self.before is None or self.now.metrics.total(names, **labels) is None:
            return None
        earlier = {_key(s): s.value for s in _find(self.before.metrics, names, labels)}
        total = 0.0
        for sample in _find(self.now.metrics, names, labels):
            since = sample.value - earlier.get(_key(sample), 0.0)
            total += since if since >= 0 else sample.value
        return total

    def rate(self, names: Iterable[str], **labels: str) -> float | None:
        """Increase per second."""
        increase = self.increase(names, **labels)
        return increase / self.seconds if increase is not None and self.seconds else None


def _find(metrics: Metrics, names: Iterable[str], labels: Mapping[str, str]) -> Iterator[Sample]:
    for name in names:
        yield from metrics.find(name, **labels)


def _key(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())


class Scrapes:
    """The last scrapes of each process, by its key: a process that restarts has another one."""

    def __init__(self) -> None:
        self._kept: dict[Key, deque[Scrape]] = {}
        self._sent: dict[Key, tuple[float | None, float]] = {}
        """Response bytes, and when they last increased or no request was in flight."""
        self._prefills: dict[str, deque[tuple[float, float]]] = {}
        """By worker ID: prompt tokens and TTFT in seconds of the last prefills."""
        self._responds: dict[Key, bool] = {}

    def add(self, scrapes: Mapping[Any, Scrape | None], keys: Iterable[Key]) -> None:
        """``keys``: of the processes that run; others are forgotten."""
        for key, scrape in scrapes.items():
            self._responds[key] = scrape is not None
            if scrape is None:
                continue
            kept = self._kept.setdefault(key, deque())
            kept.append(scrape)
            self._add_prefills(scrape.metrics)
            sent = scrape.metrics.total([SENT], **GENERATE)
            is_idle = not scrape.metrics.total([IN_FLIGHT], **GENERATE)
            if sent is None or is_idle or self._sent.get(key, (None, 0))[0] != sent:
                self._sent[key] = (sent, scrape.at_s)
            while len(kept) > 2 and kept[1].at_s <= scrape.at_s - WINDOW_S:
                kept.popleft()
        running = set(keys)
        for key in self._responds.keys() - running:
            del self._responds[key]
            self._kept.pop(key, None)
            self._sent.pop(key, None)

    def responds(self, key: Key) -> bool | None:
        """Whether the last scrape succeeded; None before the first."""
        return self._responds.get(key)

    def _add_prefills(self, frontend: Metrics) -> None:
        ttfts = {s.labels.get("worker_id"): s.value for s in frontend.find(LAST_TTFT)}
        for sample in frontend.find(LAST_INPUT):
            worker_id = sample.labels.get("worker_id", "")
            last = (sample.value, ttfts.get(worker_id, 0.0))
            prefills = self._prefills.setdefault(worker_id, deque(maxlen=PREFILLS))
            if all(last) and (not prefills or prefills[-1] != last):
                prefills.append(last)

    def prefill_speed(self, worker_id: str) -> float | None:
        """Prompt tokens/s of the worker's last prefills, with cached tokens; None before the first.
        The median, as one that has hung says nothing about the others."""
        prefills = self._prefills.get(worker_id)
        return median(tokens / seconds for tokens, seconds in prefills) if prefills else None

    def stalled_s(self, key: Key) -> float:
        """For how long the process has sent nothing although requests are in flight; 0.0 before the
        second scrape, and for a process that does not count the bytes of its responses."""
        kept = self._kept.get(key)
        return kept[-1].at_s - self._sent[key][1] if kept else 0.0

    def interval(self, key: Key) -> Interval | None:
        """None if the process has not responded to the last scrape."""
        kept = self._kept.get(key)
        if not kept or not self._responds[key]:
            return None
        return Interval(now=kept[-1], before=kept[0] if len(kept) > 1 else None)
