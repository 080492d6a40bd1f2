"""Which candidates are replayed, and which one wins: one search per objective.

Aggregated and disaggregated candidates are searched separately, so that the best of both are known.
The estimate orders the replays; medians of the replays over fixed seeds decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import floor, log
from typing import TypeVar

from penstock.plan.estimate import Estimate, Estimator
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.plan.trials import Trial, Trials, TrialSpec

TIE = 0.03  # within this, the less complex candidate wins
EQUAL = 0.01  # within this, scores are equal: the KV router's random ties make such a difference
MIN_CAPACITY = 0.6  # of the scale: candidates of which less is estimated are not replayed
BATCH_MARGIN = 2.0  # a batch limit of so many times the running requests has no effect
SEMIFINALISTS, FINALISTS = 6, 2
FINAL_REPLAYS = 12  # a second seed for the semifinalists, a third for the finalists, three times
# For cost, candidates of one number of GPUs that are replayed first, and of the lowest number.
GROUP, LAST_GROUP = 5, 15
FEWER = 4  # lower numbers of GPUs that are tried for cost
SCALE_STEP = 1.05  # scales of the search for throughput are powers of it
BATCH = 4
CLIMB = 4  # exponents of the first step up, which is halved until 1
FALLS = (0, 6, 14, 28)  # exponents below the estimated scale, at which a climb may start
STEPS_DOWN = 12
T = TypeVar("T")
Score = Callable[[Trial], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The candidates of one family, the most promising first."""

    candidates: tuple[Candidate, ...]
    capacity: Mapping[Candidate, float]  # the highest scale that is estimated to meet the SLO


@dataclass(frozen=True, slots=True)
class Estimated:
    """A candidate of a ranking. Tens of thousands are ranked, so no dictionary has them as keys."""

    candidate: Candidate
    capacity: float
    estimate: Estimate | None

    @property
    def rate(self) -> float:
        """A candidate below the requested scale was estimated at a lower one, where it is
        faster."""
        user_rate = self.estimate.user_rate if self.estimate else 0.0
        return user_rate * min(1.0, self.capacity)


def rank(candidates: Sequence[Candidate], estimator: Estimator, request: PlanRequest) -> Ranked:
    """Ranks the candidates, without hopeless ones and those with a batch limit of no effect."""
    pairs = [(c, estimator.required_capacity(c, request)) for c in candidates]
    if request.objective is Objective.THROUGHPUT:
        best = sorted((one for one in pairs if one[1]), key=lambda one: (-one[1], one[0].order))
        return Ranked(candidates=tuple(c for c, _ in best), capacity=dict(best))
    able = [
        Estimated(c, capacity, estimator.at(c, min(1.0, capacity)))
        for c, capacity in pairs
        if capacity >= MIN_CAPACITY
    ]
    distinct = _distinct(able)
    # The estimate does not compare step sizes, which the replays do. So candidates that differ in
    # their limits only stay together, in the order of the best of them.
    keys = [_without_limits(one.candidate) for one in distinct]
    fastest: dict[tuple[object, ...], float] = {}
    for key, one in zip(keys, distinct, strict=True):
        fastest[key] = max(fastest.get(key, 0.0), one.rate)
    order = sorted(
        zip(keys, distinct, strict=True),
        key=lambda pair: (-fastest[pair[0]], -pair[1].rate, pair[1].candidate.order),
    )
    return Ranked(
        candidates=tuple(one.candidate for _, one in order),
        capacity={one.candidate: one.capacity for one in distinct},
    )


def _distinct(able: Sequence[Estimated]) -> list[Estimated]:
    """Without those that only a batch limit that is not reached distinguishes from the candidate
    with the highest one."""
    keys = [_without_batch(one.candidate) for one in able]
    highest: dict[tuple[object, ...], int] = {}
    for key, one in zip(keys, able, strict=True):
        highest[key] = max(highest.get(key, 0), one.candidate.worker.batch)

    def is_duplicate(one: Estimated, highest_batch: int) -> bool:
        limit, estimate = one.candidate.worker.batch, one.estimate
        return estimate is not None and estimate.running * BATCH_MARGIN <= limit < highest_batch

    return [one for key, one in zip(keys, able, strict=True) if not is_duplicate(one, highest[key])]


def _without_batch(candidate: Candidate) -> tuple[object, ...]:
    worker = candidate.worker
    return (candidate.prefill, worker.layout, worker.replicas, worker.step, candidate.router)


def _without_limits(candidate: Candidate) -> tuple[object, ...]:
    worker = candidate.worker
    return (candidate.prefill, worker.layout, worker.replicas, candidate.router)


def best_of(trials: Trials, request: PlanRequest, ranked: Ranked) -> list[Trial]:
    """The finalists of one family, best first, replayed with all seeds; empty if none meets the
    SLO."""
    search = {
        Objective.COST: _cheapest,
        Objective.INTERACTIVITY: _fastest,
        Objective.THROUGHPUT: _highest_scale,
    }[request.objective]
    return search(trials, ranked)


