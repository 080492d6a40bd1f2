"""Every graph that `plan` considers for a request: layouts, pools and routers, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from penstock.models import ModelShape
from penstock.plan.request import METHOD, Objective, PlanRequest
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings, shown

# Limits that are tried: concurrent requests of one rank, and input tokens of one step. A decode
# pool processes no input, and a prefill pool has few concurrent requests.
BATCHES = (128, 1024)
STEPS = (2048, 8192, 16384)
PREFILL_BATCH, PREFILL_STEP, DECODE_STEP = 64, 16384, 8192
WIDTHS = (1, 2, 4, 8)
AGGREGATED = "aggregated"  # the pool of a graph with one pool
KINDS = (AGGREGATED, "disaggregated")  # of graphs, by `Candidate.is_disaggregated`


@dataclass(frozen=True, order=True, kw_only=True)
class Layout:
    """The parallelism of one worker."""

    gpus: int
    ep: int = 1  # expert-parallel size; 1: tensor parallelism of the experts
    attention_dp: bool = False  # data parallelism of attention: each GPU has its own sequences

    def __str__(self) -> str:
        kind = "DP" if self.attention_dp else "TP"
        return f"{kind}{self.gpus}" + (f"/EP{self.ep}" if self.ep > 1 else "")

    @property
    def ranks(self) -> int:
        return self.gpus if self.attention_dp else 1


@dataclass(frozen=True, order=True, kw_only=True)
class PoolCandidate:
    layout: Layout
    replicas: int
    batch: int  # maximum number of concurrent requests of one rank
    step: int  # maximum number of tokens of one step

    def __str__(self) -> str:
        return f"{self.replicas} × {self.layout}"

    @property
    def gpus(self) -> int:
        return self.replicas * self.layout.gpus

    def smaller(self) -> PoolCandidate:
        return replace(self, replicas=self.replicas - 1)


@dataclass(frozen=True, order=True, kw_only=True)
class Candidate:
    """An aggregated or a disaggregated graph."""

    prefill: tuple[PoolCandidate, ...]  # one pool, or none in an aggregated graph
    worker: PoolCandidate  # the decode pool, or the pool of an aggregated graph
    router: str  # its mode
    settings: RouterSettings = DYNAMO_DEFAULT  # of the KV router
    drafts: bool = False  # speculative decoding in all pools

    def __str__(self) -> str:
        worker = self.worker
        limits = f"batch {worker.batch}"
        if self.prefill:
            pools = f"{self.prefill[0]} prefill + {worker} decode"
        else:
            pools, limits = f"{worker} aggregated", f"{limits}, steps of {worker.step}"
        mode = () if self.router == "kv" else (self.router,)
        settings = (f"{key} {shown(value)}" for key, value in self.settings.changes.items())
        draft = [METHOD] if self.drafts else []
        return ", ".join([pools, limits, *draft, *mode, *settings])

    @property
    def pools(self) -> tuple[PoolCandidate, ...]:
        return (*self.prefill, self.worker)

    @property
    def smallest(self) -> Candidate:
        """The same graph with one worker in each pool."""
        first = tuple(replace(pool, replicas=1) for pool in self.prefill)
        return replace(self, prefill=first, worker=replace(self.worker, replicas=1))

    @property
    def losses(self) -> Mapping[str, Candidate]:
        """What is left when a pool with several workers loses one, by the pool's name."""
        left = {}
        if self.worker.replicas > 1:
            name = "decode" if self.prefill else AGGREGATED
            left[name] = replace(self, worker=self.worker.smaller())
        for pool in self.prefill:
            if pool.replicas > 1:
                left["prefill"] = replace(self, prefill=(pool.smaller(),))
        return left

    @property
    def gpus(self) -> int:
        return sum(pool.gpus for pool in self.pools)

    @property
    def is_disaggregated(self) -> bool:
        return bool(self.prefill)

    @property
    def complexity(self) -> tuple[int, ...]:
        """Lower is simpler: one pool before two, few GPUs, few workers, no draft model, the KV
        router, its default settings."""
        workers = sum(pool.replicas for pool in self.pools)
        changes = len(self.settings.changes)
        first = (self.is_disaggregated, self.gpus, workers)
        return (*first, self.drafts, self.router != "kv", changes)

    @property
    def order(self) -> tuple[object, ...]:
        """A total order: by complexity, then by the fields."""
        return (self.complexity, self)


def layouts(request: PlanRequest) -> tuple[Layout, ...]:
    """Layouts within one node. Hopper's kernels for MXFP4 have no tensor-parallel experts."""
    most = min(request.gpus, request.gpu.gpus_per_node)
    widths = [w for w in WIDTHS if w <= most and _divides(request.shape, w)]
    has_experts = bool(request.shape.parts.experts)
    has_tp_experts = not (request.shape.is_gpt_oss and request.gpu.is_hopper)
    possible = []
    for width in widths:
        if width == 1 or not has_experts or has_tp_experts:
            possible.append(Layout(gpus=width))
        if width > 1 and has_experts:
            possible.append(Layout(gpus=width, ep=width))
            possible.append(Layout(gpus=width, ep=width, attention_dp=True))
    return tuple(possible)


def _divides(shape: ModelShape, width: int) -> bool:
    return shape.heads % width == 0


def candidates(request: PlanRequest, usable: Sequence[Layout]) -> tuple[Candidate, ...]:
    """All candidates of ``usable`` layouts that fit on the GPUs. For `COST` with every number of
    workers, else with as many as fit: one more worker slows no request down."""
    plain = tuple(c for router in _routers(request) for c in _candidates(request, usable, router))
    return plain + tuple(replace(c, drafts=True) for c in plain if request.draft)


def allowed(possible: Sequence[Candidate], request: PlanRequest) -> list[Candidate]:
    """The candidates with enough replicas. With `--confidence` only aggregated ones: there is no
    measured point of a disaggregated graph, so none has an interval."""
    return [
        c
        for c in possible
        if all(p.replicas >= request.min_replicas for p in c.pools)
        and not (c.is_disaggregated and request.confidence)
    ]


def _routers(request: PlanRequest) -> tuple[str, ...]:
    """Router modes to consider; without shared prefixes only the KV router, which balances the load
    as well as the other."""
    return ("kv", "round-robin") if request.shares_prefixes else ("kv",)


def _candidates(request: PlanRequest, usable: Sequence[Layout], router: str) -> Iterator[Candidate]:
    for layout in usable:
        for replicas, batch, step in product(_counts(request, layout.gpus), BATCHES, STEPS):
            pool = PoolCandidate(layout=layout, replicas=replicas, batch=batch, step=step)
            yield Candidate(prefill=(), worker=pool, router=router)
    for first, layout in product(usable, repeat=2):
        for count in range(1, request.gpus // first.gpus + 1):
            prefill = PoolCandidate(
                layout=first, replicas=count, batch=PREFILL_BATCH, step=PREFILL_STEP
            )
            counts = _counts(request, layout.gpus, request.gpus - prefill.gpus)
            for replicas, batch in product(counts, BATCHES):
                pool = PoolCandidate(
                    layout=layout, replicas=replicas, batch=batch, step=DECODE_STEP
                )
                yield Candidate(prefill=(prefill,), worker=pool, router=router)


def _counts(request: PlanRequest, gpus: int, free: int | None = None) -> range:
    """Numbers of workers with ``gpus`` each. ``free``: GPUs that are left; None means all."""
    most = (request.gpus if free is None else free) // gpus
    return (
        range(1, most + 1) if request.objective is Objective.COST else range(max(1, most), most + 1)
    )
