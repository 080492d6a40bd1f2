"""Which candidates are replayed, and which one wins: one search per objective.

Aggregated and disaggregated candidates are searched separately, so that the best of both are known.
The estimate orders the replays; medians of the replays over fixed seeds decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log

from penstock.plan.estimate import Ranked
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.plan.trials import (
    FINALISTS,
    SCALE_STEP,
    Trial,
    Trials,
    TrialSpec,
    batches,
    in_order,
    score_of,
    winner_of,
)

BATCH = 4
CLIMB = 4  # exponents of the first step up, which is halved until 1
FALLS = (0, 6, 14, 28)  # exponents below the estimated scale, at which a climb may start
STEPS_DOWN = 12
SEMIFINALISTS = 6
# For cost, candidates of one number of GPUs that are replayed first, and of the lowest number.
GROUP, LAST_GROUP = 5, 15
COSTLY_GROUP = 2  # of both, if replays are costly
ENOUGH = 0.95  # estimated capacity, with which a search for cost begins
FEWER = 4  # lower numbers of GPUs that are tried for cost


def highest_scale(trials: Trials, ranked: Ranked) -> list[Trial]:
    """The finalists of one family at the highest scales that they sustain, best first."""
    with trials.reserving(trials.final_replays):
        met = _raced(trials, ranked)
    best = sorted(met, key=lambda c: (-met[c], c.order))[:FINALISTS]
    confirmed = [trial for c in best if (trial := _confirmed(trials, c, met[c]))]
    return in_order(confirmed, score_of(Objective.THROUGHPUT))


def _raced(trials: Trials, ranked: Ranked) -> dict[Candidate, int]:
    """The highest exponents of those that were better than all before them. A candidate that misses
    the SLO one step above the best so far is out after one replay."""
    met = _first_met(trials, ranked)
    waiting = [c for c in ranked.candidates if c not in met]
    for batch in batches(waiting, BATCH) if met else ():
        next_exponent = max(met.values()) + 1
        for trial in trials.of([TrialSpec(c, scale=SCALE_STEP**next_exponent) for c in batch]):
            start = max(met.values()) + 1
            if not trial.meets_slo:
                continue
            if (exponent := _climbed(trials, trial.candidate, start)) is not None:
                met[trial.candidate] = exponent
        if not trials.check_budget():
            break
    return met


def _first_met(trials: Trials, ranked: Ranked) -> dict[Candidate, int]:
    """The first candidate that meets the SLO near its estimated capacity, and its exponent."""
    for candidate in ranked.candidates[:BATCH]:
        start = _exponent(ranked.capacity[candidate])
        for lower in FALLS:
            exponent = _climbed(trials, candidate, start - lower)
            if exponent is not None:
                return {candidate: exponent}
    return {}


def _exponent(scale: float) -> int:
    return floor(log(scale) / log(SCALE_STEP))


def _climbed(trials: Trials, candidate: Candidate, start: int) -> int | None:
    """The highest exponent that meets the SLO, from ``start`` on; None if ``start`` misses it."""

    def meets_slo(exponent: int) -> bool:
        trial = trials.trial_of(TrialSpec(candidate, scale=SCALE_STEP**exponent))
        return trial is not None and trial.meets_slo

    if not meets_slo(start):
        return None
    low, step = start, CLIMB
    while step:
        if meets_slo(low + step):
            low += step
        else:
            step //= 2
    return low


def raised(trials: Trials, candidate: Candidate, scale: float) -> Trial | None:
    """The highest scale from ``scale`` on at which all seeds together meet the SLO."""
    highest = _climbed(trials, candidate, round(log(scale) / log(SCALE_STEP)))
    return None if highest is None else _confirmed(trials, candidate, highest)


def _confirmed(trials: Trials, candidate: Candidate, exponent: int) -> Trial | None:
    """The highest scale at which all seeds together meet the SLO."""
    for lower in range(STEPS_DOWN):
        scale = SCALE_STEP ** (exponent - lower)
        trial = trials.trial_of(TrialSpec(candidate, scale=scale, seeds=trials.seeds))
        if trial is None:
            return None
        if trial.meets_slo:
            return trial
    return None


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
        first = trials.of([TrialSpec(c) for c in ranked.candidates[: trials.check_budget()]])
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

    enough = (n for n, group in enumerate(groups) if ranked.capacity[group[0]] >= ENOUGH)
    number = next(enough, len(groups) - 1)
    best: list[Trial] = []
    missed, step = number - 1, 1
    while not best and 0 <= number < len(groups) and trials.check_budget():
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
    """Of candidates with equally many GPUs, finds those that meet the SLO, best first."""
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
    most = max(1, min(SEMIFINALISTS, trials.check_budget() - FINALISTS))
    semifinal = trials.of([TrialSpec(candidate, seeds=2) for candidate in hopeful[:most]])
    order = dict.fromkeys([*_hopeful(semifinal, objective), *hopeful[most:]])
    best: list[Trial] = []
    for batch in batches(list(order), FINALISTS):
        final = trials.of([TrialSpec(candidate, seeds=SEEDS) for candidate in batch])
        best += [trial for trial in final if trial.meets_slo]
        if best:
            break
    return in_order(best, score_of(objective))


def _hopeful(trials: Sequence[Trial], objective: Objective) -> list[Candidate]:
    """Candidates that meet the SLO: the best, the one that would win against it, then the rest."""
    met = in_order([trial for trial in trials if trial.meets_slo], score_of(objective))
    likely = [winner_of(met, objective)] if met else []
    return list(dict.fromkeys(trial.candidate for trial in (*met[:1], *likely, *met)))