def winner_of(finalists: Sequence[Trial], objective: Objective) -> Trial:
    """The least complex of those that tie with the best, and of several such the best."""
    score = score_of(objective)
    near = _near(finalists, score, TIE)
    least = min(trial.candidate.complexity for trial in near)
    return in_order([trial for trial in near if trial.candidate.complexity == least], score)[0]


def in_order(trials: Sequence[Trial], score: Score) -> list[Trial]:
    """Best first. Equal ones are ordered by complexity, as their scores differ randomly."""
    left, order = list(trials), []
    while left:
        order.append(min(_near(left, score, EQUAL), key=lambda t: t.candidate.order))
        left.remove(order[-1])
    return order


def _near(trials: Sequence[Trial], score: Score, band: float) -> list[Trial]:
    """Those whose score equals the best, except for the last number, which is within ``band``."""
    best = max(map(score, trials))

    def is_near(value: tuple[float, ...]) -> bool:
        return value[:-1] == best[:-1] and value[-1] >= best[-1] * (1 - band)

    return [trial for trial in trials if is_near(score(trial))]


def score_of(objective: Objective) -> Score:
    """Higher is better; the first number counts first."""
    if objective is Objective.COST:
        return lambda trial: (-float(trial.candidate.gpus), trial.user_rate)
    if objective is Objective.THROUGHPUT:
        return lambda trial: (trial.row.scale, trial.user_rate)
    return lambda trial: (trial.user_rate,)


def _final_replays(trials: Trials) -> int:
    return min(FINAL_REPLAYS, trials.free // 2)


def _fastest(trials: Trials, ranked: Ranked) -> list[Trial]:
    with trials.reserving(_final_replays(trials)):
        first = trials.of([TrialSpec(c) for c in ranked.candidates[: trials.free]])
    return _finals(trials, first, Objective.INTERACTIVITY)


def _cheapest(trials: Trials, ranked: Ranked) -> list[Trial]:
    """Starts at the estimated number of GPUs. Goes up until some candidates meet the SLO, then down
    over numbers that the estimate excludes, and finally replays more candidates of the lowest; if
    none met it, of the highest."""
    by_gpus = sorted(ranked.candidates, key=lambda c: (c.gpus, -ranked.capacity[c], c.order))
    groups = [list(equal) for _, equal in groupby(by_gpus, key=lambda c: c.gpus)]

    def finalists(number: int, most: int) -> list[Trial]:
        with trials.reserving(_final_replays(trials)):
            first = trials.of([TrialSpec(c) for c in groups[number][:most]])
        return _finals(trials, first, Objective.COST)

    enough = (n for n, some in enumerate(groups) if ranked.capacity[some[0]] >= 1)
    number = next(enough, len(groups) - 1)
    best: list[Trial] = []
    while not best and 0 <= number < len(groups) and trials.free:
        best = finalists(number, GROUP)
        number += 0 if best else 1
    if not best and groups:  # the estimate may have left out the right one of the largest
        number = len(groups) - 1
        best = finalists(number, LAST_GROUP)
    for fewer in range(number - 1, max(-1, number - 1 - FEWER), -1) if best else ():
        if lower := finalists(fewer, GROUP):
            best, number = lower, fewer
    more = finalists(number, LAST_GROUP) if best else []
    both = {trial.candidate: trial for trial in (*best, *more)}
    return in_order(list(both.values()), score_of(Objective.COST))


def _finals(trials: Trials, first: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The best candidates that meet the SLO with all seeds.

    A second seed excludes those that met it with the first seed only.
    """
    hopeful = _hopeful(first, objective)
    most = max(1, min(SEMIFINALISTS, trials.free - FINALISTS))
    semifinal = trials.of([TrialSpec(candidate, seeds=2) for candidate in hopeful[:most]])
    order = dict.fromkeys([*_hopeful(semifinal, objective), *hopeful[most:]])
    best: list[Trial] = []
    for some in _batches(list(order), FINALISTS):
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


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _highest_scale(trials: Trials, ranked: Ranked) -> list[Trial]:
    with trials.reserving(_final_replays(trials)):
        met = _raced(trials, ranked)
    best = sorted(met, key=lambda c: (-met[c], c.order))[:FINALISTS]
    confirmed = [one for c in best if (one := _confirmed(trials, c, met[c]))]
    return in_order(confirmed, score_of(Objective.THROUGHPUT))


def _raced(trials: Trials, ranked: Ranked) -> dict[Candidate, int]:
    """The highest exponents of those that were better than all before them. A candidate that misses
    the SLO one step above the best so far is out after one replay."""
    met = _first_met(trials, ranked)
    waiting = [c for c in ranked.candidates if c not in met]
    for some in _batches(waiting, BATCH) if met else ():
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
        trial = trials.one(TrialSpec(candidate, scale=scale, seeds=SEEDS))
        if trial is None:
            return None
        if trial.meets_slo:
            return trial
    return None
