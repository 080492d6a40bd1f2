"""What is wanted, and every graph that `plan` considers for it: layouts, pools, router.

Pure and in a fixed order: the same question has the same candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.models import ModelShape
from penstock.plan.request import Objective, PlanRequest

# Limits that are tried: requests of one rank at once, and prompt tokens of one step. A decode pool
# reads no prompts, and a prefill pool has few requests at once.
BATCHES = (128, 1024)
STEPS = (2048, 8192, 16384)
PREFILL_BATCH, PREFILL_STEP, DECODE_STEP = 64, 16384, 8192
WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, order=True, kw_only=True)
class Layout:
    """How one worker lies on its GPUs: ``ep`` groups hold whole experts (1: each expert is cut over
    all GPUs), ``attention_dp`` gives each GPU sequences of its own."""

    gpus: int
    ep: int = 1
    attention_dp: bool = False

    def __str__(self) -> str:
        kind = "DP" if self.attention_dp else "TP"
        return f"{kind}{self.gpus}" + (f"/EP{self.ep}" if self.ep > 1 else "")

    @property
    def ranks(self) -> int:
        return self.gpus if self.attention_dp else 1


@dataclass(frozen=True, order=True, kw_only=True)
class PoolCandidate:
    """``batch``: requests of one rank at once; ``step``: tokens of one step."""

    layout: Layout
    replicas: int
    batch: int
    step: int

    def __str__(self) -> str:
        return f"{self.replicas} × {self.layout}"

    @property
    def gpus(self) -> int:
        return self.replicas * self.layout.gpus


@dataclass(frozen=True, order=True, kw_only=True)
class Candidate:
    """``worker`` serves alone, or decodes beside ``prefill`` (an empty tuple, or one pool)."""

    prefill: tuple[PoolCandidate, ...]
    worker: PoolCandidate
    router: str

    def __str__(self) -> str:
        worker = self.worker
        limits = f"batch {worker.batch}"
        if self.prefill:
            pools = f"{self.prefill[0]} prefill + {worker} decode"
        else:
            pools, limits = f"{worker} aggregated", f"{limits}, steps of {worker.step}"
        return f"{pools}, {limits}" + ("" if self.router == "kv" else f", {self.router}")

    @property
    def pools(self) -> tuple[PoolCandidate, ...]:
        return (*self.prefill, self.worker)

    @property
    def gpus(self) -> int:
        return sum(pool.gpus for pool in self.pools)

    @property
    def is_disaggregated(self) -> bool:
        return bool(self.prefill)

    @property
    def effort(self) -> tuple[int, ...]:
        """To run it, the least first: one pool before two, few GPUs, few workers, the KV router."""
        workers = sum(pool.replicas for pool in self.pools)
        return (self.is_disaggregated, self.gpus, workers, self.router != "kv")

    @property
    def simplicity(self) -> tuple[object, ...]:
        """An order of all: by their effort, then by their fields."""
        return (self.effort, self)


def layouts(request: PlanRequest) -> tuple[Layout, ...]:
    """Within one node. Experts are whole or cut; Hopper's kernels for MXFP4 have them whole."""
    most = min(request.gpus, request.gpu.gpus_per_node)
    widths = [w for w in WIDTHS if w <= most and _divides(request.shape, w)]
    has_experts = bool(request.shape.parts.experts)
    can_cut = not (request.shape.is_gpt_oss and request.gpu.is_hopper)
    found = []
    for width in widths:
        if width == 1 or not has_experts or can_cut:
            found.append(Layout(gpus=width))
        if width > 1 and has_experts:
            found.append(Layout(gpus=width, ep=width))
            found.append(Layout(gpus=width, ep=width, attention_dp=True))
    return tuple(found)


def _divides(shape: ModelShape, width: int) -> bool:
    return shape.heads % width == 0


def candidates(request: PlanRequest, usable: Sequence[Layout]) -> tuple[Candidate, ...]:
    """All of ``usable`` layouts within the GPUs. For ``COST`` every number of workers; else as many
    as there is room for, as another worker slows nobody down."""
    return tuple(c for router in _routers(request) for c in _candidates(request, usable, router))


def _routers(request: PlanRequest) -> tuple[str, ...]:
    """Where nothing is shared the KV router only balances the load, which it does as well."""
    return ("kv", "round-robin") if request.shares_prefixes else ("kv",)


def _candidates(request: PlanRequest, usable: Sequence[Layout], router: str) -> Iterator[Candidate]:
    for layout in usable:
        for replicas in _counts(request, layout.gpus):
            for batch in BATCHES:
                for step in STEPS:
                    pool = PoolCandidate(layout=layout, replicas=replicas, batch=batch, step=step)
                    yield Candidate(prefill=(), worker=pool, router=router)
    for first in usable:
        for second in usable:
            yield from _disaggregated(request, first, second, router)


def _disaggregated(
    request: PlanRequest, first: Layout, second: Layout, router: str
) -> Iterator[Candidate]:
    for count in range(1, request.gpus // first.gpus + 1):
        room = request.gpus - count * first.gpus
        prefill = PoolCandidate(
            layout=first, replicas=count, batch=PREFILL_BATCH, step=PREFILL_STEP
        )
        for replicas in _counts(request, second.gpus, room):
            for batch in BATCHES:
                pool = PoolCandidate(
                    layout=second, replicas=replicas, batch=batch, step=DECODE_STEP
                )
                yield Candidate(prefill=(prefill,), worker=pool, router=router)


def _counts(request: PlanRequest, gpus: int, room: int | None = None) -> range:
    """Numbers of workers of ``gpus`` each."""
    most = (request.gpus if room is None else room) // gpus
    return (
        range(1, most + 1) if request.objective is Objective.COST else range(max(1, most), most + 1)
    )
