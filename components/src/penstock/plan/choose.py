"""Which candidates are replayed, and which one wins: a search for each objective.

Aggregated and disaggregated ones are searched apart, so that the best of both are known. What is
replayed first is what the estimate likes best; what decides are medians over fixed seeds.
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

TIE = 0.03  # closer than this, what is less effort to run wins
EVEN = 0.01  # closer than this may be the KV router's chance, and ranks nobody
OPTIMISM = 0.6  # of the load: what the estimate says holds less than this is not replayed
ROOM = 2.0  # limits beyond so many times what runs at once change nothing
SEMIFINALISTS, FINALISTS = 6, 2
FOR_FINALS = 12  # replays: a second seed for the semifinalists, a third for the finalists, thrice
GROUP, MORE = 5, 15  # candidates of one number of GPUs, for cost: at first, and of the fewest
FEWER = 4  # numbers of GPUs below it, which need not be worse one by one
RUNG = 1.05  # loads of the search for throughput are powers of it
BATCH = 4
CLIMB = 4  # rungs of a first climb, halved until one is left
FALLS = (0, 6, 14, 28)  # rungs below the estimated one, at which a climb is begun
STEPS_DOWN = 12
T = TypeVar("T")
Score = Callable[[Trial], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The candidates of one family with what is estimated of them."""

    candidates: tuple[Candidate, ...]
    estimates: Mapping[Candidate, Estimate | None]
    capacity: Mapping[Candidate, float]


def rank(candidates: Sequence[Candidate], estimator: Estimator, request: PlanRequest) -> Ranked:
    """Without those that the estimate gives no chance, and without limits that nothing reaches."""
    capacity = {c: estimator.capacity(c, request.slo) for c in candidates}
    if request.objective is Objective.THROUGHPUT:
        best = sorted(
            (c for c in candidates if capacity[c]), key=lambda c: (-capacity[c], c.simplicity)
        )
        return Ranked(candidates=tuple(best), estimates={}, capacity=capacity)
    able = [c for c in candidates if capacity[c] >= OPTIMISM]
    estimates = {c: estimator.at(c, min(1.0, capacity[c])) for c in able}
    highest: dict[tuple[object, ...], int] = {}
    for c in able:
        highest[_but_for_batch(c)] = max(highest.get(_but_for_batch(c), 0), c.worker.batch)
    apart = [c for c in able if not _is_same(c, estimates[c], highest[_but_for_batch(c)])]
    # Who may not hold the load was estimated at a lower one, where it is faster.
    rate = {c: _rate(estimates[c]) * min(1.0, capacity[c]) for c in apart}
    # What a step's size does to the times is for the replays to say: those alike but for it stay
    # together, in the order of their best.
    fastest: dict[tuple[object, ...], float] = {}
    for c in apart:
        fastest[_but_for_limits(c)] = max(fastest.get(_but_for_limits(c), 0.0), rate[c])
    apart.sort(key=lambda c: (-fastest[_but_for_limits(c)], -rate[c], c.simplicity))
    return Ranked(candidates=tuple(apart), estimates=estimates, capacity=capacity)


def _rate(estimate: Estimate | None) -> float:
    return estimate.user_rate if estimate else 0.0


def _is_same(candidate: Candidate, estimate: Estimate | None, highest: int) -> bool:
    """Whether only a batch limit that is not reached tells it from one with the ``highest``."""
    limit = candidate.worker.batch
    return estimate is not None and estimate.running * ROOM <= limit < highest


def _but_for_batch(candidate: Candidate) -> tuple[object, ...]:
    worker = candidate.worker
    return (candidate.prefill, worker.layout, worker.replicas, worker.step, candidate.router)


def _but_for_limits(candidate: Candidate) -> tuple[object, ...]:
    worker = candidate.worker
    return (candidate.prefill, worker.layout, worker.replicas, candidate.router)


def best_of(trials: Trials, request: PlanRequest, ranked: Ranked) -> list[Trial]:
    """The finalists of one family, best first, replayed with all seeds; empty where none holds."""
    search = {
        Objective.COST: _cheapest,
        Objective.INTERACTIVITY: _fastest,
        Objective.THROUGHPUT: _most,
    }[request.objective]
    return search(trials, ranked)


def winner_of(finalists: Sequence[Trial], objective: Objective) -> Trial:
    """Of those that are as good as the best the one of the least effort, and of several such the
    best."""
    score = score_of(objective)
    near = _near(finalists, score, TIE)
    least = min(trial.candidate.effort for trial in near)
    return in_order([trial for trial in near if trial.candidate.effort == least], score)[0]


def in_order(trials: Sequence[Trial], score: Score) -> list[Trial]:
    """Best first; those that are even by their simplicity, as chance would order them anew each
    time."""
    left, order = list(trials), []
    while left:
        order.append(min(_near(left, score, EVEN), key=lambda t: t.candidate.simplicity))
        left.remove(order[-1])
    return order


def _near(trials: Sequence[Trial], score: Score, band: float) -> list[Trial]:
    """As good as the best in all but the last number of the score, and nearly so in that."""
    best = max(map(score, trials))

    def is_near(said: tuple[float, ...]) -> bool:
        return said[:-1] == best[:-1] and said[-1] >= best[-1] * (1 - band)

    return [trial for trial in trials if is_near(score(trial))]


