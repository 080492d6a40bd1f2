"""Confirms the graphs of a plan with longer replays.

The replays of a search are short, so that many graphs can be compared: a queue that grows slowly
may not show. A graph that misses the SLO in the longer replay is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.plan.choose import SCALE_STEP, in_order, score_of, winner_of
from penstock.plan.request import Objective
from penstock.plan.traffic import SEEDS
from penstock.plan.trials import Trial, Trials, TrialSpec
from penstock.workload.duration import MIN_PLANNED_REQUESTS

STEPS_DOWN = 6  # scales below the highest of the search, of which each is two of its steps lower


def confirmed(trials: Trials, family: Sequence[Trial]) -> list[Trial]:
    """Those of ``family`` that are left, best first: the one that would be recommended met the SLO
    in a replay that is steady, if the time allowed one."""
    left = list(family)
    objective = trials.deployments.request.objective
    while left:
        trial = winner_of(left, objective)
        left.remove(trial)
        if (longer := confirmed_trial(trials, trial)) is not None:
            return in_order([longer, *left], score_of(objective))
    return []


def confirmed_trial(trials: Trials, trial: Trial) -> Trial | None:
    """With the figures of the longer replay; None if it misses the SLO there."""
    for lower in _scales(trials, trial):
        short = trials.one(TrialSpec(trial.candidate, scale=lower, seeds=SEEDS))
        if short is None or not short.meets_slo:
            continue
        longer = _longer(trials, short)
        if longer.meets_slo:
            return longer
    return None


def _scales(trials: Trials, trial: Trial) -> Iterator[float]:
    """The trial's own; where the highest is wanted, lower ones too."""
    yield trial.row.scale
    if trials.deployments.request.objective is Objective.THROUGHPUT:
        yield from (trial.row.scale / SCALE_STEP ** (2 * n) for n in range(1, STEPS_DOWN + 1))


def _longer(trials: Trials, short: Trial) -> Trial:
    """Until it is steady, at most as long as `simulate` would replay; of a trace, all requests."""
    steadiness = short.row.steadiness
    whole = trials.whole_trace
    is_enough = short.row.is_steady and whole is None
    growth = steadiness.growth if steadiness else 1.0
    if is_enough or not trials.has_time_for(growth):
        return short
    scale = short.row.scale
    workload = (whole or trials.study.workload).at_scale(scale, min_requests=MIN_PLANNED_REQUESTS)
    trials.say(f"{short.candidate}: a longer replay", 0)
    study = replace(trials.study, seeds=1, workload=workload)
    (row,) = study.steady_rows([short.row.replayable], None)
    return trials.confirm(short, replace(row, scale=scale))
