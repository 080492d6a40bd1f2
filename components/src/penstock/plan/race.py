"""The search for the highest rate: candidates are raised step by step, and the best so far decides
which of the others are worth a replay."""

from __future__ import annotations

from math import floor, log

from penstock.plan.ranking import Ranked
from penstock.plan.request import Objective
from penstock.plan.score import SCALE_STEP, in_order, score_of
from penstock.plan.space import Candidate
from penstock.plan.trials import FINALISTS, Trial, Trials, TrialSpec, batches

BATCH = 4
CLIMB = 4  # exponents of the first step up, which is halved until 1
FALLS = (0, 6, 14, 28)  # exponents below the estimated scale, at which a climb may start
STEPS_DOWN = 12


def highest_scale(trials: Trials, ranked: Ranked) -> list[Trial]:
    """The finalists of one family at the highest scales that they sustain, best first."""
    with trials.reserving(trials.final_replays):
        met = _raced(trials, ranked)
    best = sorted(met, key=lambda c: (-met[c], c.order))[:FINALISTS]
    confirmed = [one for c in best if (one := _confirmed(trials, c, met[c]))]
    return in_order(confirmed, score_of(Objective.THROUGHPUT))


def _raced(trials: Trials, ranked: Ranked) -> dict[Candidate, int]:
    """The highest exponents of those that were better than all before them. A candidate that misses
    the SLO one step above the best so far is out after one replay."""
    met = _first_met(trials, ranked)
    waiting = [c for c in ranked.candidates if c not in met]
    for some in batches(waiting, BATCH) if met else ():
        next_exponent = max(met.values()) + 1
        for trial in trials.of([TrialSpec(c, scale=SCALE_STEP**next_exponent) for c in some]):
            start = max(met.values()) + 1
            if not trial.meets_slo:
                continue
            if (exponent := _climbed(trials, trial.candidate, start)) is not None:
                met[trial.candidate] = exponent
        if not trials.free:
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
        trial = trials.one(TrialSpec(candidate, scale=SCALE_STEP**exponent))
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
        trial = trials.one(TrialSpec(candidate, scale=scale, seeds=trials.seeds))
        if trial is None:
            return None
        if trial.meets_slo:
            return trial
    return None