def score_of(objective: Objective) -> Score:
    """The more the better, the first number first."""
    if objective is Objective.COST:
        return lambda trial: (-float(trial.candidate.gpus), trial.user_rate)
    if objective is Objective.THROUGHPUT:
        return lambda trial: (trial.row.scale, trial.user_rate)
    return lambda trial: (trial.user_rate,)


def _for_finals(trials: Trials) -> int:
    return min(FOR_FINALS, trials.free // 2)


def _fastest(trials: Trials, ranked: Ranked) -> list[Trial]:
    with trials.keeping(_for_finals(trials)):
        looked = trials.of([TrialSpec(c) for c in ranked.candidates[: trials.free]])
    return _finals(trials, looked, Objective.INTERACTIVITY)


def _cheapest(trials: Trials, ranked: Ranked) -> list[Trial]:
    """From the number of GPUs that the estimate has enough: up until some hold, then down over
    those that it is not sure of; at last more of those with as many, for speed."""
    by_gpus = sorted(ranked.candidates, key=lambda c: (c.gpus, -ranked.capacity[c], c.simplicity))
    groups = [list(alike) for _, alike in groupby(by_gpus, key=lambda c: c.gpus)]

    def held(number: int, most: int) -> list[Trial]:
        with trials.keeping(_for_finals(trials)):
            looked = trials.of([TrialSpec(c) for c in groups[number][:most]])
        return _finals(trials, looked, Objective.COST)

    enough = (n for n, some in enumerate(groups) if ranked.capacity[some[0]] >= 1)
    number = next(enough, len(groups) - 1)
    found: list[Trial] = []
    while not found and 0 <= number < len(groups) and trials.free:
        found = held(number, GROUP)
        number += 0 if found else 1
    for fewer in range(number - 1, max(-1, number - 1 - FEWER), -1) if found else ():
        if lower := held(fewer, GROUP):
            found, number = lower, fewer
    more = held(number, MORE) if found else []
    both = {trial.candidate: trial for trial in (*found, *more)}
    return in_order(list(both.values()), score_of(Objective.COST))


def _finals(trials: Trials, looked: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The best of those that hold with all seeds: a second seed tells who only had luck with the
    first."""
    hopeful = _hopeful(looked, objective)
    most = max(1, min(SEMIFINALISTS, trials.free - FINALISTS))
    semifinal = trials.of([TrialSpec(candidate, seeds=2) for candidate in hopeful[:most]])
    order = dict.fromkeys([*_hopeful(semifinal, objective), *hopeful[most:]])
    found: list[Trial] = []
    for some in _batches(list(order), FINALISTS):
        again = trials.of([TrialSpec(candidate, seeds=SEEDS) for candidate in some])
        found += [trial for trial in again if trial.meets_slo]
        if found:
            break
    return in_order(found, score_of(objective))


def _hopeful(trials: Sequence[Trial], objective: Objective) -> list[Candidate]:
    """Those that hold: the best, what would win beside it, and the others in their order."""
    held = in_order([trial for trial in trials if trial.meets_slo], score_of(objective))
    likely = [winner_of(held, objective)] if held else []
    return list(dict.fromkeys(trial.candidate for trial in (*held[:1], *likely, *held)))


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _most(trials: Trials, ranked: Ranked) -> list[Trial]:
    with trials.keeping(_for_finals(trials)):
        held = _raced(trials, ranked)
    best = sorted(held, key=lambda c: (-held[c], c.simplicity))[:FINALISTS]
    found = [one for c in best if (one := _confirmed(trials, c, held[c]))]
    return in_order(found, score_of(Objective.THROUGHPUT))


def _raced(trials: Trials, ranked: Ranked) -> dict[Candidate, int]:
    """The rungs of those that held more than all before them: who does not hold one rung more than
    the best so far is out, after one replay."""
    held = _first_held(trials, ranked)
    waiting = [c for c in ranked.candidates if c not in held]
    for some in _batches(waiting, BATCH) if held else ():
        level = max(held.values()) + 1
        for trial in trials.of([TrialSpec(c, scale=RUNG**level) for c in some]):
            least = max(held.values()) + 1
            if trial.meets_slo and (rung := _climbed(trials, trial.candidate, least)) is not None:
                held[trial.candidate] = rung
        if not trials.free:
            break
    return held


def _first_held(trials: Trials, ranked: Ranked) -> dict[Candidate, int]:
    """The first candidate that holds anything near what is estimated, and its rung."""
    for candidate in ranked.candidates[:BATCH]:
        start = _rung(ranked.capacity[candidate])
        for lower in FALLS:
            rung = _climbed(trials, candidate, start - lower)
            if rung is not None:
                return {candidate: rung}
    return {}


def _rung(scale: float) -> int:
    return floor(log(scale) / log(RUNG))


def _climbed(trials: Trials, candidate: Candidate, start: int) -> int | None:
    """The highest rung that holds, from ``start`` on; None where that does not."""

    def holds(rung: int) -> bool:
        trial = trials.one(TrialSpec(candidate, scale=RUNG**rung))
        return trial is not None and trial.meets_slo

    if not holds(start):
        return None
    low, step = start, CLIMB
    while step:
        if holds(low + step):
            low += step
        else:
            step //= 2
    return low


def _confirmed(trials: Trials, candidate: Candidate, rung: int) -> Trial | None:
    """The load that all seeds hold."""
    for lower in range(STEPS_DOWN):
        trial = trials.one(TrialSpec(candidate, scale=RUNG ** (rung - lower), seeds=SEEDS))
        if trial is None:
            return None
        if trial.meets_slo:
            return trial
    return None
