"""What an operator asks of the chosen graph: headroom, what if, where a split pays, what would do.

Answers are replays within what is left of the budget; what-ifs come on top of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.errors import InputError
from penstock.graph.slo import Slo
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.plan.trials import Trial, Trials, TrialSpec
from penstock.simulate.metrics import percentile, steady_requests
from penstock.simulate.model import Replayable
from penstock.simulate.study import Row, Study
from penstock.workload.load import Change
from penstock.workload.sensitivity import double_inputs, without_shared_prefixes

STEPS = (1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)  # loads at which headroom is sought
LOWER = (0.8, 0.64, 0.5, 0.4, 0.32, 0.25, 0.16, 0.1, 0.05)
COMPARED = (0.25, 0.5, 1.0, 2.0, 4.0)  # loads at which a disaggregated is held against one pool
WORTH = 1.03  # times as many tokens a second for a user
LOOSER = 1.02
NEAREST = 8  # candidates that are replayed to see how far they miss


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Both at ``scale`` times the load, None where no replay was left; ``by_gpus``: whether GPUs
    that are not needed count."""

    scale: float
    by_gpus: bool
    disaggregated: Trial | None
    aggregated: Trial | None

    @property
    def pays(self) -> bool:
        """Whether the split holds what one pool does not, or is faster for a user; where GPUs
        count, with fewer of them, or faster with no more."""
        if self.disaggregated is None or not self.disaggregated.meets_slo:
            return False
        if self.aggregated is None or not self.aggregated.meets_slo:
            return True
        fewer = (
            self.aggregated.candidate.gpus - self.disaggregated.candidate.gpus
            if self.by_gpus
            else 0
        )
        is_faster = self.disaggregated.user_rate >= WORTH * self.aggregated.user_rate
        return fewer > 0 or (fewer == 0 and is_faster)


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """Loads above the planned one: the highest that was seen to hold, and the first that was not;
    None where there was none, or it was not replayed."""

    held: float | None = None
    breaks: float | None = None


@dataclass(frozen=True, kw_only=True)
class Miss:
    """The nearest to an SLO that nothing meets: ``slo`` is one that it meets at the load, ``load``
    the scale at which it meets the one asked for, None where it does at none."""

    trial: Trial
    slo: Slo
    load: float | None


def headroom(trials: Trials, candidate: Candidate, scale: float) -> Headroom:
    """What is held of the steps above ``scale``."""
    held = None
    for step in STEPS:
        trial = trials.one(TrialSpec(candidate, scale=scale * step))
        if trial is None or not trial.meets_slo:
            return Headroom(held=held, breaks=step if trial else None)
        held = step
    return Headroom(held=held, breaks=None)


def broken(trials: Trials, candidate: Candidate, scale: float) -> Headroom:
    """Above the most load that was seen to hold: the lowest that was seen not to."""
    above = [
        trial.row.scale / scale
        for trial in trials.known
        if trial.candidate == candidate and trial.row.scale > scale and not trial.meets_slo
    ]
    return Headroom(breaks=min(above, default=None))


def compared(
    trials: Trials,
    disaggregated: Candidate,
    aggregated: Candidate,
    base: float,
    *,
    by_gpus: bool,
    most: float = max(COMPARED),
) -> list[Comparison]:
    """Up to ``most`` times the load, or the load that neither holds: beyond it nobody would."""
    found: list[Comparison] = []
    for scale in (one for one in COMPARED if one <= most):
        seeds = SEEDS if scale == 1.0 else 1
        one, other = (
            trials.one(TrialSpec(candidate, scale=base * scale, seeds=seeds))
            for candidate in (disaggregated, aggregated)
        )
        if one is None and other is None:
            break
        found.append(Comparison(scale=scale, by_gpus=by_gpus, disaggregated=one, aggregated=other))
        if not any(trial is not None and trial.meets_slo for trial in (one, other)):
            break
    return found


def widened(aggregated: Candidate, gpus: int) -> Candidate:
    """With as many workers as ``gpus`` have room for, and at least one."""
    worker = aggregated.worker
    replicas = max(1, gpus // worker.layout.gpus)
    return replace(aggregated, worker=replace(worker, replicas=replicas))


def sensitivity_rows(
    study: Study, deployment: Replayable, scale: float, *, shares_prefixes: bool
) -> Mapping[str, Row | str]:
    """The same graph under other traffic, by what is other; or why that cannot be replayed."""
    asked: dict[str, tuple[float, Change | None]] = {
        "input twice as long": (1.0, double_inputs),
        "load 50 % higher": (1.5, None),
    }
    if shares_prefixes:
        asked["nothing reused"] = (1.0, without_shared_prefixes)
    found: dict[str, Row | str] = {}
    for name, (more, change) in asked.items():
        try:
            (found[name],) = _changed(study, scale * more, change).rows([deployment], None)
        except InputError as error:  # no request is left, or there are too many
            found[name] = error.problems[0].message
    return found


def _changed(study: Study, scale: float, change: Change | None) -> Study:
    workload = replace(study.workload.at_scale(scale), change=change)
    return replace(study, seeds=SEEDS, workload=workload)


def nearest_miss(trials: Trials, slo: Slo) -> Miss | None:
    """Of all that was replayed at the load the one that misses least; None where nothing was."""
    tried = [trial for trial in trials.known if trial.row.scale == 1.0]
    if not tried:
        return None
    best = max(tried, key=lambda trial: (trial.goodput, trial.user_rate))
    return Miss(trial=best, slo=_met_by(trials.study, best, slo), load=_lower(trials, best))


def _lower(trials: Trials, best: Trial) -> float | None:
    for scale in LOWER:
        trial = trials.one(TrialSpec(best.candidate, scale=scale))
        if trial is None or trial.meets_slo:
            return scale if trial else None
    return None


def _met_by(study: Study, trial: Trial, slo: Slo) -> Slo:
    """``slo`` with its missed parts as long as it takes for enough requests to be within all."""
    requests = [one for answer in trial.row.answers for one in steady_requests(answer)]
    share = (1 + study.attain) / 2
    took = {
        "ttft_ms": [one.ttft_ms for one in requests],
        "itl_ms": [one.itl_ms for one in requests if one.itl_ms is not None],
        "e2e_ms": [one.ended_ms - one.arrived_ms for one in requests],
    }
    said = {name: most for name, most in slo.model_dump().items() if most is not None}
    needed = {name: percentile(took[name], share) * LOOSER for name in said}
    return slo.model_copy(update={name: max(most, needed[name]) for name, most in said.items()})
