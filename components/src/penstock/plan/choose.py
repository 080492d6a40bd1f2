"""Which candidates are replayed, and which one wins: one search per objective.

Aggregated and disaggregated candidates are searched separately, so that the best of both are known.
The estimate orders the replays; medians of the replays over fixed seeds decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.race import highest_scale
from penstock.plan.ranking import Ranked
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.score import in_order, score_of, winner_of
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.plan.trials import FINALISTS, Trial, Trials, TrialSpec, batches

SEMIFINALISTS = 6
# For cost, candidates of one number of GPUs that are replayed first, and of the lowest number.
GROUP, LAST_GROUP = 5, 15
COSTLY_GROUP = 2  # of both, if replays are costly
ENOUGH = 0.95  # estimated capacity, with which a search for cost begins
FEWER = 4  # lower numbers of GPUs that are tried for cost


def best_of(trials: Trials, request: PlanRequest, ranked: Ranked) -> list[Trial]:
    """The finalists of one family, best first, replayed with all seeds; empty if none meets the
    SLO."""
    search = {
        Objective.COST: _cheapest,
        Objective.INTERACTIVITY: _fastest,
        Objective.THROUGHPUT: highest_scale,
    }[request.objective]
    return search(trials, ranked)


def _fastest(trials: Trials, ranked: Ranked) -> list[Trial]:
    with trials.reserving(trials.final_replays):
        first = trials.of([TrialSpec(c) for c in ranked.candidates[: trials.free]])
    return _finals(trials, first, Objective.INTERACTIVITY)


def _cheapest(trials: Trials, ranked: Ranked) -> list[Trial]:
    """Starts at the estimated number of GPUs. Goes up until some candidates meet the SLO, then down
    over numbers that the estimate excludes, and finally replays more candidates of the lowest; if
    none met it, of the highest.

    If replays are costly, the steps up grow, so that the highest number is reached, and the numbers
    that were left out are bisected."""
    groups = ranked.by_gpus
    group, last = (COSTLY_GROUP, COSTLY_GROUP) if trials.is_costly else (GROUP, LAST_GROUP)

    def finalists(number: int, most: int) -> list[Trial]:
        return cheapest_of(trials, groups[number][:most])

    enough = (n for n, some in enumerate(groups) if ranked.capacity[some[0]] >= ENOUGH)
    number = next(enough, len(groups) - 1)
    best: list[Trial] = []
    missed, step = number - 1, 1
    while not best and 0 <= number < len(groups) and trials.free:
        best = finalists(number, group)
        if not best:
            missed, number = number, min(number + step, max(number + 1, len(groups) - 1))
            step *= 2 if trials.is_costly else 1
    while best and number - missed > 1:
        middle = (missed + number) // 2
        if lower := finalists(middle, group):
            best, number = lower, middle
        else:
            missed = middle
    if not best and groups:  # the estimate may have left out the right one of the largest
        number = len(groups) - 1
        best = finalists(number, LAST_GROUP)
    for fewer in range(number - 1, max(-1, number - 1 - FEWER), -1) if best else ():
        if lower := finalists(fewer, group):
            best, number = lower, fewer
    more = finalists(number, last) if best and last > group else []
    both = {trial.candidate: trial for trial in (*best, *more)}
    return in_order(list(both.values()), score_of(Objective.COST))


def cheapest_of(trials: Trials, group: Sequence[Candidate]) -> list[Trial]:
    """Those of candidates with equally many GPUs that meet the SLO, best first."""
    with trials.reserving(trials.final_replays):
        first = trials.of([TrialSpec(candidate) for candidate in group])
    return _finals(trials, first, Objective.COST)


def _finals(trials: Trials, first: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The best candidates that meet the SLO with all seeds.

    A second seed excludes those that met it with the first seed only. If replays are costly, the
    longer replays that follow do that instead.
    """
    hopeful = _hopeful(first, objective)
    if trials.is_costly:
        chosen = set(hopeful[:FINALISTS])
        return in_order([t for t in first if t.candidate in chosen], score_of(objective))
    most = max(1, min(SEMIFINALISTS, trials.free - FINALISTS))
    semifinal = trials.of([TrialSpec(candidate, seeds=2) for candidate in hopeful[:most]])
    order = dict.fromkeys([*_hopeful(semifinal, objective), *hopeful[most:]])
    best: list[Trial] = []
    for some in batches(list(order), FINALISTS):
        final = trials.of([TrialSpec(candidate, seeds=SEEDS) for candidate in some])
        best += [trial for trial in final if trial.meets_slo]
        if best:
            break
    return in_order(best, score_of(objective))


def _hopeful(trials: Sequence[Trial], objective: Objective) -> list[Candidate]:
    """Those that meet the SLO: the best, the one that would win against it, then the others."""
    met = in_order([trial for trial in trials if trial.meets_slo], score_of(objective))
    likely = [winner_of(met, objective)] if met else []
    return list(dict.fromkeys(trial.candidate for trial in (*met[:1], *likely, *met)))
