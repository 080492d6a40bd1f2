"""A deployment as Dynamo's replay takes it: one engine per pool, and a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.graph.slo import Slo
from penstock.hardware import Gpu
from penstock.manifests.deployment import Role
from penstock.simulate.frontend import Frontends, FrontendTime
from penstock.simulate.router import Router

if TYPE_CHECKING:
    from penstock.simulate.calibration import Calibration


@dataclass(frozen=True, kw_only=True)
class PoolReplay:
    """The identical workers of one role."""

    names: tuple[str, ...]  # of the components, several where the manifest has several of the role
    role: Role
    replicas: int
    gpus: int  # that one worker uses
    all_gpus: int  # of the pool in the manifest, unused ones included
    engine: Mapping[str, Any]  # the replay's configuration of one engine

    @property
    def worker_gpus(self) -> float:
        """GPUs of one worker in the manifest, unused ones included."""
        return self.all_gpus / self.replicas

    def resized(self, replicas: int) -> PoolReplay:
        return replace(self, replicas=replicas, all_gpus=round(self.worker_gpus * replicas))


@dataclass(frozen=True, kw_only=True)
class InputLimit:
    """Without chunked prefill an engine processes an input in one step, and refuses longer ones."""

    pool: str
    tokens: int  # of one step


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Dynamo's planner in the replay."""

    config: Mapping[str, Any]  # PlannerConfig as the replay takes it
    startup_s: float  # from a decision until the added worker is ready
    max_gpus: int | None  # of all its pools together; None: no limit


@dataclass(frozen=True, kw_only=True)
class Replayable:
    """A deployment that can be replayed."""

    name: str
    gpu: Gpu
    pools: tuple[PoolReplay, ...]
    router: Router
    context: int  # tokens, input and output, of the longest request that every pool takes
    input_limit: InputLimit | None = None
    not_simulated: tuple[str, ...] = ()  # what is configured and not replayed, one clause each
    assumed: tuple[str, ...] = ()  # what the replay assumes where nothing is configured
    unscaled: tuple[str, ...] = ()  # pools with an autoscaler that is not part of the replay
    planner: Planner | None = None
    calibration: Calibration | None = None  # whose factors are part of the pools' engines
    frontends: Frontends | None = None  # None: not known
    # Added to the results of a replay: that of the frontends, or of the calibration.
    frontend_time: FrontendTime = field(default_factory=FrontendTime)
    # The graph's SLO and price; neither affects the replay.
    slo: Slo = field(default_factory=Slo)
    gpu_hour_price: float | None = None

    @property
    def gpus(self) -> int:
        return sum(pool.all_gpus for pool in self.pools)

    def refuses_input(self, tokens: int) -> bool:
        """Whether an input is longer than a step of an engine without chunked prefill."""
        return self.input_limit is not None and tokens > self.input_limit.tokens

    @property
    def workers(self) -> int:
        return sum(pool.replicas for pool in self.pools)

    @property
    def choices(self) -> int:
        """What the router selects from in the largest pool: workers, or their ranks with attention
        DP."""
        return max(pool.replicas * int(pool.engine["dp_size"]) for pool in self.pools)

    @property
    def is_random(self) -> bool:
        """Whether two replays may differ: the KV router breaks ties randomly."""
        return self.router.settings is not None and (self.choices > 1 or self.planner is not None)

    @property
    def shape(self) -> str:
        """`4×1 prefill + 1×4 decode`: workers × GPUs of each pool."""
        return " + ".join(f"{p.replicas}×{p.gpus} {'+'.join(p.names)}" for p in self.pools)
