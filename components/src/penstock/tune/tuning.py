"""The steps of `tune`: replays of settings, the best on one part, and their confirmation.

The traffic is split, so that no request that chooses settings confirms them. It is lengthened until
the figures are steady: in a short replay most requests find empty caches, with every setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log, sqrt
from statistics import fmean, median, stdev

from penstock.errors import SimulationError
from penstock.manifests.deployment import Role
from penstock.manifests.source import Source
from penstock.simulate.metrics import served_requests, steady_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.replayable import require_replayed_mode, router_problem
from penstock.simulate.study import Row, Study
from penstock.simulate.window import percentile
from penstock.simulate.working_set import possible_hits
from penstock.text.numbers import count_of
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
FINALISTS = 3  # settings that are confirmed: one may be the best of a part randomly
MIN_REQUESTS = 200  # of a replay: half of them may be warm-up, and the p99 needs a hundred
# Requests for each shared prefix: with 20, the first tenth of a replay, which is not measured, has
# used 86 % of the prefixes.
REQUESTS_PER_PREFIX = 20
TAIL_REQUESTS = 2000  # of which 20 are above the p99; with 500, its noise hid a gain of 1.8 ×
MOST_REQUESTS = 5000  # of a replay that is lengthened until it is steady: there are fifty of them
LATENCIES = ("ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms")  # the ratio is their geometric mean
# By how much a latency may be higher, unless more requests meet the SLO. Replays of the same
# settings differ by 4 %, and in the p99 by more.
MARGINS = {
    "ttft_p50_ms": ("TTFT p50", 0.1),
    "ttft_p90_ms": ("TTFT p90", 0.1),
    "ttft_p99_ms": ("TTFT p99", 0.25),
    "itl_p90_ms": ("ITL p90", 0.05),
}
SLO_MARGIN = 0.01  # the share of requests within the SLO may be lower by this
NEEDED = 1.03  # lower bound of the ratio, above which a change is recommended
TIE = 0.03  # of the ratio
QUEUED = 0.05  # share of the TTFT's p90 below which requests do not queue
MISSED = 0.05  # of all input tokens: possible prefix hits that are missed
# 95 % one-sided quantiles of Student's t by degrees of freedom; above ten, that of ten.
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
SMALLEST_MS = 1e-6
QUEUED_SETTINGS = 3  # the best settings are tried with a queue too
MIN_SEEDS, SEEDS, MAX_SEEDS = 2, 2, 20  # of the choice; fewer confirm with a useless bound
# Prefixes that are mostly shared, and long against the requests that run at once: see `hint_of`.
SHARED = 0.5
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


def with_enough_requests(
    loaded: LoadedWorkload, deployment: Replayable, replays: Replays
) -> LoadedWorkload:
    """The workload with so many requests that the caches have filled and a replay is steady with
    the settings of the graph or those of the hint, or with MOST_REQUESTS; a trace and a ramp are
    unchanged."""
    workload = loaded.workload
    sampled, rate = workload.fixed_requests, workload.mean_rate
    if sampled is None or rate is None:
        return loaded
    requests = max(sampled, TAIL_REQUESTS)
    if workload.system_prompts is not None:
        requests = max(requests, REQUESTS_PER_PREFIX * workload.system_prompts.count)
    if workload.conversation is not None:
        (row,) = Study(workload=loaded, replays=replays, seeds=1).rows([deployment], None)
        took = [request.e2e_ms for request in served_requests(row.results[0])]
        request_s = fmean(took or [0]) / 1000
        requests = max(requests, steady_state_requests(workload, rate=rate, request_s=request_s))
    requests = min(requests, max(sampled, MAX_REPLAYED_REQUESTS))
    settings = dict.fromkeys([settings_of(deployment), HINTED])
    candidates = [with_settings(deployment, each) for each in settings]
    while True:
        loaded = loaded.with_workload(workload.with_requests(requests))
        rows = Study(workload=loaded, replays=replays, seeds=SEEDS).rows(candidates, None)
        growth = min((row.steadiness.growth for row in rows if row.steadiness), default=1.0)
        longer = min(ceil(requests * growth), max(requests, MOST_REQUESTS))
        if longer == requests:
            return loaded
        requests = longer


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
        message = f"{what} {count_of(count, 'request')}; at least {MIN_REQUESTS} are needed"
        fix = "Use a longer trace, or raise `requests` of the workload."
        raise SimulationError(message, file=loaded.source, fix=fix)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Replays of one part of the traffic with these settings."""

    settings: RouterSettings
    row: Row

    @property
    def share(self) -> float | None:
        """Mean share of the requests within the SLO; None without an SLO."""
        shares = [seed.goodput for seed in self.row.metrics if seed.goodput is not None]
        return fmean(shares) if shares else None


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times higher the base's latencies are: above 1 is an improvement."""

    mean: float
    low: float | None  # 95 % lower bound over the seeds; None with a single one


