"""Replays of candidates within a budget, each run once, and their order under an objective."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

from penstock.plan.deployments import Deployments
from penstock.plan.margin import meets_slo
from penstock.plan.request import Objective
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.simulate.metrics import spreads
from penstock.simulate.study import Row, Study
from penstock.text.numbers import significant
from penstock.workload.duration import MIN_PLANNED_REQUESTS, exceeds_plan_limit
from penstock.workload.load import LoadedWorkload

SLOWER = 1.5  # a later replay than the mean of those so far, some of which came from the cache
FIRST_SHARE = 0.75  # of a search's time, for first replays; the rest is for further seeds
FINALISTS = 2
FINAL_REPLAYS = 12  # a second seed for the semifinalists, a third for the finalists, three times
T = TypeVar("T")
TIE = 0.03  # within this, the less complex candidate wins
EQUAL = 0.01  # within this, scores are equal: the KV router's random ties make such a difference
SCALE_STEP = 1.05  # scales of the search for throughput are powers of it


@dataclass(frozen=True)
class Deadline:
    """When a search must end; ``limit_s`` None: never."""

    limit_s: float | None = None
    clock: Callable[[], float] = time.monotonic
    started: float = 0.0  # on the clock

    def is_over(self, share: float = 1.0) -> bool:
        """Whether ``share`` of the time has passed."""
        return self.limit_s is not None and self.spent_s >= self.limit_s * share

    @property
    def spent_s(self) -> float:
        return self.clock() - self.started

    @property
    def left_s(self) -> float:
        """The seconds that are left; infinite without a limit."""
        return inf if self.limit_s is None else max(0.0, self.limit_s - self.spent_s)


@dataclass(frozen=True)
class TrialSpec:
    candidate: Candidate
    scale: float = 1.0  # of the workload's rate
    seeds: int = 1  # samples of the traffic


@dataclass(frozen=True, kw_only=True)
class Trial:
    candidate: Candidate
    row: Row
    meets_slo: bool
    # With `--n-minus-one`: what is left after the loss of a worker, by the name of its pool. If
    # `row` misses the SLO, only `Trials.with_all_seeds` replays them.
    losses: Mapping[str, Row] = field(default_factory=dict)

    @property
    def user_rate(self) -> float:
        """Output tokens/s of the median request, the median over the seeds; 0 if no request has two
        output tokens."""
        return self._median("user_rate")

    @property
    def gpu_rate(self) -> float:
        """Output tokens/s per GPU, the median over the seeds."""
        return self._median("gpu_rate")

    @property
    def request_rate(self) -> float:
        """Completed requests/s, the median over the seeds."""
        return self._median("request_rate")

    def _median(self, name: str) -> float:
        spread = dict(spreads(self.row.metrics)).get(name)
        return spread.median if spread else 0.0

    @property
    def rows(self) -> tuple[Row, ...]:
        """The row of the complete graph, then those after each loss that was replayed."""
        return self.row, *self.losses.values()

    @property
    def goodput(self) -> float:
        """Share of requests within the SLO, after the worst loss that was replayed."""
        return min(row.goodput or 0.0 for row in self.rows)


@dataclass
class Trials:
    """Runs trials while the budget and the time last; others are left out of the results."""

    study: Study
    deployments: Deployments
    left: int  # replays in the budget
    say: Callable[[str, int], None]  # a result, and how many replays it took
    replays: int = 0  # that were run
    deadline: Deadline = field(default_factory=Deadline)
    share: float = 1.0  # of the time
    measured: list[Trial] = field(default_factory=list)  # in order of time; searches may share it
    is_cut_short: bool = False  # whether the time ended while trials were still requested
    lacks_replays: bool = False  # whether trials were left out because no replay was left
    # Whether a replay takes long. Then samples of one seed select graphs for a longer replay.
    is_costly: bool = False
    # What confirms a graph, if it is more than the study has: a whole trace, or more conversations.
    complete: LoadedWorkload | None = None
    _reserved: int = 0
    _known: dict[TrialSpec, Trial] = field(default_factory=dict)

    def check_budget(self) -> int:
        """How many replays may start now: those that are left and not reserved; 0 if no time is
        left, which also marks the search as cut short."""
        return 0 if self._stops_late() else self._unreserved

    @property
    def seeds(self) -> int:
        """Samples of the traffic on which a decision is based."""
        return 1 if self.is_costly else SEEDS

    @property
    def final_replays(self) -> int:
        """What a search keeps for further seeds of the best candidates."""
        if self.is_costly or self._is_late:
            return 0
        return min(FINAL_REPLAYS, self._unreserved // 2)

    @property
    def _unreserved(self) -> int:
        return max(0, self.left - self._reserved)

    @property
    def _is_late(self) -> bool:
        share = self.share * FIRST_SHARE if self._reserved else self.share
        return self.deadline.is_over(share)

    def _stops_late(self) -> bool:
        """Whether no time is left. Call it before a trial: if it returns True, this trial is left
        out, so it marks the search as cut short."""
        self.is_cut_short |= self._is_late
        return self._is_late

    def _stops(self) -> bool:
        """Whether the time has passed, or the command was interrupted."""
        return self._stops_late() or self.study.replays.is_over

    @contextlib.contextmanager
    def reserving(self, replays: int) -> Iterator[None]:
        """Keeps so many replays for later."""
        self._reserved += replays
        try:
            yield
        finally:
            self._reserved -= replays

    @contextlib.contextmanager
    def granting(self, replays: int) -> Iterator[None]:
        """A budget of its own, which leaves the other as it is."""
        left, self.left = self.left, replays
        try:
            yield
        finally:
            self.left = left

    def trial_of(self, spec: TrialSpec) -> Trial | None:
        trials = self.of([spec])
        return trials[0] if trials else None

    def of(self, specs: Sequence[TrialSpec]) -> list[Trial]:
        """Runs the specs, and returns their trials in order, without those that cannot be installed
        or for which no replay is left."""
        states = {
            spec: (spec.candidate, *self.losses_of(spec.candidate).values()) for spec in specs
        }
        candidates = list(dict.fromkeys(c for graphs in states.values() for c in graphs))
        installable = {c for c, _ in self.deployments.of(candidates, self._stops)}
        new: dict[TrialSpec, int] = {}
        for spec in dict.fromkeys(specs):
            is_new = installable.issuperset(states[spec]) and spec not in self._known
            too_long = exceeds_plan_limit(self.study.workload.workload, spec.scale)
            if not is_new or too_long:
                continue
            needed = self._needed_replays(spec)
            if needed <= self.check_budget():
                self.left -= needed
                new[spec] = needed
            else:
                self.lacks_replays = True
        pool = ThreadPoolExecutor(self.study.replays.processes)
        try:
            for spec, trial in zip(new, pool.map(self._run_in_time, new), strict=True):
                if trial is None:
                    self.left += new[spec]
                    continue
                used = new[spec] * (1 + len(trial.losses)) // len(states[spec])
                self.left += new[spec] - used
                self._known[spec] = trial
                self.measured.append(trial)
                self.replays += used
                scale = "" if spec.scale == 1 else f" at scale × {significant(spec.scale)}"
                share = f"{trial.goodput:.0%} within the SLO"
                self.say(f"{spec.candidate}{scale}: {share}", used)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # `Replays` ends what still runs
        return [self._known[spec] for spec in specs if spec in self._known]

    def _needed_replays(self, spec: TrialSpec) -> int:
        """The most replays that it needs, beyond those that were run with fewer seeds."""
        run = (n for n in range(1, spec.seeds) if replace(spec, seeds=n) in self._known)
        return (spec.seeds - max(run, default=0)) * (1 + len(self.losses_of(spec.candidate)))

    def has_time_for(self, replays: float) -> bool:
        """Whether so many more fit into the time that is left, as fast as those so far."""
        mean_s = self.deadline.spent_s / max(1, self.replays)
        return replays * SLOWER * mean_s <= self.deadline.left_s

    def confirm(self, short: Trial, row: Row, losses: Mapping[str, Row]) -> Trial:
        """The trial with longer replays, which count instead of the short ones. Each sample of the
        traffic must meet the SLO, not only the median."""
        rows = (row, *losses.values())
        meets_slo = all(
            row.is_served and self.meets_slo(row) and _least_goodput(row) >= self.study.attain
            for row in rows
        )
        trial = replace(short, row=row, losses=losses, meets_slo=meets_slo)
        self.replays += sum(len(row.metrics) for row in rows)
        self._known[TrialSpec(short.candidate, scale=row.scale, seeds=self.seeds)] = trial
        self.measured.append(trial)
        return trial

    @property
    def known(self) -> list[Trial]:
        """For each candidate and scale the trial with the most seeds, in the order of the first."""
        return [self._known[spec] for spec in self._surest()]

    @property
    def undecided(self) -> bool:
        """Whether a candidate met the SLO, and was not replayed with as many seeds as decide."""
        return any(
            spec.seeds < self.seeds and self._known[spec].meets_slo for spec in self._surest()
        )

    def _surest(self) -> list[TrialSpec]:
        surest: dict[TrialSpec, TrialSpec] = {}
        for spec in self._known:
            first = replace(spec, seeds=1)
            surest[first] = max(surest.get(first, spec), spec, key=lambda s: s.seeds)
        return list(surest.values())

    def _run_in_time(self, spec: TrialSpec) -> Trial | None:
        """Runs the spec; None if the time ended while it waited for other trials."""
        return None if self._stops_late() else self._run(spec)

    def losses_of(self, candidate: Candidate) -> Mapping[str, Candidate]:
        """What is left, with `--n-minus-one`, after the loss of a worker."""
        return candidate.losses if self.deployments.request.survives_loss else {}

    def with_all_seeds(self, trial: Trial) -> Trial:
        """A trial that misses the SLO with all seeds and after each loss; as it is if it would meet
        the SLO then, or if no time is left."""
        spec = TrialSpec(trial.candidate, scale=trial.row.scale, seeds=self.seeds)
        rows = {"": trial.row, **trial.losses} if spec in self._known else {}
        for name, left in {"": trial.candidate, **self.losses_of(trial.candidate)}.items():
            if self._stops_late():
                return trial
            if name not in rows:
                rows[name] = self._row(replace(spec, candidate=left))
                self.replays += spec.seeds
        if all(map(self.meets_slo, rows.values())):
            return trial
        return replace(trial, row=rows.pop(""), losses=rows)

    def _run(self, spec: TrialSpec) -> Trial:
        row = self._row(spec)
        meets_slo = self.meets_slo(row)
        losses: dict[str, Row] = {}
        for name, left in self.losses_of(spec.candidate).items():
            if meets_slo:
                losses[name] = self._row(replace(spec, candidate=left))
                meets_slo = self.meets_slo(losses[name])
        return Trial(candidate=spec.candidate, row=row, meets_slo=meets_slo, losses=losses)

    def _row(self, spec: TrialSpec) -> Row:
        ((_, deployment),) = self.deployments.of([spec.candidate])
        workload = self.study.workload.at_scale(spec.scale, min_requests=MIN_PLANNED_REQUESTS)
        study = replace(self.study, seeds=spec.seeds, workload=workload)
        (row,) = study.rows([deployment], None)
        return replace(row, scale=spec.scale)

    def meets_slo(self, row: Row) -> bool:
        """Whether the row meets the SLO; with `--confidence`, also at the upper end of the
        intervals."""
        return meets_slo(row, self.deployments.request, self.study.attain)


def _least_goodput(row: Row) -> float:
    return min(seed.goodput or 0.0 for seed in row.metrics)


def joined(
    searches: Sequence[Trials], budget: int, complete: LoadedWorkload | None = None
) -> Trials:
    """The trials of several searches, and what is left of ``budget`` for more."""
    first = searches[0]
    known = {spec: trial for search in searches for spec, trial in search._known.items()}
    used = sum(search.replays for search in searches)
    left = max(0, budget - used)
    both = Trials(
        first.study,
        first.deployments,
        left,
        first.say,
        used,
        deadline=first.deadline,
        measured=first.measured,
        is_costly=first.is_costly,
        complete=complete,
    )
    both._known |= known
    return both


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


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
    """Trials whose score equals the best, except for the last number, which is within ``band``."""
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
