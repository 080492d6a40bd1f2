"""The order of replayed graphs under an objective, and which of several tied ones is the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.plan.request import Objective
from penstock.plan.trials import Trial

TIE = 0.03  # within this, the less complex candidate wins
EQUAL = 0.01  # within this, scores are equal: the KV router's random ties make such a difference
SCALE_STEP = 1.05  # scales of the search for throughput are powers of it
Score = Callable[[Trial], tuple[float, ...]]


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
