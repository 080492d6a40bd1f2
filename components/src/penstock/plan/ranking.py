"""The candidates of a family in the order in which they are replayed.

The estimate orders them, and an optimistic one excludes those that cannot meet the SLO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from penstock.plan.estimate import Estimate, Estimator
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.space import Candidate

MIN_CAPACITY = 0.6  # of the scale: candidates of which less is estimated are not replayed
BOUND_MARGIN = 0.05  # of the scale, by which a replay may be better than the optimistic estimate
BOUND_FROM = 0.9  # share of requests that must meet the SLO, from which their mean must too
BATCH_MARGIN = 2.0  # a batch limit of so many times the running requests has no effect


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The candidates of one family, the most promising first."""

    candidates: tuple[Candidate, ...]
    capacity: Mapping[Candidate, float]  # the highest scale that is estimated to meet the SLO

    def only(self, *, drafts: bool) -> Ranked:
        """Those with or without speculative decoding."""
        some = tuple(one for one in self.candidates if one.drafts == drafts)
        return replace(self, candidates=some)

    @cached_property
    def by_gpus(self) -> list[list[Candidate]]:
        """Groups with equally many GPUs, the fewest first; in each the highest capacity first."""
        order = sorted(self.candidates, key=lambda c: (c.gpus, -self.capacity[c], c.order))
        return [list(equal) for _, equal in groupby(order, key=lambda c: c.gpus)]


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


def rank(
    candidates: Sequence[Candidate],
    estimator: Estimator,
    request: PlanRequest,
    attain: float = BOUND_FROM,
) -> Ranked:
    """Ranks the candidates, without hopeless ones and those with a batch limit of no effect.

    ``attain``: share of requests that must meet the SLO.
    """
    pairs = [(c, estimator.required_capacity(c, request)) for c in candidates]
    if request.objective is Objective.THROUGHPUT:
        best = sorted((one for one in pairs if one[1]), key=lambda one: (-one[1], one[0].order))
        return Ranked(candidates=tuple(c for c, _ in best), capacity=dict(best))
    bound = estimator.bound() if attain >= BOUND_FROM else None
    able = [
        Estimated(c, capacity, estimator.at(c, min(1.0, capacity)))
        for c, capacity in pairs
        if capacity >= MIN_CAPACITY
        and (bound is None or bound.required_capacity(c, request) >= 1 - BOUND_MARGIN)
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
    return (*_without_limits(candidate), worker.step)


def _without_limits(candidate: Candidate) -> tuple[object, ...]:
    worker = candidate.worker
    kind = candidate.router, candidate.drafts
    return (candidate.prefill, worker.layout, worker.replicas, *kind)
