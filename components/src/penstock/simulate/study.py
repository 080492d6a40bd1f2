"""Deployments under a workload: replays of each seed, and the highest scale that meets the SLO."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from math import sqrt
from statistics import fmean, median
from typing import Any

from penstock.errors import InputError
from penstock.graph.slo import Slo
from penstock.simulate.frontend import FrontendLoad
from penstock.simulate.metrics import ReplayMetrics, replay_metrics, served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import (
    ADDED_INPUTS,
    FULL_INPUTS,
    SAMPLES,
    Job,
    Replays,
    as_trace,
    in_parallel,
)
from penstock.simulate.scaling import Scaling, scaling_of
from penstock.simulate.stages import (
    FIRST,
    REJECTED,
    Stage,
    overload_in,
    part_of,
    rates_in,
    rejected_in,
    stages_of,
)
from penstock.simulate.window import (
    MAX_GROWTH,
    Conversations,
    ServedRequest,
    Steadiness,
    least_steady,
)
from penstock.text.numbers import significant
from penstock.workload.duration import (
    exceeds_conversation_limit,
    exceeds_sample_limit,
    lengthened,
)
from penstock.workload.load import LoadedWorkload
from penstock.workload.request import Request

SEEDS = 3
DOUBLINGS = 10
BISECTIONS = 5
LONG = 5  # times as many requests: in a short replay a growing queue may not yet miss the SLO
STEPS_DOWN, STEP_DOWN = 12, 0.93
ENOUGH_FOR_ONE_SEED = 5000  # requests of a long replay, whose percentiles hardly differ by seed
DOUBLE = 2.0
LENGTHENINGS = 3  # of the traffic, to reach a steady state
Progress = Callable[[int, int], None]
Requests = tuple[Request, ...]
# Of each seed of a search, which replays many deployments with the same requests.
_trace_of = lru_cache(maxsize=SEEDS)(as_trace)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One deployment at one scale of the workload."""

    replayable: Replayable
    metrics: tuple[ReplayMetrics, ...]  # of each seed
    results: tuple[Mapping[str, Any], ...]  # of the replay, of each seed
    too_long: int = 0  # requests of the first seed that the engines refuse
    over_input_limit: int = 0  # those of them whose input is longer than a step
    scale: float = 1.0  # times the workload's arrival rate
    is_closed_loop: bool = False  # clients wait for responses, so that latency decides the rate
    stage: Stage | None = None  # of a ladder that the row describes; None: all of the traffic

    @property
    def is_first(self) -> bool:
        """Whether no earlier row describes the deployment."""
        return self.stage is None or self.stage.number == 0

    @property
    def named_by_stage(self) -> Row:
        """With the rate of the stage in the name, for a table."""
        return self.renamed(f"{self.replayable.name}, {self.stage}") if self.stage else self

    def by_stage(self, loaded: LoadedWorkload) -> list[Row]:
        """A row for each stage of a ladder, in which all requests count; else only this one."""
        stages = stages_of(loaded.workload)
        requests = [served_requests(result) for result in self.results] if stages else []
        return [self._of_stage(stage, requests) for stage in stages] or [self]

    def _of_stage(self, stage: Stage, requests: Sequence[Sequence[ServedRequest]]) -> Row:
        """``requests``: of each seed, those of all stages."""
        rejected = [rejected_in(result, stage) for result in self.results]
        parts = tuple(part_of(result, stage) for result in self.results)
        gpus, slo = self.replayable.gpus, self.replayable.slo
        metrics = tuple(
            replace(
                replay_metrics(
                    part,
                    gpus,
                    slo,
                    len(too_long),
                    counts_all_requests=True,
                    rates=rates_in(stage, part, served),
                ),
                steadiness=overload_in(stage, part, served),
            )
            for part, too_long, served in zip(parts, rejected, requests, strict=True)
        )
        return replace(
            self,
            metrics=metrics,
            results=parts,
            too_long=len(rejected[0]),
            over_input_limit=sum(rejected[0]),
            stage=stage,
        )

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """What the planner did, for each seed."""
        return tuple(scaling_of(result, self.replayable) for result in self.results)

    @property
    def gpus(self) -> float:
        """The average number of allocated GPUs, which only a planner changes."""
        if self.replayable.planner is None:
            return self.replayable.gpus
        return median(scaling.gpus(self.replayable) for scaling in self.scalings)

    @property
    def offered_rate(self) -> float:
        """Requests/s that arrive, whether or not the engines keep up; the median over the seeds."""
        pairs = zip(self.results, self.metrics, strict=True)
        return median(self._offered_rate(result, metrics) for result, metrics in pairs)

    def _offered_rate(self, result: Mapping[str, Any], metrics: ReplayMetrics) -> float:
        conversations = Conversations.in_result(result)
        if self.stage is not None:
            return self.stage.rate * (conversations.turns if conversations else 1.0)
        if conversations is not None:
            return conversations.rate
        arrivals: list[float] = result["requests"]["arrival_time_ms"]
        span_ms = max(arrivals) - min(arrivals)
        if self.is_closed_loop or not span_ms:
            return metrics.request_rate
        return (len(arrivals) - 1) / span_ms * 1000

    @property
    def overloads_frontends(self) -> bool:
        """Whether requests arrive faster than the frontends can serve them. Clients that wait for
        responses send fewer instead."""
        load = self.frontend_load
        return not self.is_closed_loop and load is not None and load.is_saturated

    def meets_slo(self, share: float) -> bool | None:
        """Whether at least ``share`` of the requests meet the SLO; None without one. Frontends that
        are overloaded delay all of them more and more, which the replay does not show."""
        if self.goodput is None:
            return None
        return self.goodput >= share and not self.overloads_frontends

    @property
    def frontend_load(self) -> FrontendLoad | None:
        """None if the frontends are not known."""
        if (frontends := self.replayable.frontends) is None:
            return None
        rate = self.offered_rate
        lengths = (
            fmean(self.results[0]["requests"][f"{what}_length"]) for what in ("input", "output")
        )
        return FrontendLoad(frontends=frontends, busy_cores=frontends.busy_cores(rate, *lengths))

    @property
    def requests(self) -> int:
        """The requests that the figures of a seed describe; those of the seed with the fewest."""
        return min(seed.requests for seed in self.metrics)

    def with_seeds_of(self, other: Row) -> Row:
        """The row with the seeds of another one of the same deployment too."""
        metrics, results = self.metrics + other.metrics, self.results + other.results
        return replace(self, metrics=metrics, results=results)

    def renamed(self, name: str) -> Row:
        return replace(self, replayable=replace(self.replayable, name=name))

    @property
    def steadiness(self) -> Steadiness | None:
        """The steadiness of the least steady seed; None if all requests count."""
        measured = [seed.steadiness for seed in self.metrics if seed.steadiness is not None]
        return least_steady(measured) if measured else None

    @property
    def is_steady(self) -> bool:
        """Whether the figures do not depend on the length of the run, or cover all of it."""
        return self.steadiness is None or self.steadiness.is_steady

    @property
    def is_served(self) -> bool:
        """Whether as many requests complete as arrive."""
        return self.steadiness is None or self.steadiness.is_served

    @property
    def goodput(self) -> float | None:
        shares = [seed.goodput for seed in self.metrics if seed.goodput is not None]
        return median(shares) if shares else None

    def with_slo(self, slo: Slo) -> Row:
        """The same replays judged by another SLO."""
        deployment = replace(self.replayable, slo=slo)
        gpus, too_long = deployment.gpus, self.too_long
        seeds = tuple(replay_metrics(result, gpus, slo, too_long) for result in self.results)
        return replace(self, replayable=deployment, metrics=seeds)


