"""Renders and checks candidates; those that cannot be installed or replayed are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
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
from penstock.simulate.acceptance import Acceptance
from penstock.simulate.frontend import FrontendTime
from penstock.simulate.model import Replayable
from penstock.simulate.replay import late
from penstock.simulate.replayable import replayable_deployments

FILE = "plan.yaml"


@dataclass
class Deployments:
    """Renders and checks one candidate of each kind: those of a kind have other numbers of workers.

    Searches share it, and use it at the same time.
    """

    request: PlanRequest
    refused: dict[Candidate, str] = field(default_factory=dict)  # kind → why
    _made: dict[Candidate, Replayable] = field(default_factory=dict)  # by kind
    _lock: Lock = field(default_factory=Lock)

    def of(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> list[tuple[Candidate, Replayable]]:
        """The candidates that can be installed and replayed, in order; once ``is_over``, those of
        them whose kind was made before."""
        kinds = [self._kind(candidate) for candidate in candidates]
        with self._lock:
            known = self._made.keys() | self.refused.keys()
            if new := [kind for kind in dict.fromkeys(kinds) if kind not in known]:
                self._make(new, is_over)
        pairs = zip(candidates, kinds, strict=True)
        return [(c, _resized(self._made[kind], c)) for c, kind in pairs if kind in self._made]

    def _kind(self, candidate: Candidate) -> Candidate:
        """The candidate with one worker per pool: no rule that is an error, and nothing in a
        replay's engines and router, depends on more of them, as long as the GPUs are enough."""
        gpus = self.request.nodes * self.request.gpu.gpus_per_node
        return candidate.smallest if candidate.gpus <= gpus else candidate

    def _make(self, kinds: Sequence[Candidate], is_over: Callable[[], bool]) -> None:
        # Rendering hundreds of kinds takes half a minute, which Ctrl-C and a time limit cut short.
        in_time = takewhile(lambda _: not is_over(), kinds)
        sources = {kind: self._source(kind) for kind in in_time}
        if is_over():
            return  # nothing will be replayed
        sound = {kind: source for kind, source in sources.items() if isinstance(source, Source)}
        self.refused |= {kind: why for kind, why in sources.items() if isinstance(why, str)}
        results = replayable_deployments(list(sound.values()), self._hints(), self._acceptance)
        for kind, result in zip(sound, results, strict=True):
            if isinstance(result, PenstockError):
                self.refused[kind] = str(result)
            else:
                file = self.request.calibrations
                self._made[kind] = file.calibrated(result) if file else result

    def _source(self, candidate: Candidate) -> Source | str:
        """The rendered graph, or the error that `check` finds."""
        try:
            source = graph_source(graph_text(self.request, candidate), FILE)
        except PenstockError as error:
            return str(error)
        findings = check_source(source, self._hints())
        errors = [f for f in findings if f.level is Level.ERROR and not f.suppressed]
        return f"{errors[0].rule}: {errors[0].message}" if errors else source

    @property
    def frontend_time(self) -> FrontendTime:
        """Of all candidates, whose frontends are the same; zero before one was made."""
        times = (deployment.frontend_time for deployment in self._made.values())
        return next(times, FrontendTime())

    @property
    def _acceptance(self) -> Acceptance | None:
        draft = self.request.draft
        return Acceptance(draft.rates) if draft else None

    def _hints(self) -> Hints:
        return Hints(gpu=self.request.gpu.name, model_folder=self.request.folder)


def _resized(rendered: Replayable, candidate: Candidate) -> Replayable:
    """The deployment of the candidate, from that of its kind."""
    pairs = zip(rendered.pools, candidate.pools, strict=True)  # both have prefill first
    pools = tuple(pool.resized(candidate.replicas) for pool, candidate in pairs)
    return replace(rendered, name=str(candidate), pools=pools)


def step_table(
    deployments: Deployments,
    layouts: Sequence[Layout],
    traffic: Traffic,
    left_s: Callable[[], float],
) -> tuple[Table, dict[Layout, str]]:
    """Step times of each layout in each role, and why some layouts have none. SimulationError of
    the kind LATE when no time is left."""
    probes = {(layout, role): probe for layout in layouts for role, probe in _probes(layout)}
    rendered = dict(deployments.of(list(probes.values()), lambda: left_s() <= 0))
    if left_s() <= 0:
        raise late()
    why = {
        layout: deployments.refused[probe]
        for (layout, _), probe in probes.items()
        if probe not in rendered
    }
    engines = {
        (layout, role): next(pool for pool in rendered[probe].pools if pool.role is role)
        for (layout, role), probe in probes.items()
        if probe in rendered
    }
    table: dict[tuple[Layout, Role], Steps] = {}
    answers = steps_of(list(engines.values()), traffic, left_s())
    for (layout, role), answer in zip(engines, answers, strict=True):
        if isinstance(answer, str):
            why[layout] = _unmeasured(answer)
        else:
            table[layout, role] = answer.corrected(deployments.request.factors)
    return table, why


def _unmeasured(error: str) -> str:
    """Replaces AISimulate's error, which has no code, and names files of this machine."""
    what = "experts" if "MoE" in error else "kernels"
    return f"its {what} were not measured"


def _probes(layout: Layout) -> list[tuple[Role, Candidate]]:
    """Candidates with the layout in each role."""
    alone = PoolCandidate(layout=layout, replicas=1, batch=BATCHES[-1], step=DECODE_STEP)
    first = PoolCandidate(layout=layout, replicas=1, batch=PREFILL_BATCH, step=PREFILL_STEP)
    disaggregated = Candidate(prefill=(first,), worker=alone, router="kv")
    aggregated = Candidate(prefill=(), worker=alone, router="kv")
    return [(Role.WORKER, aggregated), (Role.PREFILL, disaggregated), (Role.DECODE, disaggregated)]


def estimator(deployments: Deployments, table: Table, traffic: Traffic) -> Estimator:
    """The estimator, with the time of the KV transfer of a mean input."""
    rate = deployments.request.gpu.nic_gbits / 8
    if deployments.request.gpu.is_grace:
        rate = deployments.request.gpu.nvlink_gbs
    tokens = traffic.cached + traffic.fresh
    token_bytes = deployments.request.shape.kv_bytes_per_token() or 0
    transfer_ms = tokens * token_bytes / (rate * 1e6)
    return Estimator(
        table,
        traffic,
        transfer_ms=transfer_ms,
        frontend_ms=deployments.frontend_time.ms(tokens),
        draft=deployments.request.draft,
    )
