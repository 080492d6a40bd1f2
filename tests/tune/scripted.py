"""A deployment, and replays whose metrics a test defines by settings and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.graph.slo import Slo
from penstock.hardware import GPUS
from penstock.manifests.deployment import Role
from penstock.simulate.metrics import ReplayMetrics, replay_metrics
from penstock.simulate.model import PoolReplay, Replayable
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.router import Router
from penstock.simulate.study import Progress, Row, Study
from penstock.tune.settings import RouterSettings, settings_of
from penstock.tune.tuning import LATENCIES, Parts, Trial, Tuning, parts_of, tune
from penstock.workload.load import parse_workload
from tests.simulate.test_metrics import steady

SEEDS = 3
LOADED = parse_workload(
    "requests: 240\ninput: 1024\noutput: 64\narrival: {poisson: 4}\n", "chat.yaml"
)
TUNED = RouterSettings(4, 4)
# (settings, seed) → metrics that differ from those of `steady`.
Behavior = Callable[[RouterSettings, int], dict[str, Any]]


ENGINE = {"backend": "vllm", "timing_model": {"config": {"model": "openai/gpt-oss-120b"}}}


def deployment(**settings: Any) -> Replayable:
    pool = PoolReplay(
        names=("worker",),
        role=Role.WORKER,
        replicas=4,
        gpus=1,
        all_gpus=4,
        engine={"engine": ENGINE, "dp_size": 1},
    )
    router = Router(mode="kv", settings={"router_temperature": 0.0, **settings})
    return Replayable(name="ours", gpu=GPUS["b200"], pools=(pool,), router=router, context=9999)


def metrics(ttft_ms: float | None = None, **values: Any) -> ReplayMetrics:
    """``ttft_ms``: all percentiles of the TTFT that ``values`` do not have."""
    equal = {} if ttft_ms is None else dict.fromkeys(LATENCIES, ttft_ms)
    return replace(replay_metrics(steady(), 4, Slo(ttft_ms=51)), **{**equal, **values})


def trial(settings: RouterSettings, ttft_ms: Sequence[float], **values: Any) -> Trial:
    seeds = tuple(metrics(ttft, **values) for ttft in ttft_ms)
    row = Row(replayable=deployment(), metrics=seeds, results=(steady(),))
    return Trial(settings=settings, row=row)


@dataclass(frozen=True, kw_only=True)
class ScriptedStudy(Study):
    behavior: Behavior
    asked: list[tuple[RouterSettings, int]] = field(default_factory=list)

    def rows(self, deployments: Sequence[Replayable], progress: Progress | None) -> list[Row]:
        rows = []
        for number, graph in enumerate(deployments, 1):
            rows.append(self._scripted(graph))
            if progress:
                seeds = self.seeds or 1
                progress(number * seeds, len(deployments) * seeds)
        return rows

    def _scripted(self, graph: Replayable) -> Row:
        settings = settings_of(graph)
        seeds = range(self.first_seed, self.first_seed + (self.seeds or 1))
        self.asked.extend((settings, seed) for seed in seeds)
        measured = tuple(metrics(**self.behavior(settings, seed)) for seed in seeds)
        return Row(replayable=graph, metrics=measured, results=tuple(steady() for _ in seeds))


def scripted_parts(behavior: Behavior, seeds: int = SEEDS) -> Parts:
    parts = parts_of(LOADED, Replays(Cache(None, ""), processes=1), seeds)
    return replace(
        parts,
        choice=_scripted(parts.choice, behavior),
        confirmation=_scripted(parts.confirmation, behavior),
    )


def _scripted(study: Study, behavior: Behavior) -> ScriptedStudy:
    return ScriptedStudy(
        workload=study.workload,
        replays=study.replays,
        seeds=study.seeds,
        first_seed=study.first_seed,
        behavior=behavior,
    )


def tuned(behavior: Behavior, **settings: Any) -> Tuning:
    """What `tune` finds for a graph with these settings."""
    return tune(deployment(**settings), scripted_parts(behavior), SEEDS, lambda *_: None)


def faster(best: RouterSettings, factor: float = 0.7) -> Behavior:
    """TTFTs of 100 ms, and of 100 × ``factor`` with the best settings."""
    return lambda settings, seed: {
        "ttft_ms": (100 + seed % 2) * (factor if settings == best else 1.0)
    }