@dataclass(frozen=True, kw_only=True)
class SustainedLoad:
    """The highest scale at which a deployment meets the SLO."""

    highest: Row | None  # None: no scale was found at which it does
    lowest_failing: Row | None  # above `highest`; None: none was found
    rows: tuple[Row, ...]  # of every scale that was tried, in order of the scale


@dataclass(frozen=True, kw_only=True)
class Study:
    """Replays deployments under one workload."""

    workload: LoadedWorkload
    replays: Replays
    # Replays of each deployment. None: 3, and 1 if replays of the same trace do not differ.
    seeds: int | None = None
    attain: float = 0.95  # share of requests that must meet the SLO
    first_seed: int = 0  # of the sampled traffic
    # Counts the warm-up and the end too: pools that change have no steady state.
    counts_all_requests: bool = False

    def steady_rows(
        self,
        deployments: Sequence[Replayable],
        progress: Progress | None,
        is_promising: Callable[[Row], bool] | None = None,
    ) -> list[Row]:
        """The `rows`, with longer traffic for those that it leaves without a steady state.

        ``is_promising``: a row that is not stays as it is. To find such rows early, the traffic is
        doubled first. None: all are.
        """
        rows = self.rows(deployments, progress)
        return [self._lengthened(row, is_promising) for row in rows]

    def _lengthened(self, row: Row, is_promising: Callable[[Row], bool] | None) -> Row:
        """The row, or the first steady one with longer traffic. A trace, a ramp and a ladder
        stay as they are, and an overloaded deployment has no steady state."""
        loaded, before = self.workload, row.steadiness
        most = MAX_GROWTH if is_promising is None else DOUBLE
        for _ in range(LENGTHENINGS + (is_promising is not None)):
            if before is None or not (is_promising is None or is_promising(row)):
                break
            # Whether a promising row keeps up shows in a long window only.
            growth = before.growth if is_promising is None else before.full_growth
            longer = lengthened(loaded.workload, min(most, growth))
            if not longer:
                break
            most = MAX_GROWTH
            loaded = loaded.with_workload(longer)
            (row,) = replace(self, workload=loaded).rows([row.replayable], None)
            if row.steadiness and row.steadiness.is_overloaded(before):
                break
            before = row.steadiness
        return row

    def rows(self, deployments: Sequence[Replayable], progress: Progress | None) -> list[Row]:
        sampled = self._sampled(self.workload, deployments)
        jobs = [self._jobs(deployment, self.workload, sampled) for deployment in deployments]
        results = iter(
            self.replays.run([job for jobs_of_graph in jobs for job in jobs_of_graph], progress)
        )
        return [
            self._row(d, jobs_of_graph, list(islice(results, len(jobs_of_graph))))
            for d, jobs_of_graph in zip(deployments, jobs, strict=True)
        ]

    def sustained_loads(
        self, deployments: Sequence[Replayable], say: Callable[[str], None] | None = None
    ) -> list[SustainedLoad]:
        """One for each deployment; the searches are independent."""

        def load(deployment: Replayable) -> SustainedLoad:
            return _Search(self, deployment, say).run()

        return in_parallel(load, deployments, self.replays.processes)

    def at(self, deployment: Replayable, scale: float, repeat: int = 1) -> Row:
        """One deployment at ``scale`` times the rate, with traffic ``repeat`` times as long.

        Short replays of a search use one seed, and no more requests than select a scale. The long
        one that decides uses all seeds, unless it has enough requests.
        """
        loaded = self.workload.for_search(scale, repeat=repeat)
        study = self
        is_long = repeat > 1 and (loaded.workload.fixed_requests or 0) < ENOUGH_FOR_ONE_SEED
        if self.seeds is None and not is_long:
            study = replace(self, seeds=1)
        jobs = study._jobs(deployment, loaded, study._sampled(loaded, [deployment]))
        return replace(self._row(deployment, jobs, self.replays.run(jobs)), scale=scale)

    def meets(self, row: Row) -> bool:
        return bool(row.meets_slo(self.attain))

    def _seeds(self, deployment: Replayable) -> int:
        """A trace is the same for every seed, so that only a random router makes a difference."""
        is_sampled = self.workload.workload.trace is None
        return self.seeds or (SEEDS if is_sampled or deployment.is_random else 1)

    def _sampled(self, loaded: LoadedWorkload, deployments: Sequence[Replayable]) -> list[Requests]:
        """The requests of each seed, which all deployments share."""
        seeds = max(map(self._seeds, deployments))
        if loaded.workload.trace is not None:
            return [loaded.requests(0)] * seeds
        return [loaded.requests(self.first_seed + number) for number in range(seeds)]

    def _jobs(
        self, deployment: Replayable, loaded: LoadedWorkload, sampled: Sequence[Requests]
    ) -> list[Job]:
        return [
            self._job(deployment, loaded, self.first_seed + number, sampled[number])
            for number in range(self._seeds(deployment))
        ]

    def _row(
        self, deployment: Replayable, jobs: Sequence[Job], results: Sequence[Mapping[str, Any]]
    ) -> Row:
        results = [
            {
                **(job.conversations.added_to(result) if job.conversations else result),
                REJECTED: job.rejected,
                FIRST: job.first_ms,
            }
            for job, result in zip(jobs, results, strict=True)
        ]
        results = [deployment.frontend_time.added_to(result) for result in results]
        metrics = tuple(
            replay_metrics(
                result,
                scaling_of(result, deployment).gpus(deployment),
                deployment.slo,
                job.too_long,
                counts_all_requests=self.counts_all_requests,
            )
            for job, result in zip(jobs, results, strict=True)
        )
        return Row(
            replayable=deployment,
            metrics=metrics,
            results=tuple(results),
            too_long=jobs[0].too_long,
            over_input_limit=jobs[0].over_input_limit,
            is_closed_loop=jobs[0].concurrency is not None,
        )

    def _job(
        self, deployment: Replayable, loaded: LoadedWorkload, seed: int, sampled: Requests
    ) -> Job:
        fitting = [r for r in sampled if r.tokens <= deployment.context]
        requests = [r for r in fitting if not deployment.refuses_input(r.input_tokens)]
        if not requests:
            message, fix = _no_requests(deployment, sampled, fitting)
            raise InputError(message, file=loaded.requests_source, fix=fix)
        last_ms = max((r.at_ms or 0.0) for r in requests)
        conversation = loaded.workload.conversation
        # Without blocks, no request shares a prefix, not even with its own conversation.
        is_cached = bool(conversation and conversation.cached_output and requests[0].blocks)
        trace_format = ADDED_INPUTS if is_cached else FULL_INPUTS
        return Job(
            replayable=deployment,
            trace=_trace_of(deployment.frontend_time.later_turns(requests), trace_format),
            trace_format=trace_format,
            concurrency=loaded.workload.concurrency or None,
            sample_ms=max(100.0, last_ms / SAMPLES) if last_ms else 1000.0,
            seed=seed,
            first_ms=requests[0].at_ms or 0.0,
            rejected=tuple(_rejected(sampled, deployment)),
            conversations=Conversations.of(requests),
        )


