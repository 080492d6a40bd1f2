"""What the replays of a search show: the Pareto front, the cost, and the neighbors of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from penstock.plan.request import Objective, PlanRequest
from penstock.plan.space import AGGREGATED, Candidate, PoolCandidate
from penstock.plan.trials import Trial
from penstock.simulate.metrics import spreads
from penstock.tune.settings import DYNAMO_DEFAULT

SECONDS = 3600  # of an hour
SETTINGS, SPECULATION = "router settings", "speculative decoding"


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The candidates that were replayed, each once."""

    request: PlanRequest
    attain: float  # share of requests that must meet the SLO
    trials: Sequence[Trial]
    choice: Trial  # the recommended one, or the one that comes closest to the SLO

    @property
    def is_at_maximum(self) -> bool:
        """Whether each trial is at the highest scale at which its candidate meets the SLO."""
        return self.request.objective is Objective.THROUGHPUT

    @property
    def front(self) -> list[Trial]:
        """The Pareto front of those that meet the SLO; of all, if none does."""
        met = [trial for trial in self.trials if trial.meets_slo]
        return pareto_front(met or self.trials)


def replayed(
    measured: Iterable[Trial], request: PlanRequest, attain: float, choice: Trial
) -> Replayed:
    """``measured``: all trials of the search. The trial of the choice is the one that decided."""
    trials = {trial.candidate: trial for trial in surest_trials(measured, request.objective)}
    trials[choice.candidate] = choice
    return Replayed(request=request, attain=attain, trials=tuple(trials.values()), choice=choice)


def surest_trials(measured: Iterable[Trial], objective: Objective) -> list[Trial]:
    """Selects of each candidate the latest trial at the planned scale, which has the most seeds or
    is the longest; for the highest rate the one that meets the SLO at the highest scale.

    ``measured``: in order of time.
    """
    latest = {(trial.candidate, trial.row.scale): trial for trial in measured}
    if objective is not Objective.THROUGHPUT:  # other scales are those of the analyses
        return [trial for (_, scale), trial in latest.items() if scale == 1]
    surest: dict[Candidate, Trial] = {}
    for trial in latest.values():
        known = surest.setdefault(trial.candidate, trial)
        surest[trial.candidate] = max(known, trial, key=lambda t: (t.meets_slo, t.row.scale))
    return list(surest.values())


def first_answer(measured: Iterable[Trial], objective: Objective) -> Trial | None:
    """The first graph that met the SLO, in a short replay; None if none did.

    ``measured``: in order of time. Except for the highest rate, other scales than the planned one
    are those of the analyses.
    """
    is_any_scale = objective is Objective.THROUGHPUT
    met = (t for t in measured if t.meets_slo and (is_any_scale or t.row.scale == 1))
    return next(met, None)


def pareto_front(trials: Iterable[Trial]) -> list[Trial]:
    """Trials than which no other has more tokens/s per user and more per GPU, by tokens/s per user.
    Of equal ones the first."""
    front: list[Trial] = []
    for trial in sorted(trials, key=lambda trial: (-trial.user_rate, -trial.gpu_rate)):
        if not front or trial.gpu_rate > front[-1].gpu_rate:
            front.append(trial)
    return front[::-1]


def cost_per_million(trial: Trial, gpu_hour_price: float | None) -> float | None:
    """The price of a million output tokens, or their GPU-seconds without a price. None if there
    were no tokens."""
    hours = dict(spreads(trial.row.metrics)).get("gpu_hours_per_million")
    return hours.median * (gpu_hour_price or SECONDS) if hours else None


def neighbors(choice: Candidate, candidates: Iterable[Candidate]) -> Mapping[Candidate, str]:
    """The candidates that differ from the choice in one step, and in what."""
    steps = {other: _step(choice, other) for other in candidates}
    return {other: step for other, step in steps.items() if step is not None}


def _step(choice: Candidate, other: Candidate) -> str | None:
    """What differs; None if nothing does, or more than a step.

    Router settings may differ in addition if the other has Dynamo's: the search uses only these.
    """
    if choice.settings == other.settings:
        return _graph_step(choice, other)
    if other == replace(choice, settings=other.settings):
        return SETTINGS
    step = _graph_step(choice, other)
    return f"{step}, {SETTINGS}" if step and other.settings == DYNAMO_DEFAULT else None


def _graph_step(choice: Candidate, other: Candidate) -> str | None:
    """What differs apart from the router's settings; None as in `_step`."""
    if choice.drafts != other.drafts:
        alike = replace(other, drafts=choice.drafts, settings=choice.settings)
        return SPECULATION if alike == choice else None
    if len(choice.pools) != len(other.pools):
        return None
    changed = [n for n, (a, b) in enumerate(zip(choice.pools, other.pools, strict=True)) if a != b]
    if choice.router != other.router:
        return "router mode" if not changed else None
    steps = [_pool_step(choice.pools[number], other.pools[number]) for number in changed]
    names = ("prefill", "decode") if choice.is_disaggregated else ("",)
    if len(steps) == 1 and steps[0]:
        return f"{names[changed[0]]} {steps[0]}".strip()
    is_moved = steps == ["replicas", "replicas"] and choice.gpus == other.gpus
    return "replicas of both pools" if is_moved else None


def _pool_step(pool: PoolCandidate, other: PoolCandidate) -> str | None:
    """The field that differs. Another layout may have as many workers as fit on the same GPUs."""
    names = [f.name for f in fields(pool)]
    changed = {name for name in names if getattr(pool, name) != getattr(other, name)}
    if changed == {"replicas"}:
        return "replicas" if abs(pool.replicas - other.replicas) == 1 else None
    if changed == {"layout", "replicas"}:
        narrow, wide = sorted((pool, other), key=lambda pool: pool.layout.gpus)
        return "layout" if wide.replicas == narrow.gpus // wide.layout.gpus else None
    return changed.pop() if len(changed) == 1 else None


def loss_name(pool: str) -> str:
    """`with one decode worker fewer`."""
    return f"with one {'' if pool == AGGREGATED else f'{pool} '}worker fewer"
