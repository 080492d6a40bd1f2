"""Analyses of the recommended graph: headroom, sensitivity to other traffic, disaggregation.

If no graph meets the SLO: how close the closest comes. The analyses use what the
search left of the replay budget; the sensitivity analysis adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from penstock.errors import InputError
from penstock.graph.slo import Slo
from penstock.plan.margin import PREDICTED, highest_factors, latencies
from penstock.plan.space import Candidate
from penstock.plan.trials import TIE, Trial, Trials, TrialSpec, mean_goodput
from penstock.simulate.model import Replayable
from penstock.simulate.study import SEEDS, Row
from penstock.workload.load import Change
from penstock.workload.request import double_inputs, without_shared_prefixes

STEPS_UP = (1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)  # scales of the headroom
STEPS_DOWN = (0.8, 0.64, 0.5, 0.4, 0.32, 0.25, 0.16, 0.1, 0.05)
COMPARED = (0.25, 0.5, 1.0, 2.0, 4.0)  # scales of the comparison with disaggregation
WORTH = 1 / (1 - TIE)  # factor of tokens/s per user from which disaggregation is worth it
LOOSER = 1.02
STEPS_LOOSER = 10  # from the share that must meet the SLO to all requests
OUT_OF_TIME = "the time limit was reached"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A disaggregated and an aggregated graph at one scale."""

    scale: float
    by_gpus: bool  # whether fewer GPUs count
    # None: no replay was left.
    disaggregated: Trial | None
    aggregated: Trial | None

    @property
    def is_met(self) -> bool:
        """Whether at least one of the replayed graphs meets the SLO."""
        return any(trial and trial.meets_slo for trial in (self.disaggregated, self.aggregated))

    @property
    def favors_disaggregated(self) -> bool | None:
        """Whether only the disaggregated graph meets the SLO, or both do and it is better: where
        GPUs count, with fewer of them, or faster with as many; else faster for a user. None: one
        was not replayed."""
        if self.disaggregated is None or self.aggregated is None:
            return None
        if not (self.disaggregated.meets_slo and self.aggregated.meets_slo):
            return self.disaggregated.meets_slo
        saved = self.aggregated.candidate.gpus - self.disaggregated.candidate.gpus
        fewer = saved if self.by_gpus else 0
        is_faster = self.disaggregated.user_rate > WORTH * self.aggregated.user_rate
        return fewer > 0 or (fewer == 0 and is_faster)


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """Scales above the planned one; None: none was found, or none was replayed."""

    sustained: float | None = None
    """Highest replayed scale above the planned one at which the SLO was met; null if none was."""
    failing: float | None = None
    """Lowest replayed scale at which the SLO was missed; null if none was."""


@dataclass(frozen=True, kw_only=True)
class Miss:
    """The candidate that comes closest to an SLO that none meets."""

    trial: Trial
    slo: Slo  # that the candidate meets at the planned scale; as requested if none is known
    scale: float | None  # at which it meets the requested SLO; None: at none


def headroom(trials: Trials, candidate: Candidate, scale: float) -> Headroom:
    """Which steps above ``scale`` meet the SLO.

    In a short replay, a queue that grows slowly may not show. So the highest step that meets the
    SLO is replayed longer; if that is costly, only a step that misses it is known.
    """
    met: list[tuple[float, Trial]] = []
    failing = None
    for step in STEPS_UP:
        trial = trials.trial_of(TrialSpec(candidate, scale=scale * step))
        if trial is None or not trial.meets_slo:
            failing = step if trial else None
            break
        met.append((step, trial))
    if trials.is_costly:
        return Headroom(failing=failing)
    for step, trial in reversed(met):
        if trials.confirmed(trial).meets_slo:
            return Headroom(sustained=step, failing=failing)
        failing = step
    return Headroom(failing=failing)


def known_headroom(trials: Trials, candidate: Candidate, scale: float) -> Headroom:
    """The headroom from the replays of a search for the highest ``scale``."""
    above = [
        trial.row.scale / scale
        for trial in trials.known
        if trial.candidate == candidate and trial.row.scale > scale and not trial.meets_slo
    ]
    return Headroom(failing=min(above, default=None))


def compared(
    trials: Trials,
    disaggregated: Candidate,
    aggregated: Candidate,
    base: float,
    *,
    by_gpus: bool,
    scales: Sequence[float] = COMPARED,
) -> list[Comparison]:
    """Compares two graphs at each of ``scales`` times ``base``, or until both miss the SLO.

    If few replays are left, those at ``base`` come first.
    """
    pair = disaggregated, aggregated

    def replayed(scale: float) -> dict[Candidate, Trial]:
        specs = [TrialSpec(candidate, scale=base * scale) for candidate in pair]
        return {trial.candidate: trial for trial in trials.of(specs)}

    if 1.0 in scales:
        replayed(1.0)
    comparisons: list[Comparison] = []
    for scale in scales:
        by_candidate = replayed(scale)
        pools, pool = map(by_candidate.get, pair)  # the disaggregated graph, and the other
        comparisons.append(
            Comparison(scale=scale, by_gpus=by_gpus, disaggregated=pools, aggregated=pool)
        )
        if pools and pool and not (pools.meets_slo or pool.meets_slo):
            break
    return comparisons


