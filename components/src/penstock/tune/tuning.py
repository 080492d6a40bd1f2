"""The steps of `tune`: replays of settings, the best on one part, and its confirmation.

The traffic is split, so that no request that chooses settings confirms them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import fmean, median, stdev

from penstock.errors import SimulationError
from penstock.manifests.source import Source
from penstock.simulate.metrics import served_requests, steady_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.replayable import require_replayed_mode, router_problem
from penstock.simulate.study import Row, Study
from penstock.simulate.window import percentile
from penstock.tune.settings import (
    DYNAMO_DEFAULT,
    QUEUES,
    RouterSettings,
    grid,
    settings_of,
    with_settings,
)
from penstock.workload.duration import MAX_REPLAYED_REQUESTS, steady_state_requests
from penstock.workload.load import LoadedWorkload
from penstock.workload.request import Request

CONFIRMATIONS = 2  # × the replays that choose: the bound of one ratio needs more than a ranking
MIN_REQUESTS = 200  # of a replay: half of them may be warm-up, and the p99 needs a hundred
METRIC = "ttft_p90_ms"
MARGIN = 0.05  # other latencies may be higher by this share: replays of one setting differ by 4 %
SLO_MARGIN = 0.01  # the share of requests within the SLO may be lower by this
NEEDED = 1.03  # lower bound of the ratio of the metric, above which a change is recommended
TIE = 0.01  # of the ratio
QUEUED = 0.05  # share of the TTFT's p90 below which requests do not queue
LIMITED = {"ttft_p99_ms": "TTFT p99", "itl_p90_ms": "ITL p90"}
# 95 % one-sided quantiles of Student's t by degrees of freedom; above ten, that of ten.
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
SMALLEST_MS = 1e-6
BEST = 3  # are tried with a queue
MIN_SEEDS, SEEDS, MAX_SEEDS = 2, 3, 20  # of the choice; fewer confirm with a useless bound
Say = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Parts:
    choice: Study
    confirmation: Study
    choice_name: str
    confirmation_name: str


def parts_of(loaded: LoadedWorkload, replays: Replays, seeds: int) -> Parts:
    """``seeds``: replays of the part that chooses, each of another sample of the traffic, or all of
    the first half of the trace.

    SimulationError if a part has too few requests.
    """
    study = Study(workload=loaded, replays=replays, seeds=seeds)
    confirming = CONFIRMATIONS * seeds
    if loaded.workload.trace is None:
        _require_enough(loaded, len(loaded.requests(0)), "the workload has")
        return Parts(
            choice=study,
            confirmation=replace(study, first_seed=seeds, seeds=confirming),
            choice_name=f"seeds 0 to {seeds - 1}",
            confirmation_name=f"seeds {seeds} to {seeds + confirming - 1}",
        )
    first, second = halves(loaded)
    for half in (first, second):
        _require_enough(loaded, len(half.requests(0)), "half of the trace has")
    return Parts(
        choice=replace(study, workload=first),
        confirmation=replace(study, workload=second, seeds=confirming),
        choice_name=f"first half of the trace, {seeds} replays",
        confirmation_name=f"second half of the trace, {confirming} replays",
    )


def with_enough_conversations(
    loaded: LoadedWorkload, deployment: Replayable, replays: Replays
) -> LoadedWorkload:
    """The workload with as many requests as make the number of concurrent conversations steady,
    estimated from one replay; other workloads unchanged."""
    workload = loaded.workload
    sampled, rate = workload.fixed_requests, workload.mean_rate
    if workload.conversation is None or sampled is None or rate is None:
        return loaded
    (row,) = Study(workload=loaded, replays=replays, seeds=1).rows([deployment], None)
    took = [request.e2e_ms for request in served_requests(row.results[0])]
    needed = steady_state_requests(workload, rate=rate, request_s=fmean(took or [0]) / 1000)
    requests = max(sampled, min(needed, MAX_REPLAYED_REQUESTS))
    return loaded.with_workload(workload.with_requests(requests))


def halves(loaded: LoadedWorkload) -> tuple[LoadedWorkload, LoadedWorkload]:
    """The first and the second half of the requests of a trace."""
    requests = loaded.requests(0)
    middle = len(requests) // 2
    return _only(loaded, requests[:middle]), _only(loaded, requests[middle:])


def _only(loaded: LoadedWorkload, requests: tuple[Request, ...]) -> LoadedWorkload:
    """The workload with these requests, of which the first arrives at 0."""
    begin = min((r.at_ms for r in requests if r.at_ms is not None), default=0.0)
    moved = tuple(r if r.at_ms is None else replace(r, at_ms=r.at_ms - begin) for r in requests)
    return replace(loaded, change=lambda _: moved)


def _require_enough(loaded: LoadedWorkload, count: int, what: str) -> None:
    if count < MIN_REQUESTS:
        message = f"{what} {count} requests; at least {MIN_REQUESTS} are needed"
        fix = "Use a longer trace, or raise `requests` of the workload."
        raise SimulationError(message, file=loaded.source, fix=fix)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Replays of one part of the traffic with these settings."""

    settings: RouterSettings
    row: Row


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times higher the base's metric is: above 1 is an improvement."""

    mean: float
    low: float | None  # 95 % lower bound over the seeds; None with a single one