def values(row: Row, name: str) -> list[float]:
    """The metric's value for each seed that has one."""
    return [float(v) for metrics in row.metrics if (v := getattr(metrics, name)) is not None]


def ratio_of(base: Trial, other: Trial, names: Sequence[str] = LATENCIES) -> Ratio:
    """The geometric mean over the metrics, and over the seeds that both have; 1 for a metric that
    they do not have."""
    by_metric = [
        [
            log(max(a, SMALLEST_MS) / max(b, SMALLEST_MS))
            for a, b in zip(values(base.row, name), values(other.row, name), strict=False)
        ]
        for name in names
    ]
    logs = [fmean(seed) for seed in zip(*by_metric, strict=False)]
    mean = fmean(logs or [0.0])
    if len(logs) < 2:
        return Ratio(mean=exp(mean), low=None)
    quantile = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1]
    return Ratio(mean=exp(mean), low=exp(mean - quantile * stdev(logs) / sqrt(len(logs))))


def share_gain(base: Trial, other: Trial) -> float:
    """By how much more of the requests meet the SLO; 0 without one."""
    if base.share is None or other.share is None:
        return 0.0
    return other.share - base.share


def exceeded(base: Trial, other: Trial) -> list[str]:
    """Margins that the other settings exceed, as clauses. Where more requests meet the SLO, no
    latency has a margin."""
    return list(_exceeded(base, other))


def _exceeded(base: Trial, other: Trial) -> Iterator[str]:
    gain = share_gain(base, other)
    if gain > SLO_MARGIN:
        return
    for name, (what, margin) in MARGINS.items():
        rise = 1 / ratio_of(base, other, [name]).mean - 1
        if rise > margin:
            yield f"{what} is {rise:.0%} higher"
    if gain < -SLO_MARGIN:
        yield f"{other.share:.1%} instead of {base.share:.1%} of requests are within the SLO"


def ranked(base: Trial, trials: Sequence[Trial]) -> list[Trial]:
    """Best first: within the margins, then those with the highest share of requests within the SLO
    (or one that hardly differs), then by the ratio."""
    highest = max((share_gain(base, trial) for trial in trials), default=0.0)

    def grade(trial: Trial) -> tuple[bool, bool, float]:
        is_lower = share_gain(base, trial) < highest - SLO_MARGIN
        return bool(exceeded(base, trial)), is_lower, -ratio_of(base, trial).mean

    return sorted(trials, key=grade)


def is_hopeful(base: Trial, trial: Trial) -> bool:
    """Whether it is better than the base by more than a tie."""
    has_gain = ratio_of(base, trial).mean > 1 + TIE or share_gain(base, trial) > SLO_MARGIN
    return has_gain and not exceeded(base, trial)


def indifference(row: Row, possible: float) -> str:
    """Why router settings make little difference, as a clause; empty where they may make one.
    ``possible``: as `possible_hits_of`."""
    queued = queue_share(row)
    missed = possible - row.metrics[0].prefix_hit_rate
    if queued >= QUEUED or missed >= MISSED:
        return ""
    return (
        f"requests hardly queue (p90 of the prefill queue time is {queued:.0%} of that of TTFT), "
        f"and possible prefix-cache hits are lost for at most {max(0.0, missed):.0%} of the input "
        "tokens"
    )


def possible_hits_of(row: Row, loaded: LoadedWorkload, seed: int = 0) -> float:
    """As `possible_hits`; prefill workers never have outputs."""
    conversation = loaded.workload.conversation
    is_aggregated = all(pool.role is not Role.PREFILL for pool in row.replayable.pools)
    with_outputs = is_aggregated and conversation is not None and conversation.cached_output
    return possible_hits(loaded.requests(seed), with_outputs=with_outputs)


def queue_share(row: Row) -> float:
    """The p90 of the prefill queue time as a share of the TTFT's p90."""
    shares = []
    for result in row.results:
        requests = steady_requests(result)
        queued = percentile([r.prefill_queue_ms for r in requests], 0.9)
        shares.append(queued / max(percentile([r.ttft_ms for r in requests], 0.9), SMALLEST_MS))
    return median(shares)


HINTED = RouterSettings(prefill_load_scale=8.0)