def widened(aggregated: Candidate, gpus: int) -> Candidate:
    """The candidate with as many workers as fit on ``gpus``, and at least one."""
    worker = aggregated.worker
    replicas = max(1, gpus // worker.layout.gpus)
    return replace(aggregated, worker=replace(worker, replicas=replicas))


@contextmanager
def in_background(*tasks: Callable[[], T]) -> Iterator[list[Future[T]]]:
    """Runs analyses at the same time as the block, which waits for their results: the headroom
    and the comparison need one or two replays at a time, which leaves processors idle."""
    pool = ThreadPoolExecutor(len(tasks))
    try:
        yield [pool.submit(task) for task in tasks]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # `Replays` ends what still runs


def sensitivity_rows(
    trials: Trials, deployment: Replayable, scale: float, *, shares_prefixes: bool
) -> Mapping[str, Row | str]:
    """The same graph under changed traffic, by what is changed; a text says why it was not
    replayed."""
    changes: dict[str, tuple[float, Change | None]] = {
        "input length × 2": (1.0, double_inputs),
        "scale × 1.5": (1.5, None),
    }
    if shares_prefixes:
        changes["no shared prefixes"] = (1.0, without_shared_prefixes)
    return {
        name: _changed_row(trials, deployment, scale * step, change)
        for name, (step, change) in changes.items()
    }


def loss_rows(trials: Trials, winner: Candidate, scale: float) -> Mapping[str, Row | str]:
    """The graph with one worker fewer, by the name of the worker's pool: the trials by which the
    search decided, so that the report cannot contradict it."""
    trials.left = max(trials.left, len(winner.losses))
    rows: dict[str, Row | str] = {}
    for name, candidate in winner.losses.items():
        trial = trials.trial_of(TrialSpec(candidate, scale=scale))
        if trial is not None:
            rows[name] = trials.surest(trial).row
        elif trials.deadline.is_over():
            rows[name] = OUT_OF_TIME
    return rows


def _changed_row(
    trials: Trials, deployment: Replayable, scale: float, change: Change | None = None
) -> Row | str:
    """Steady if it meets the SLO, unless replays are costly; of conversations, in which an overload
    shows late, as long as those that confirm a graph. A text says why it was not replayed."""
    if trials.deadline.is_over():
        return OUT_OF_TIME
    workloads = [trials.study.workload]
    if trials.complete is not None and trials.complete.workload.conversation:
        workloads.append(trials.complete)
    try:
        for loaded in workloads:
            workload = replace(loaded.at_scale(scale), change=change)
            study = replace(trials.study, seeds=1 if trials.is_costly else SEEDS, workload=workload)
            replay = partial(study.rows, [deployment], None)
            if not trials.is_costly:
                replay = partial(study.steady_rows, [deployment], None, trials.meets_slo)
            if (rows := trials.in_time(replay)) is None:
                return OUT_OF_TIME
            (row,) = rows
            if not trials.meets_slo(row):
                break
    except InputError as error:  # no request fits, or there are too many
        return error.problems[0].message
    return row


def nearest_miss(trials: Trials, slo: Slo) -> Miss | None:
    """The candidate that misses the SLO least, confirmed; None without trials at the planned
    scale."""
    if (best := closest(trials)) is None:
        return None
    best = trials.with_losses(trials.confirmed(best))
    possible = slo
    if best.losses.keys() == trials.losses_of(best.candidate).keys():
        for row in best.rows:
            possible = _met_by(trials, row, possible)
    return Miss(trial=best, slo=possible, scale=_lower(trials, best))


def closest(trials: Trials) -> Trial | None:
    """The trial at the planned scale that misses the SLO least; None without one."""
    tried = (trial for trial in trials.known if trial.row.scale == 1.0)
    return max(tried, key=nearness, default=None)


def nearness(trial: Trial) -> tuple[float, ...]:
    """A sort key: how near a trial that misses the SLO is to it. Losses are replayed only of a
    graph that otherwise meets it."""
    return bool(trial.losses), trial.goodput, trial.user_rate


def _lower(trials: Trials, best: Trial) -> float | None:
    for scale in STEPS_DOWN:
        trial = trials.trial_of(TrialSpec(best.candidate, scale=scale))
        if trial is None:
            return None
        if trial.meets_slo and trials.confirmed(trial).meets_slo:
            return scale
    return None


def _met_by(trials: Trials, row: Row, slo: Slo) -> Slo:
    """``slo`` with its missed parts loosened until enough requests meet all parts; as it is if
    they never do.

    With `--confidence`, at the upper end of the intervals; a part without one stays.
    """
    confidence, needed = trials.deployments.request.confidence, trials.study.attain
    factors = highest_factors(row, confidence) if confidence else PREDICTED
    for step in range(STEPS_LOOSER + 1):
        share = needed + (1 - needed) * step / STEPS_LOOSER
        reached = latencies(row, slo, share, factors)
        loosened = {part.field: max(limit, ms * LOOSER) for part, limit, ms in reached}
        possible = slo.model_copy(update=loosened)
        if mean_goodput(row.with_slo(possible)) >= needed:
            return possible
    return slo  # too many requests do not finish