def values(row: Row, name: str) -> list[float]:
    """The metric's value for each seed that has one."""
    return [float(v) for metrics in row.metrics if (v := getattr(metrics, name)) is not None]


def ratio_of(base: Trial, other: Trial, name: str = METRIC) -> Ratio:
    """The geometric mean over the seeds that both have; 1 for a metric that they do not have."""
    pairs = zip(values(base.row, name), values(other.row, name), strict=False)
    logs = [log(max(a, SMALLEST_MS) / max(b, SMALLEST_MS)) for a, b in pairs]
    mean = fmean(logs or [0.0])
    if len(logs) < 2:
        return Ratio(mean=exp(mean), low=None)
    quantile = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1]
    return Ratio(mean=exp(mean), low=exp(mean - quantile * stdev(logs) / sqrt(len(logs))))


def exceeded(base: Trial, other: Trial) -> list[str]:
    """Margins that the other settings exceed, as clauses."""
    return list(_exceeded(base, other))


def _exceeded(base: Trial, other: Trial) -> Iterator[str]:
    for name, what in LIMITED.items():
        rise = 1 / ratio_of(base, other, name).mean - 1
        if rise > MARGIN:
            yield f"{what} is {rise:.0%} higher"
    shares = [_share(trial, base) for trial in (base, other)]
    if shares[0] is not None and shares[1] is not None and shares[1] < shares[0] - SLO_MARGIN:
        yield f"{shares[1]:.1%} instead of {shares[0]:.1%} of requests are within the SLO"


def _share(trial: Trial, base: Trial) -> float | None:
    """Mean share of requests within the SLO, over the seeds that both have."""
    count = min(len(trial.row.metrics), len(base.row.metrics))
    shares = [
        metrics.goodput for metrics in trial.row.metrics[:count] if metrics.goodput is not None
    ]
    return fmean(shares) if shares else None


def ranked(base: Trial, trials: Sequence[Trial]) -> list[Trial]:
    """Best first: within the margins, then by the ratio."""
    return sorted(
        trials, key=lambda trial: (bool(exceeded(base, trial)), -ratio_of(base, trial).mean)
    )


def best_of(base: Trial, trials: Sequence[Trial]) -> Trial:
    """The best within the margins; of equal ones the one that changes fewest of Dynamo's defaults.

    The base is always among them.
    """
    allowed = [base, *(trial for trial in trials if not exceeded(base, trial))]
    highest = max(ratio_of(base, trial).mean for trial in allowed)
    equal = [t for t in allowed if ratio_of(base, t).mean >= highest * (1 - TIE)]
    return min(equal, key=lambda t: (t is not base, len(t.settings.changes), t.settings.order))


def queue_share(row: Row) -> float:
    """The p90 of the prefill queue time as a share of the TTFT's p90."""
    shares = []
    for result in row.results:
        requests = steady_requests(result)
        queued = percentile([r.prefill_queue_ms for r in requests], 0.9)
        shares.append(queued / max(percentile([r.ttft_ms for r in requests], 0.9), SMALLEST_MS))
    return median(shares)


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The chosen settings on traffic that did not choose them."""

    base: Trial
    chosen: Trial
    others: tuple[Trial, ...]  # Dynamo's default, if the graph has other settings

    @property
    def ratio(self) -> Ratio:
        return ratio_of(self.base, self.chosen)

    @property
    def exceeded(self) -> list[str]:
        return exceeded(self.base, self.chosen)

    @property
    def is_better(self) -> bool:
        low = self.ratio.low
        return low is not None and low > NEEDED and not self.exceeded


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What `tune` found."""

    deployment: Replayable
    parts: Parts
    base: Trial  # the graph's own settings
    trials: tuple[Trial, ...]  # of the choice part, best first, the base among them
    chosen: Trial
    confirmation: Confirmation | None  # None: nothing was better than the graph's settings
    replays: int

    @property
    def recommended(self) -> RouterSettings:
        """The graph's own settings unless others were confirmed."""
        comparison = self.confirmation
        return self.chosen.settings if comparison and comparison.is_better else self.base.settings

    @property
    def is_changed(self) -> bool:
        return self.recommended != self.base.settings

    @property
    def queues(self) -> bool:
        """Whether requests wait for prefill with the graph's settings."""
        return queue_share(self.base.row) >= QUEUED


