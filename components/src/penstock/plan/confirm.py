"""Confirms the graphs of a plan with longer replays.

The replays of a search are short, so that many graphs can be compared: a queue that grows slowly
may not show. A graph that misses the SLO in the longer replay is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.plan.choose import COSTLY_GROUP, GROUP, LAST_GROUP, cheapest_of
from penstock.plan.estimate import Ranked
from penstock.plan.request import Objective
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.plan.trials import (
    FINAL_REPLAYS,
    SCALE_STEP,
    Trial,
    Trials,
    TrialSpec,
    in_order,
    score_of,
    winner_of,
)
from penstock.workload.duration import MIN_PLANNED_REQUESTS

FURTHER = 8  # larger numbers of GPUs that are tried
CONFIRMING_REQUESTS = 2000  # that count, in the replay that confirms a graph
NEARLY = 0.05  # less than the share of requests that must meet the SLO
MOST_RECONSIDERED = 2  # of each family
STEPS_DOWN = 6  # scales below the highest of the search, of which each is two of its steps lower


def confirmed_families(
    trials: Trials, families: Sequence[Sequence[Trial]], ranked: Sequence[Ranked]
) -> list[list[Trial]]:
    """Does what `confirmed_family` does for both families.

    If replays are costly, and fewer GPUs are the objective, a family that needs more than the
    confirmed graph of the other stays unconfirmed: its short replays are too good rather than too
    bad, so it cannot win.
    """
    objective = trials.deployments.request.objective
    order = sorted(range(len(families)), key=lambda at: _fewest(families[at]))
    done: dict[int, list[Trial]] = {}
    least: float = float("inf")
    for at in order:
        if trials.is_costly and objective is Objective.COST and _fewest(families[at]) > least:
            done[at] = list(families[at])
            continue
        done[at] = confirmed_family(trials, families[at], ranked[at])
        least = min(least, _fewest(done[at]))
    return [done[at] for at in range(len(families))]


def reconsidered(trials: Trials, families: Sequence[Sequence[Trial]]) -> list[list[Trial]]:
    """The families with graphs that nearly met the SLO in a short replay, would be better than
    those that did, and meet it in a longer replay.

    A short replay has some seconds of traffic at most, with a few percent more or less load than
    the workload. Of conversations, it is too good rather than too bad.
    """
    request = trials.deployments.request
    has_turns = trials.study.workload.workload.conversation is not None
    if request.objective is Objective.THROUGHPUT or request.survives_loss or has_turns:
        return [list(family) for family in families]
    return [
        _reconsidered(trials, family, is_disaggregated=is_disaggregated)
        for is_disaggregated, family in zip((False, True), families, strict=True)
    ]


def _reconsidered(
    trials: Trials, family: Sequence[Trial], *, is_disaggregated: bool
) -> list[Trial]:
    objective, least = trials.deployments.request.objective, trials.study.attain - NEARLY

    def is_better(trial: Trial) -> bool:
        return not family or winner_of([*family, trial], objective) is trial

    missed = [
        trial
        for trial in trials.known
        if trial.candidate.is_disaggregated == is_disaggregated
        and trial.row.scale == 1
        and not trial.meets_slo
        and trial.goodput >= least
        and trial.row.requests < CONFIRMING_REQUESTS
        and is_better(trial)
    ]
    missed.sort(key=lambda trial: (-trial.goodput, trial.candidate.order))
    longer = [longer_trial(trials, trial) for trial in missed[:MOST_RECONSIDERED]]
    met = [trial for trial in longer if trial.meets_slo]
    return in_order([*family, *met], score_of(objective))


def _fewest(family: Sequence[Trial]) -> float:
    """GPUs; infinite without a graph."""
    return min((float(trial.candidate.gpus) for trial in family), default=float("inf"))


def confirmed_family(trials: Trials, family: Sequence[Trial], ranked: Ranked) -> list[Trial]:
    """Does what `confirmed` does. If no graph is left, and fewer GPUs are the objective, the search
    goes on: with the others that have as many GPUs, then with more, in replays that are in addition
    to the budget."""
    left = confirmed(trials, family)
    if left or not family or trials.deployments.request.objective is not Objective.COST:
        return left
    most = max(trial.candidate.gpus for trial in family)
    for group in _further(ranked, most, COSTLY_GROUP if trials.is_costly else GROUP):
        with trials.granting(len(group) + FINAL_REPLAYS):
            # Without those that a longer replay has excluded.
            while not left and (family := cheapest_of(trials, group)):
                left = confirmed(trials, family)
        if left:
            break
    return left


def _further(ranked: Ranked, least: int, size: int) -> list[Sequence[Candidate]]:
    """``size`` candidates of each number of GPUs from ``least`` on; of the highest more, because
    after them nothing is left."""
    *fewer, highest = (group for group in ranked.by_gpus if group[0].gpus >= least)
    return [*(group[:size] for group in fewer[:FURTHER]), highest[:LAST_GROUP]]


def confirmed(trials: Trials, family: Sequence[Trial]) -> list[Trial]:
    """The graphs of ``family`` that are left, best first: the one that would be recommended met the
    SLO in a replay that is steady, if the time allowed one. For fewer GPUs, and if replays are
    costly, only that one."""
    objective = trials.deployments.request.objective
    left, done = list(family), list[Trial]()
    while left and (trial := winner_of([*done, *left], objective)) not in done:
        left.remove(trial)
        if (longer := confirmed_trial(trials, trial)) is not None:
            done.append(longer)
            if trials.is_costly and objective is Objective.COST:
                return done  # the others need as many GPUs
    return in_order([*done, *left], score_of(objective)) if done else []


def confirmed_trial(trials: Trials, trial: Trial) -> Trial | None:
    """The trial with the figures of the longer replay; None if it misses the SLO there."""
    for lower in _scales(trials, trial):
        short = trials.trial_of(TrialSpec(trial.candidate, scale=lower, seeds=trials.seeds))
        if short is None or not short.meets_slo:
            continue
        longer = longer_trial(trials, short)
        if longer.meets_slo:
            return longer
    return None


def _scales(trials: Trials, trial: Trial) -> Iterator[float]:
    """The trial's own; where the highest is wanted, lower ones too."""
    yield trial.row.scale
    if trials.deployments.request.objective is Objective.THROUGHPUT:
        yield from (trial.row.scale / SCALE_STEP ** (2 * n) for n in range(1, STEPS_DOWN + 1))


