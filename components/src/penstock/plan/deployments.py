"""Candidates as rendered graphs: what `check` refuses, or cannot be replayed, is left with why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from penstock.checks.finding import Level
from penstock.checks.run import check_source
from penstock.errors import PenstockError
from penstock.manifests.deployment import Role
from penstock.manifests.source import Source, graph_source
from penstock.plan.estimate import Estimator, Table
from penstock.plan.graph_text import graph_text
from penstock.plan.request import PlanRequest
from penstock.plan.space import (
    BATCHES,
    DECODE_STEP,
    PREFILL_BATCH,
    PREFILL_STEP,
    Candidate,
    Layout,
    PoolCandidate,
)
from penstock.plan.steps import Steps, steps_of
from penstock.plan.traffic import Traffic
from penstock.serving.understand import Hints
from penstock.simulate.model import PoolReplay, Replayable
from penstock.simulate.replayable import replayable_deployments

FILE = "plan.yaml"
RENDERING = Lock()  # one at a time: searches are several


@dataclass
class Deployments:
    """Each candidate is rendered and checked once; ``refused``: why some cannot be."""

    request: PlanRequest
    refused: dict[Candidate, str] = field(default_factory=dict)
    _made: dict[Candidate, Replayable] = field(default_factory=dict)

    def of(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, Replayable]]:
        """Those of ``candidates`` that can be installed and replayed, in order."""
        new = [c for c in candidates if c not in self._made and c not in self.refused]
        if new:
            with RENDERING:
                self._make(new)
        return [(c, self._made[c]) for c in candidates if c in self._made]

    def _make(self, candidates: Sequence[Candidate]) -> None:
        sources = {c: self._source(c) for c in candidates}
        sound = {c: source for c, source in sources.items() if isinstance(source, Source)}
        self.refused |= {c: why for c, why in sources.items() if isinstance(why, str)}
        found = replayable_deployments(list(sound.values()), self._given())
        for candidate, one in zip(sound, found, strict=True):
            if isinstance(one, PenstockError):
                self.refused[candidate] = str(one)
            else:
                self._made[candidate] = replace(one, name=str(candidate))

    def _source(self, candidate: Candidate) -> Source | str:
        """Rendered, or what `check` calls an error."""
        try:
            source = graph_source(graph_text(self.request, candidate), FILE)
        except PenstockError as error:
            return str(error)
        findings = check_source(source, self._given())
        errors = [f for f in findings if f.level is Level.ERROR and not f.suppressed]
        return f"{errors[0].rule}: {errors[0].message}" if errors else source

    def _given(self) -> Hints:
        return Hints(gpu=self.request.gpu.name, model_folder=self.request.folder)


def step_table(
    deployments: Deployments, layouts: Sequence[Layout], traffic: Traffic
) -> tuple[Table, dict[Layout, str]]:
    """Step times of each layout in each role, and why some layouts have none. Where whole experts
    and cut ones were measured both stay."""
    asked = [(layout, role, one) for layout in layouts for role, one in _probes(layout)]
    made = dict(deployments.of([one for *_, one in asked]))
    engines = [
        (layout, role, _engine(made[one], role)) for layout, role, one in asked if one in made
    ]
    why = {layout: deployments.refused[one] for layout, _, one in asked if one not in made}
    table: dict[tuple[Layout, Role], Steps] = {}
    answers = steps_of([engine for *_, engine in engines], traffic)
    for (layout, role, _), answer in zip(engines, answers, strict=True):
        if isinstance(answer, str):
            why[layout] = _unmeasured(answer)
        else:
            table[layout, role] = answer
    return table, why


def _unmeasured(said: str) -> str:
    """AISimulate's words, which name files of this machine, in ours."""
    return "its experts were not measured so" if "MoE" in said else "its kernels were not measured"


def _probes(layout: Layout) -> list[tuple[Role, Candidate]]:
    """The layout alone and in both pools."""
    alone = PoolCandidate(layout=layout, replicas=1, batch=BATCHES[-1], step=DECODE_STEP)
    first = PoolCandidate(layout=layout, replicas=1, batch=PREFILL_BATCH, step=PREFILL_STEP)
    disaggregated = Candidate(prefill=(first,), worker=alone, router="kv")
    whole = Candidate(prefill=(), worker=alone, router="kv")
    return [(Role.WORKER, whole), (Role.PREFILL, disaggregated), (Role.DECODE, disaggregated)]


def _engine(deployment: Replayable, role: Role) -> PoolReplay:
    return next(pool for pool in deployment.pools if pool.role is role)


def estimator(deployments: Deployments, table: Table, traffic: Traffic) -> Estimator:
    """With the time that a prompt's KV takes from prefill to decode."""
    rate = deployments.request.gpu.nic_gbits / 8
    if deployments.request.gpu.is_grace:
        rate = deployments.request.gpu.nvlink_gbs
    tokens = traffic.cached + traffic.fresh
    token_bytes = deployments.request.shape.kv_bytes_per_token() or 0
    return Estimator(table, traffic, transfer_ms=tokens * token_bytes / (rate * 1e6))
