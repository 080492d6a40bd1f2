"""A deployment as Dynamo's replay takes it: one engine per pool, a router, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.graph.slo import Slo
from penstock.hardware import Gpu
from penstock.manifests.deployment import Role
from penstock.simulate.router import Router


@dataclass(frozen=True, kw_only=True)
class PoolReplay:
    """Workers alike: ``gpus`` of one, ``all_gpus`` as the manifest has them; ``engine`` as JSON for
    replay."""

    names: tuple[str, ...]
    role: Role
    replicas: int
    gpus: int
    all_gpus: int
    engine: Mapping[str, Any]

    @property
    def worker_gpus(self) -> float:
        """That one holds, those which it has and does not use among them."""
        return self.all_gpus / self.replicas

    def sized(self, replicas: int) -> PoolReplay:
        return replace(self, replicas=replicas, all_gpus=round(self.worker_gpus * replicas))


@dataclass(frozen=True, kw_only=True)
class PromptLimit:
    """Without chunked prefill a prompt is read in one step: ``tokens`` of it at the most, and the
    engine of ``pool`` refuses a longer one."""

    pool: str
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Planner:
    """``config``: PlannerConfig as replay takes it; ``startup_s``: from a decision to a worker that
    answers; ``most_gpus``: what its pools together may take, None without a bound."""

    config: Mapping[str, Any]
    startup_s: float
    most_gpus: int | None


@dataclass(frozen=True, kw_only=True)
class Replayable:
    """``context``: tokens of the longest request, prompt and answer, that every pool takes.

    ``left_out``: what the replay does not do, one clause each; ``assumed``: what it takes for
    what nothing says; ``unscaled``: pools that somebody scales, who is not replayed; ``planner``:
    who scales them in the replay. ``slo`` and ``gpu_hour_price`` are the graph's
    and do not affect the replay.
    """

    name: str
    gpu: Gpu
    pools: tuple[PoolReplay, ...]
    router: Router
    context: int
    prompt_limit: PromptLimit | None = None
    left_out: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    unscaled: tuple[str, ...] = ()
    planner: Planner | None = None
    slo: Slo = field(default_factory=Slo)
    gpu_hour_price: float | None = None

    @property
    def gpus(self) -> int:
        return sum(pool.all_gpus for pool in self.pools)

    @property
    def workers(self) -> int:
        return sum(pool.replicas for pool in self.pools)

    @property
    def is_random(self) -> bool:
        """Whether two replays may differ: the KV router breaks ties by chance."""
        choices = max(pool.replicas * pool.engine["dp_size"] for pool in self.pools)
        return self.router.settings is not None and (choices > 1 or self.planner is not None)

    @property
    def shape(self) -> str:
        """`4×1 prefill + 1×4 decode`: workers × GPUs of each."""
        return " + ".join(f"{p.replicas}×{p.gpus} {'+'.join(p.names)}" for p in self.pools)