def _rejected(requests: Sequence[Request], deployment: Replayable) -> Iterator[tuple[float, bool]]:
    """As `Job.rejected`; a later turn counts where its conversation starts."""
    at_ms = dict[str, float]()
    for request in requests:
        if request.at_ms is not None:
            at_ms[request.session] = request.at_ms
        is_fitting = request.tokens <= deployment.context
        if not is_fitting or deployment.refuses_input(request.input_tokens):
            yield at_ms[request.session], is_fitting


def _no_requests(
    deployment: Replayable, sampled: Sequence[Request], fitting: Sequence[Request]
) -> tuple[str, str]:
    """(message, fix) where no request is left to replay."""
    if not sampled:
        return "the workload has no requests", "Raise its rate or its duration."
    limit = deployment.input_limit
    if fitting and limit:
        message = (
            f"every input is longer than {limit.tokens} tokens, the step of {limit.pool} "
            f"({deployment.name}), and without chunked prefill the engine rejects it"
        )
        return message, f"Enable chunked prefill of {limit.pool}, or raise its tokens per step."
    message = f"every request is longer than the {deployment.context} tokens of {deployment.name}"
    return message, "Shorten the requests, or use a graph that accepts longer ones."


class _Search:
    """Finds the highest scale of one deployment: doubles or halves the scale until the SLO is met
    or missed, then bisects."""

    def __init__(
        self, study: Study, deployment: Replayable, say: Callable[[str], None] | None
    ) -> None:
        self._study = study
        self._deployment = deployment
        self._say = say
        self._rows: list[Row] = []

    def _meets(self, row: Row) -> bool:
        """Slow responses delay the next turns of conversations, so an overload may not show in the
        latencies."""
        is_conversation = self._study.workload.workload.conversation is not None
        return self._study.meets(row) and (row.is_served or not is_conversation)

    def run(self) -> SustainedLoad:
        low, high = self._bracket()
        for _ in range(BISECTIONS if low and high else 0):
            assert low is not None
            assert high is not None
            middle = self._at(sqrt(low.scale * high.scale))
            low, high = (middle, high) if self._meets(middle) else (low, middle)
        low, high = self._confirmed(low, high)
        rows = tuple(sorted(self._rows, key=lambda row: row.scale))
        return SustainedLoad(highest=low, lowest_failing=high, rows=rows)

    def _confirmed(self, low: Row | None, high: Row | None) -> tuple[Row | None, Row | None]:
        """The highest scale at which a long replay meets the SLO too."""
        for _ in range(STEPS_DOWN if low else 0):
            assert low is not None
            long = self._at(low.scale, LONG)
            if self._meets(long):
                return long, high
            low, high = replace(low, scale=low.scale * STEP_DOWN), long
        return None, high

    def _bracket(self) -> tuple[Row | None, Row | None]:
        """(the highest that meets the SLO, the lowest that misses it), within ten doublings."""
        row = self._at(1.0)
        step = 2.0 if self._meets(row) else 0.5
        for _ in range(DOUBLINGS):
            next_workload = self._study.workload.at_scale(row.scale * step).workload
            if exceeds_sample_limit(next_workload) or exceeds_conversation_limit(next_workload):
                break
            next_row = self._at(row.scale * step)
            if self._meets(next_row) != self._meets(row):
                return (row, next_row) if step > 1 else (next_row, row)
            row = next_row
        return (row, None) if step > 1 else (None, row)

    def _at(self, scale: float, repeat: int = 1) -> Row:
        row = self._study.at(self._deployment, scale, repeat)
        self._rows.append(row)
        if self._say:
            share = f"{row.goodput or 0.0:.0%} within the SLO"
            what = "frontends overloaded" if row.overloads_frontends else share
            self._say(f"{self._deployment.name}: scale × {significant(scale)}: {what}")
        return row
