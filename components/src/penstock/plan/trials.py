"""Replays of candidates within limits, each run once, and their order under an objective."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from math import inf
from statistics import fmean
from typing import TypeVar

from penstock.errors import ProblemKind, SimulationError
from penstock.plan.deployments import Deployments
from penstock.plan.margin import meets_slo
from penstock.plan.request import Objective
from penstock.plan.space import Candidate
from penstock.simulate.metrics import spreads
from penstock.simulate.study import SEEDS, Row, Study
from penstock.text.numbers import significant
from penstock.workload.duration import MIN_PLANNED_REQUESTS, exceeds_plan_limit
from penstock.workload.load import LoadedWorkload

SLOWER = 1.5  # a later replay than the mean of those so far, some of which came from the cache
TIE = 0.03  # within this, the less complex candidate wins: replays of one graph differ as much
EQUAL = 0.01  # within this, scores are equal: the KV router's random ties make such a difference
NEARLY = 0.05  # a short replay with so much less than the needed share may be wrong
CONFIRMING_REQUESTS = 2000  # that count, in the replay that confirms a graph

T = TypeVar("T")


class Limit(StrEnum):
    """An option that ends a search early."""

    TIME = "--time-limit"
    REPLAYS = "--replays"


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


@dataclass(frozen=True, kw_only=True)
class Trial:
    candidate: Candidate
    row: Row
    meets_slo: bool
    # With `--n-minus-one`: what is left after the loss of a worker, by the name of its pool. If
    # `row` misses the SLO, only `Trials.with_losses` replays them.
    losses: Mapping[str, Row] = field(default_factory=dict)
    is_confirmed: bool = False  # in a longer replay
    short: Trial | None = None  # of a confirmed one, the trial before it

    @property
    def on_short_traffic(self) -> Trial:
        """The trial that compares with unconfirmed ones: under longer traffic, a graph seems slower
        than under a part of it."""
        return self.short or self

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
    """Runs trials while the replays and the time last; others are left out of the results."""

    study: Study
    deployments: Deployments
    left: int  # replays that may still start
    say: Callable[[str, int], None]  # a result, and how many replays it took
    replays: int = 0  # that were run
    deadline: Deadline = field(default_factory=Deadline)
    share: float = 1.0  # of the time
    measured: list[Trial] = field(default_factory=list)  # in order of time
    ended_by: Limit | None = None  # what left trials out
    # Whether a replay takes long. Then fewer candidates are replayed.
    is_costly: bool = False
    # What confirms a graph, if it is more than the study has: a whole trace, or more conversations.
    complete: LoadedWorkload | None = None
    _known: dict[TrialSpec, Trial] = field(default_factory=dict)

    @property
    def known(self) -> list[Trial]:
        """The latest trial of each candidate and scale, in the order of the first."""
        return list(self._known.values())

    def trial_of(self, spec: TrialSpec) -> Trial | None:
        trials = self.of([spec])
        return trials[0] if trials else None

    def of(self, specs: Sequence[TrialSpec]) -> list[Trial]:
        """Runs the specs, and returns their trials in order, without those that cannot be installed
        or for which no replay or time is left."""
        new = self._affordable(specs)
        pool = ThreadPoolExecutor(self.study.replays.processes)
        running = {spec: pool.submit(self._run_in_time, spec) for spec in new}
        try:
            for spec in new:
                self._add(spec, running.pop(spec).result())
        except BaseException:  # Ctrl-C: others may have ended before the one that was awaited
            for spec, future in running.items():
                if future.done() and future.exception() is None:
                    self._add(spec, future.result())
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # `Replays` ends what still runs
        return [self._known[spec] for spec in specs if spec in self._known]

    def _add(self, spec: TrialSpec, trial: Trial | None) -> None:
        """Counts a trial; None if the time ended before it."""
        if trial is None:
            return
        used = len(trial.rows)
        self.left -= used
        self._known[spec] = trial
        self._count(trial, used)
        scale = "" if spec.scale == 1 else f" at scale × {significant(spec.scale)}"
        share = f"{trial.goodput:.0%} within the SLO"
        self.say(f"{spec.candidate}{scale}: {share}", used)

    def _affordable(self, specs: Sequence[TrialSpec]) -> list[TrialSpec]:
        """The specs that must be run, as far as the replays last."""
        states = {
            spec: (spec.candidate, *self.losses_of(spec.candidate).values())
            for spec in specs
            if spec not in self._known
            and not exceeds_plan_limit(self.study.workload.workload, spec.scale)
        }
        candidates = list(dict.fromkeys(c for graphs in states.values() for c in graphs))
        installable = {c for c, _ in self.deployments.of(candidates, self._is_over)}
        affordable, left = [], self.left
        for spec, graphs in states.items():
            if not installable.issuperset(graphs):
                continue
            left -= len(graphs)
            if left < 0:
                self.ended_by = self.ended_by or Limit.REPLAYS
                break
            affordable.append(spec)
        return affordable

    def _is_late(self) -> bool:
        """Whether the time has passed. Call it before a replay, which is left out then."""
        is_late = self.deadline.is_over(self.share)
        if is_late:
            self.ended_by = self.ended_by or Limit.TIME
        return is_late

    def _is_over(self) -> bool:
        """Whether the time has passed, or the command was interrupted."""
        return self._is_late() or self.study.replays.is_over

    def _run_in_time(self, spec: TrialSpec) -> Trial | None:
        """Runs the spec; None if the time ended while it waited for other trials."""
        return None if self._is_late() else self.in_time(partial(self._run, spec))

    def in_time(self, work: Callable[[], T]) -> T | None:
        """The result; None if the time limit ended a replay of it."""
        try:
            return work()
        except SimulationError as error:
            if error.problems[0].kind is not ProblemKind.LATE:
                raise
            self.ended_by = self.ended_by or Limit.TIME
            return None

    def _run(self, spec: TrialSpec) -> Trial:
        row = self._row(spec)
        meets = self.meets_slo(row)
        losses: dict[str, Row] = {}
        for name, left in self.losses_of(spec.candidate).items():
            if meets:
                losses[name] = self._row(replace(spec, candidate=left))
                meets = self.meets_slo(losses[name])
        return Trial(candidate=spec.candidate, row=row, meets_slo=meets, losses=losses)

    def _row(self, spec: TrialSpec) -> Row:
        ((_, deployment),) = self.deployments.of([spec.candidate])
        workload = self.study.workload.at_scale(spec.scale, min_requests=MIN_PLANNED_REQUESTS)
        (row,) = replace(self.study, seeds=1, workload=workload).rows([deployment], None)
        return replace(row, scale=spec.scale)

    def meets_slo(self, row: Row) -> bool:
        """Whether the row meets the SLO; with `--confidence`, also at the upper end of the
        intervals."""
        return meets_slo(row, self.deployments.request, self.study.attain)

    def losses_of(self, candidate: Candidate) -> Mapping[str, Candidate]:
        """What is left, with `--n-minus-one`, after the loss of a worker."""
        return candidate.losses if self.deployments.request.survives_loss else {}

    def with_losses(self, trial: Trial) -> Trial:
        """A trial that misses the SLO with the replays after each loss, while time is left."""
        losses = dict(trial.losses)
        for name, left in self.losses_of(trial.candidate).items():
            spec = TrialSpec(left, scale=trial.row.scale)
            if name in losses or self._is_late():
                continue
            if (row := self.in_time(partial(self._row, spec))) is not None:
                losses[name] = row
                self.replays += 1
        return replace(trial, losses=losses)

    def is_hopeful(self, trial: Trial) -> bool:
        """Whether a longer replay may meet the SLO: a short one has some seconds of traffic at
        most, with a few percent more or less load than the workload. Of conversations, it is too
        good rather than too bad."""
        if trial.meets_slo or trial.is_confirmed or trial.losses:
            return trial.meets_slo
        has_turns = self.study.workload.workload.conversation is not None
        is_short = trial.row.requests < CONFIRMING_REQUESTS and not has_turns
        request = self.deployments.request
        is_near = trial.goodput >= self.study.attain - NEARLY
        return is_short and is_near and request.objective is not Objective.THROUGHPUT

    def confirmed(self, trial: Trial) -> Trial:
        """The trial with the figures of a longer replay, which counts instead of the short one:
        until it is steady, at most as long as `simulate` would replay; of a trace and of
        conversations, `complete`. As it is if no time is left for that.

        A queue that grows slowly may not show in the short replays of a search.
        """
        growth = trial.row.steadiness.growth if trial.row.steadiness else 1.0
        if trial.is_confirmed or not self.has_time_for(growth):
            return trial
        scale = trial.row.scale
        loaded = (self.complete or self.study.workload).at_scale(
            scale, min_requests=MIN_PLANNED_REQUESTS
        )
        if self.complete is None and (sampled := loaded.workload.fixed_requests) is not None:
            # The share within the SLO of fewer requests differs by percents between samples.
            requests = max(sampled, 2 * CONFIRMING_REQUESTS)
            loaded = loaded.with_workload(loaded.workload.with_requests(requests))
        self.say(f"{trial.candidate}: a longer replay", 0)
        if (rows := self.in_time(partial(self._long_rows, trial, loaded))) is None:
            return trial
        meets = all(map(self._is_met, rows))
        row, *losses = [replace(row, scale=scale) for row in rows]
        by_pool = dict(zip(self.losses_of(trial.candidate), losses, strict=True))
        longer = replace(
            trial, row=row, losses=by_pool, meets_slo=meets, is_confirmed=True, short=trial
        )
        self._known[TrialSpec(trial.candidate, scale=scale)] = longer
        self._count(longer, sum(len(row.metrics) for row in rows))
        return longer

    def _long_rows(self, trial: Trial, loaded: LoadedWorkload) -> list[Row]:
        """Steady rows of the complete graph, and of what is left after each loss. One sample is
        enough, except of conversations, whose rates differ: others follow until one decides that
        the SLO is missed, unless replays are costly."""
        left = self.deployments.of(list(self.losses_of(trial.candidate).values()))
        deployments = [trial.row.replayable, *(deployment for _, deployment in left)]
        study = replace(self.study, seeds=1, workload=loaded)
        rows = study.steady_rows(deployments, None, self.meets_slo)
        is_enough = self.is_costly or loaded.workload.conversation is None
        for number in range(1, 1 if is_enough else SEEDS):
            if self._is_missed(rows):
                break
            study = replace(study, first_seed=self.study.first_seed + number)
            further = study.steady_rows(deployments, None, self.meets_slo)
            rows = [row.with_seeds_of(more) for row, more in zip(rows, further, strict=True)]
        return rows

    def _is_missed(self, rows: Sequence[Row]) -> bool:
        """Whether the first sample misses the SLO; of several, whether the next one would have to
        be better than their mean by more than NEARLY. Near the highest load, a sample may be worse
        than others by half of the requests, so several that meet the SLO do not decide."""
        if len(rows[0].metrics) == 1 or not all(row.is_served for row in rows):
            return not all(map(self._is_met, rows))
        return min(map(mean_goodput, rows)) < self.study.attain - NEARLY / SEEDS

    def surest(self, trial: Trial) -> Trial:
        """The trial, confirmed if a longer replay may meet the SLO."""
        return self.confirmed(trial) if self.is_hopeful(trial) else trial

    def _count(self, trial: Trial, replays: int) -> None:
        self.replays += replays
        self.measured.append(trial)

    def _is_met(self, row: Row) -> bool:
        """Whether a longer replay meets the SLO, also in the mean of its samples."""
        return row.is_served and self.meets_slo(row) and mean_goodput(row) >= self.study.attain

    def has_time_for(self, replays: float) -> bool:
        """Whether so many more fit into the time that is left, as fast as those so far."""
        mean_s = self.deadline.spent_s / max(1, self.replays)
        return replays * SLOWER * mean_s <= self.deadline.left_s


def mean_goodput(row: Row) -> float:
    """Share of requests within the SLO, the mean over the seeds."""
    return fmean(seed.goodput or 0.0 for seed in row.metrics)


Score = Callable[[Trial], tuple[float, ...]]


def in_order(
    trials: Sequence[Trial], objective: Objective, *, on_short_traffic: bool = False
) -> list[Trial]:
    """Best first; of those that tie, the least complex, and of several such a confirmed one before
    others. Equal ones are in the order of the candidates, as their scores differ randomly.

    ``on_short_traffic``: compares confirmed trials as they were before, so with unconfirmed ones.
    """
    left, order, by_objective = list(trials), list[Trial](), score_of(objective)

    def score(trial: Trial) -> tuple[float, ...]:
        return by_objective(trial.on_short_traffic if on_short_traffic else trial)

    while left:
        *first, highest = max(map(score, left))
        best = [t for t in left if [*score(t)][:-1] == first]

        def preference(trial: Trial, highest: float = highest) -> tuple[object, ...]:
            candidate, reached = trial.candidate, score(trial)[-1]
            is_lower = reached < highest * (1 - EQUAL)
            return candidate.complexity, not trial.is_confirmed, is_lower, candidate.order

        near = [t for t in best if score(t)[-1] >= highest * (1 - TIE)]
        order.append(min(near, key=preference))
        left.remove(order[-1])
    return order


def score_of(objective: Objective) -> Score:
    """Higher is better; the first number counts first."""
    if objective is Objective.COST:
        return lambda trial: (-float(trial.candidate.gpus), trial.user_rate)
    if objective is Objective.THROUGHPUT:
        return lambda trial: (trial.row.scale, trial.user_rate)
    return lambda trial: (trial.user_rate,)
