"""A plan request, and deployments with the behavior that a test defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.graph.slo import Slo
from penstock.hardware import GPUS
from penstock.models import find_model
from penstock.plan.deployments import Deployments
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.space import Candidate, Layout, PoolCandidate
from penstock.plan.trials import Trials
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.study import Progress, Row, Study
from penstock.simulate.window import Steadiness
from penstock.workload.load import parse_workload
from tests.simulate.test_metrics import steady
from tests.simulate.test_replayable import of

ONE = Layout(gpus=1)


def replayed_deployment() -> Replayable:
    return of("gpt-oss-120b-b200-throughput")


TAKES_MS = 50  # the first token of `steady`
RATE = 4.0  # requests/s of the workload
LOADED = parse_workload(
    f"requests: 160\ninput: 1024\noutput: 64\narrival: {{poisson: {RATE}}}\n", "acted.yaml"
)


def request(
    objective: str = "cost", *, gpu: str = "b200", gpus: int = 8, shares: bool = False, **more: Any
) -> PlanRequest:
    question = PlanRequest(
        model="openai/gpt-oss-120b",
        shape=find_model("openai/gpt-oss-120b"),
        folder=None,
        gpu=GPUS[gpu],
        gpus=gpus,
        slo=Slo(ttft_ms=TAKES_MS + 1),
        objective=Objective(objective),
        context=16384,
        shares_prefixes=shares,
    )
    return replace(question, **more)


def aggregated(replicas: int, *, batch: int = 1024, layout: Layout = ONE) -> Candidate:
    pool = PoolCandidate(layout=layout, replicas=replicas, batch=batch, step=8192)
    return Candidate(prefill=(), worker=pool, router="kv")


def disaggregated(first: int, second: int) -> Candidate:
    prefill = PoolCandidate(layout=ONE, replicas=first, batch=64, step=16384)
    return replace(aggregated(second), prefill=(prefill,))


@dataclass(frozen=True)
class Behavior:
    max_scale: float  # the highest scale at which the SLO is met
    user_rate: float = 100.0  # output tokens/s
    steadiness: Steadiness | None = None
    requests: int = 5000  # that count
    goodput: float = 0.0  # where the SLO is missed
    longer: Behavior | None = None  # in replays that are lengthened; None: the same


UNKNOWN = Behavior(0.01)  # of deployments that a test does not name


@dataclass(frozen=True, kw_only=True)
class SimulatedStudy(Study):
    """Rows as `behaviors` have them; a deployment is named after its candidate."""

    behaviors: dict[str, Behavior] = field(default_factory=dict)
    asked: list[tuple[str, float, int | None]] = field(default_factory=list)

    def rows(self, deployments: Sequence[Replayable], progress: Progress | None) -> list[Row]:
        return [self._acted(deployment, self._behavior(deployment)) for deployment in deployments]

    def steady_rows(
        self,
        deployments: Sequence[Replayable],
        progress: Progress | None,
        is_promising: Callable[[Row], bool] | None = None,
    ) -> list[Row]:
        return [
            self._acted(deployment, self._behavior(deployment).longer or self._behavior(deployment))
            for deployment in deployments
        ]

    def _behavior(self, deployment: Replayable) -> Behavior:
        return self.behaviors.get(deployment.name, UNKNOWN)

    def _acted(self, deployment: Replayable, acts: Behavior) -> Row:
        arrival = self.workload.workload.arrival
        assert arrival
        assert arrival.poisson
        scale = arrival.poisson / RATE
        self.asked.append((deployment.name, scale, self.seeds))
        metrics = replace(
            replay_metrics(steady(), 1, Slo(ttft_ms=TAKES_MS + 1)),
            goodput=1.0 if scale <= acts.max_scale * 1.000001 else acts.goodput,
            requests=acts.requests,
            user_rate=acts.user_rate,
            steadiness=acts.steadiness,
        )
        return Row(
            replayable=deployment,
            metrics=(metrics,),
            results=(steady(),),
            scale=scale,
        )


@dataclass
class Named(Deployments):
    """Renders nothing."""

    def of(
        self, candidates: Sequence[Candidate], is_over: Callable[[], bool] = lambda: False
    ) -> list[tuple[Candidate, Replayable]]:
        return [(c, replace(replayed_deployment(), name=str(c))) for c in candidates]


def trials(
    behaviors: dict[Candidate, Behavior],
    *,
    left: int = 200,
    say: Callable[[str, int], None] = lambda *_: None,
) -> Trials:
    study = SimulatedStudy(
        workload=LOADED,
        replays=Replays(Cache(None, ""), processes=1),
        behaviors={str(c): acts for c, acts in behaviors.items()},
    )
    return Trials(study=study, deployments=Named(request()), left=left, say=say)