def tune(deployment: Replayable, parts: Parts, seeds: int, say: Say) -> Tuning:
    """``say`` gets a text, and how many of how many replays at most were run."""
    base_settings = settings_of(deployment)
    search = Search(deployment, say, most_replays(base_settings, seeds))
    fixed = list(dict.fromkeys([base_settings, DYNAMO_DEFAULT]))
    trials = search.chosen_from(parts.choice, fixed)
    base = trials[0]
    chosen = best_of(base, trials[1:])
    confirmation = None
    if chosen is not base:
        compared = list(dict.fromkeys([base_settings, chosen.settings, *fixed]))
        current, best, *rest = search.replay(parts.confirmation, compared, "confirmation")
        confirmation = Confirmation(base=current, chosen=best, others=tuple(rest))
    return Tuning(
        deployment=deployment,
        parts=parts,
        base=base,
        trials=tuple(ranked(base, trials)),
        chosen=chosen,
        confirmation=confirmation,
        replays=search.done,
    )


def most_replays(base: RouterSettings, seeds: int) -> int:
    """The most replays of `tune` for a graph with ``base``."""
    fixed = 1 + (base != DYNAMO_DEFAULT)
    choice = len(_without_queue([base])) + BEST * (len(QUEUES) - 1)
    return (choice + (fixed + 1) * CONFIRMATIONS) * seeds


def _without_queue(fixed: Sequence[RouterSettings]) -> list[RouterSettings]:
    """The settings of the first step."""
    known = [settings for settings in grid() if settings.queue_threshold is None]
    return list(dict.fromkeys([*fixed, *known]))


@dataclass
class Search:
    """Replays settings, and counts the replays."""

    deployment: Replayable
    say: Say
    most: int  # replays in total
    done: int = 0

    def chosen_from(self, study: Study, fixed: Sequence[RouterSettings]) -> list[Trial]:
        """Trials of every scale and credit, then of queues for the best of them.

        Those of ``fixed`` come first. All have all seeds: when a single seed chose the finalists,
        one of four benchmark cases lost 28 % against the complete grid.
        """
        trials = self.replay(study, _without_queue(fixed), "choice")
        known = {trial.settings for trial in trials}
        queued = [
            replace(trial.settings, queue_threshold=threshold, queue_policy=policy)
            for trial in ranked(trials[0], trials)[:BEST]
            for threshold, policy in QUEUES
        ]
        new = [settings for settings in dict.fromkeys(queued) if settings not in known]
        return trials + self.replay(study, new, "choice")

    def replay(self, study: Study, candidates: Sequence[RouterSettings], what: str) -> list[Trial]:
        """The trials of the settings, in order."""
        deployments = [with_settings(self.deployment, settings) for settings in candidates]
        begun = self.done

        def progress(done: int, total: int) -> None:
            self.done = begun + done
            text = f"{what}: {len(candidates)} settings, {done} of {total} replays"
            self.say(text, self.done, max(self.done, self.most))

        rows = study.rows(deployments, progress)
        return [Trial(settings=s, row=row) for s, row in zip(candidates, rows, strict=True)]


def require_tunable(deployment: Replayable, source: Source) -> None:
    """SimulationError for a router without these settings, or without workers to choose from."""
    require_replayed_mode(deployment, source)
    if not deployment.router.is_tunable:
        mode = deployment.router.mode
        message = f"{mode} has no settings to tune"
        raise SimulationError(router_problem(source, message, "Set the router mode to kv."))
    if deployment.choices == 1:
        message = f"{deployment.shape}: no pool has two workers, so the router has no choice"
        fix = "Set `replicas` of a pool to 2 or more."
        file = source.loaded.source if source.loaded else ""
        raise SimulationError(message, file=file, fix=fix)