def longer_trial(trials: Trials, short: Trial) -> Trial:
    """The trial with a longer replay: until it is steady, at most as long as `simulate` would
    replay; of a trace and of conversations, `Trials.complete`."""
    steadiness = short.row.steadiness
    complete = trials.complete
    is_steady = all(row.is_steady for row in (short.row, *short.losses.values()))
    is_enough = is_steady and complete is None and short.row.requests >= CONFIRMING_REQUESTS
    growth = steadiness.growth if steadiness else 1.0
    if is_enough or not trials.has_time_for(growth):
        return short
    scale = short.row.scale
    workload = (complete or trials.study.workload).at_scale(
        scale, min_requests=MIN_PLANNED_REQUESTS
    )
    if complete is None and (sampled := workload.workload.fixed_requests) is not None:
        # The share within the SLO of fewer requests differs by percents between samples.
        requests = max(sampled, 2 * CONFIRMING_REQUESTS)
        workload = workload.with_workload(workload.workload.with_requests(requests))
    trials.say(f"{short.candidate}: a longer replay", 0)
    left = trials.deployments.of(list(trials.losses_of(short.candidate).values()))
    deployments = [short.row.replayable, *(deployment for _, deployment in left)]
    # A longer replay needs fewer samples, except of conversations, whose rates differ more.
    for seeds in (1, SEEDS) if workload.workload.conversation else (1,):
        study = replace(trials.study, seeds=seeds, workload=workload)
        rows = study.steady_rows(deployments, None, trials.meets_slo)
        if not all(map(trials.meets_slo, rows)):
            break
    row, *losses = [replace(row, scale=scale) for row in rows]
    return trials.confirm(short, row, dict(zip(short.losses, losses, strict=True)))