def hint_of(row: Row, shared: float) -> str:
    """Why the statistics of the traffic suggest `HINTED`; empty if they do not.

    Where most of the input is shared, Dynamo's default moves requests away from the worker that
    has their prefix: it weighs the blocks of each running request as high as blocks to prefill, and
    a running request has as many blocks as the prefix. ``shared``: as `possible_hits`.
    """
    if shared < SHARED or row.replayable.choices == 1:
        return ""
    steadiness = row.steadiness
    running = steadiness.offered_rate * steadiness.short_request_s if steadiness else 0.0
    return (
        f"{shared:.0%} of the input tokens are in prefixes that earlier requests had, and each of "
        f"{row.replayable.choices} workers runs about {running / row.replayable.choices:.1f} "
        "requests at a time. With prefill_load_scale 1, the router counts a running request as "
        "much as the prefill of such a prefix, so it sends requests to workers that do not have "
        "their prefix cached"
    )


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The best settings on traffic that did not choose them."""

    base: Trial
    finalists: tuple[Trial, ...]  # best first
    others: tuple[Trial, ...]  # Dynamo's default, if the graph has other settings

    @property
    def chosen(self) -> Trial:
        """Of the best and those that tie with it, the one with the fewest changes of Dynamo's
        defaults."""
        return min(self._best, key=lambda t: (len(t.settings.changes), t.settings))

    @property
    def tied(self) -> list[Trial]:
        """Finalists that are as good as the chosen one."""
        return [trial for trial in self._best if trial is not self.chosen]

    @property
    def _best(self) -> list[Trial]:
        best, *rest = self.finalists
        least = ratio_of(self.base, best).mean * (1 - TIE)
        tied = (t for t in rest if ratio_of(self.base, t).mean >= least)
        return [best, *(t for t in tied if is_hopeful(self.base, t))]

    @property
    def ratio(self) -> Ratio:
        return ratio_of(self.base, self.chosen)

    @property
    def exceeded(self) -> list[str]:
        return exceeded(self.base, self.chosen)

    @property
    def is_better(self) -> bool:
        """Whether the latencies are lower by more than the noise, or more requests meet the SLO."""
        low = self.ratio.low
        has_gain = low is not None and low > NEEDED
        return not self.exceeded and (has_gain or share_gain(self.base, self.chosen) > SLO_MARGIN)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What `tune` found."""

    deployment: Replayable
    parts: Parts
    base: Trial  # the graph's own settings
    trials: tuple[Trial, ...]  # of the choice part, best first, the base among them
    hint: str  # why the traffic suggests `HINTED`; empty if it does not
    possible_hits: float  # share of the input tokens that earlier requests had
    indifference: str  # why settings make little difference; empty where they may
    confirmation: Confirmation | None  # None: nothing was better than the graph's settings
    replays: int

    @property
    def recommended(self) -> RouterSettings:
        """The graph's own settings unless others were confirmed."""
        if self.confirmation is not None and self.confirmation.is_better:
            return self.confirmation.chosen.settings
        return self.base.settings

    @property
    def is_changed(self) -> bool:
        return self.recommended != self.base.settings


def tune(deployment: Replayable, parts: Parts, seeds: int, say: Say) -> Tuning:
    """``say`` gets a text, and how many of how many replays at most were run."""
    base_settings = settings_of(deployment)
    search = Search(deployment, say, most_replays(base_settings, seeds))
    fixed = list(dict.fromkeys([base_settings, DYNAMO_DEFAULT]))
    trials = search.chosen_from(parts.choice, fixed)
    base = trials[0]
    order = ranked(base, trials)
    confirmation = None
    if better := [trial for trial in order if is_hopeful(base, trial)][:FINALISTS]:
        compared = list(dict.fromkeys([*fixed, *(trial.settings for trial in better)]))
        current, *rest = search.replay(parts.confirmation, compared, "confirmation")
        best = [t for t in rest if t.settings in {trial.settings for trial in better}]
        confirmation = Confirmation(
            base=current,
            finalists=tuple(ranked(current, best)),
            others=tuple(trial for trial in rest if trial not in best),
        )
    possible = possible_hits_of(base.row, parts.choice.workload, parts.choice.first_seed)
    return Tuning(
        deployment=deployment,
        parts=parts,
        base=base,
        trials=tuple(order),
        hint=hint_of(base.row, possible),
        possible_hits=possible,
        indifference=indifference(base.row, possible),
        confirmation=confirmation,
        replays=search.done,
    )


def most_replays(base: RouterSettings, seeds: int) -> int:
    """The most replays of `tune` for a graph with ``base``."""
    fixed = 1 + (base != DYNAMO_DEFAULT)
    choice = len(_without_queue([base])) + QUEUED_SETTINGS * (len(QUEUES) - 1)
    return (choice + (fixed + FINALISTS) * CONFIRMATIONS) * seeds


def _without_queue(fixed: Sequence[RouterSettings]) -> list[RouterSettings]:
    """The settings of the first step, the hinted ones first."""
    known = [settings for settings in grid() if settings.queue_threshold is None]
    return list(dict.fromkeys([*fixed, HINTED, *known]))


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
            for trial in ranked(trials[0], trials)[:QUEUED_SETTINGS]
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
            text = f"{what}: {count_of(len(candidates), 'setting')}, {done} of {total} replays"
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
