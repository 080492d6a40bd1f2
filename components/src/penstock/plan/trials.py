"""Replays of candidates within a budget, each asked once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from penstock.plan.deployments import Deployments
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.simulate.metrics import spreads
from penstock.simulate.study import Row, Study
from penstock.workload.duration import MIN_PLANNED_REQUESTS, exceeds_plan_limit


@dataclass(frozen=True)
class TrialSpec:
    """A candidate at ``scale`` times the load, with ``seeds`` draws of the traffic."""

    candidate: Candidate
    scale: float = 1.0
    seeds: int = 1


@dataclass(frozen=True, kw_only=True)
class Trial:
    """``user_rate``: tokens a second of the median request, over the seeds."""

    candidate: Candidate
    row: Row
    meets_slo: bool

    @property
    def user_rate(self) -> float:
        return dict(spreads(self.row.metrics))["user_rate"].median

    @property
    def goodput(self) -> float:
        return self.row.goodput or 0.0


@dataclass
class Trials:
    """``left``: replays that may still be run; what is asked beyond them, or of those that
    somebody is `keeping`, is left unanswered."""

    study: Study
    deployments: Deployments
    left: int
    say: Callable[[str], None]
    replays: int = 0
    _kept: int = 0
    _known: dict[TrialSpec, Trial] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return max(0, self.left - self._kept)

    @contextlib.contextmanager
    def keeping(self, replays: int) -> Iterator[None]:
        """So many are for later."""
        self._kept += replays
        try:
            yield
        finally:
            self._kept -= replays

    def one(self, ask: TrialSpec) -> Trial | None:
        found = self.of([ask])
        return found[0] if found else None

    def of(self, asks: Sequence[TrialSpec]) -> list[Trial]:
        """In order, without those that cannot be installed or for which no replay is left."""
        sound = {c for c, _ in self.deployments.of([ask.candidate for ask in asks])}
        new: dict[TrialSpec, int] = {}
        for ask in dict.fromkeys(asks):
            is_new = ask.candidate in sound and ask not in self._known
            too_much = exceeds_plan_limit(self.study.workload.workload, ask.scale)
            more = self._more(ask)
            if is_new and more <= self.free and not too_much:
                self.left -= more
                new[ask] = more
        pool = ThreadPoolExecutor(self.study.replays.processes)
        try:
            for ask, trial in zip(new, pool.map(self._run, new), strict=True):
                self._known[ask] = trial
                self.replays += new[ask]
                load = "" if ask.scale == 1 else f" at load × {ask.scale:.3g}"
                found = f"{trial.goodput:.0%} in SLO"
                self.say(f"{self.replays} replays: {ask.candidate}{load}: {found}")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # the replays' end is theirs
        return [self._known[ask] for ask in asks if ask in self._known]

    def _more(self, ask: TrialSpec) -> int:
        """Replays that it takes beyond those that were run with fewer seeds."""
        run = (n for n in range(1, ask.seeds) if replace(ask, seeds=n) in self._known)
        return ask.seeds - max(run, default=0)

    @property
    def known(self) -> list[Trial]:
        """Of each candidate and load the trial with the most seeds, in the order in which they were
        first asked."""
        return [self._known[ask] for ask in self._surest()]

    @property
    def undecided(self) -> bool:
        """Whether somebody held a load, and was not asked with all seeds."""
        return any(ask.seeds < SEEDS and self._known[ask].meets_slo for ask in self._surest())

    def _surest(self) -> list[TrialSpec]:
        found: dict[TrialSpec, TrialSpec] = {}
        for ask in self._known:
            first = replace(ask, seeds=1)
            found[first] = max(found.get(first, ask), ask, key=lambda one: one.seeds)
        return list(found.values())

    def _run(self, ask: TrialSpec) -> Trial:
        ((_, deployment),) = self.deployments.of([ask.candidate])
        workload = self.study.workload.at_scale(ask.scale, min_requests=MIN_PLANNED_REQUESTS)
        study = replace(self.study, seeds=ask.seeds, workload=workload)
        (row,) = study.rows([deployment], None)
        row = replace(row, scale=ask.scale)
        return Trial(candidate=ask.candidate, row=row, meets_slo=study.meets(row))


def joined(searches: Sequence[Trials], budget: int) -> Trials:
    """What several found, and what is left of ``budget`` for more."""
    first = searches[0]
    known = {ask: trial for one in searches for ask, trial in one._known.items()}
    spent = sum(one.replays for one in searches)
    deployments = Deployments(first.deployments.request)
    found = Trials(first.study, deployments, max(0, budget - spent), first.say, replays=spent)
    found._known |= known
    return found
