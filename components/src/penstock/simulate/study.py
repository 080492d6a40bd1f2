"""Deployments under a workload: a replay for each and each seed, and the load that they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from math import sqrt
from statistics import median
from typing import Any

from penstock.errors import InputError, Problem
from penstock.simulate.metrics import ReplayMetrics, replay_metrics
from penstock.simulate.model import Replayable
from penstock.simulate.replay import SAMPLES, Job, Replays, as_trace
from penstock.simulate.scaling import Scaling, scaling_of
from penstock.workload.duration import exceeds_sample_limit
from penstock.workload.load import LoadedWorkload
from penstock.workload.request import Request

SEEDS = 3
DOUBLINGS = 10
BISECTIONS = 5
LONG = 5  # times as many requests, to see whether a load is held or only not yet lost
STEPS_BACK, BACK = 12, 0.93
Progress = Callable[[int, int], None]
Requests = tuple[Request, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One deployment under one load: ``metrics`` one a seed, ``answers`` the replays' own;
    ``too_long``: requests of the first seed that the engines refuse, ``beyond_step`` those of them
    whose prompt is longer than a step without chunked prefill; ``scale``: how many times as fast
    as the workload says."""

    replayable: Replayable
    metrics: tuple[ReplayMetrics, ...]
    answers: tuple[Mapping[str, Any], ...]
    too_long: int = 0
    beyond_step: int = 0
    scale: float = 1.0

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """What the planner did, for each seed."""
        return tuple(scaling_of(answer, self.replayable) for answer in self.answers)

    @property
    def gpus(self) -> float:
        """SustainedLoad on average, which changes with a planner alone."""
        if self.replayable.planner is None:
            return self.replayable.gpus
        return median(scaling.gpus(self.replayable) for scaling in self.scalings)

    @property
    def goodput(self) -> float | None:
        shares = [one.goodput for one in self.metrics if one.goodput is not None]
        return median(shares) if shares else None


@dataclass(frozen=True, kw_only=True)
class SustainedLoad:
    """``most``: the highest load found at which the SLO is met, None where it never is; ``broken``:
    the lowest one above it at which it is not, None where none was found. ``rows`` are all loads
    that were tried, in order."""

    most: Row | None
    broken: Row | None
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is asked of every deployment. ``seeds``: how many replays of each; None: three, but one
    where the same trace is replayed alike each time. ``is_whole``: figures over all requests, as
    where pools change and nothing is steady."""

    workload: LoadedWorkload
    replays: Replays
    seeds: int | None = None
    attain: float = 0.95
    is_whole: bool = False

    def rows(self, deployments: Sequence[Replayable], progress: Progress | None) -> list[Row]:
        drawn = self._drawn(self.workload, deployments)
        jobs = [self._jobs(deployment, self.workload, drawn) for deployment in deployments]
        answers = iter(self.replays.run([job for some in jobs for job in some], progress))
        return [
            self._row(d, some, list(islice(answers, len(some))))
            for d, some in zip(deployments, jobs, strict=True)
        ]

    def held(
        self, deployments: Sequence[Replayable], say: Callable[[str], None] | None = None
    ) -> list[SustainedLoad]:
        """For each the load that it holds; each is searched by itself."""
        pool = ThreadPoolExecutor(self.replays.processes)
        try:
            return list(pool.map(lambda d: _Search(self, d, say).run(), deployments))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # the replays' end is theirs

    def at(self, deployment: Replayable, scale: float, repeat: int = 1) -> Row:
        """One deployment with the workload sped up, and with ``repeat`` times the requests. A
        search asks often: only the long run, on which it settles, has more seeds than it must."""
        loaded = self.workload.at_scale(scale, repeat=repeat)
        study = self
        if repeat == 1 and self.seeds is None and not deployment.is_random:
            study = replace(self, seeds=1)
        jobs = study._jobs(deployment, loaded, study._drawn(loaded, [deployment]))
        return replace(self._row(deployment, jobs, self.replays.run(jobs)), scale=scale)

    def meets(self, row: Row) -> bool:
        return row.goodput is not None and row.goodput >= self.attain

    def _seeds(self, deployment: Replayable) -> int:
        """Each seed draws other traffic; a trace is one, which only the router's chance changes."""
        is_drawn = self.workload.workload.trace is None
        return self.seeds or (SEEDS if is_drawn or deployment.is_random else 1)

    def _drawn(self, loaded: LoadedWorkload, deployments: Sequence[Replayable]) -> list[Requests]:
        """The requests of each seed, alike for all deployments; a trace has one for all seeds."""
        seeds = max(map(self._seeds, deployments))
        if loaded.workload.trace is not None:
            return [loaded.requests(0)] * seeds
        return [loaded.requests(seed) for seed in range(seeds)]

    def _jobs(
        self, deployment: Replayable, loaded: LoadedWorkload, drawn: Sequence[Requests]
    ) -> list[Job]:
        seeds = range(self._seeds(deployment))
        return [self._job(deployment, loaded, seed, drawn[seed]) for seed in seeds]

    def _row(
        self, deployment: Replayable, jobs: Sequence[Job], answers: Sequence[Mapping[str, Any]]
    ) -> Row:
        metrics = tuple(
            replay_metrics(
                answer,
                scaling_of(answer, deployment).gpus(deployment),
                deployment.slo,
                job.too_long,
                is_whole=self.is_whole,
            )
            for job, answer in zip(jobs, answers, strict=True)
        )
        return Row(
            replayable=deployment,
            metrics=metrics,
            answers=tuple(answers),
            too_long=jobs[0].too_long,
            beyond_step=jobs[0].beyond_step,
        )

    def _job(
        self, deployment: Replayable, loaded: LoadedWorkload, seed: int, drawn: Requests
    ) -> Job:
        fitting = [r for r in drawn if r.input_tokens + r.output_tokens <= deployment.context]
        step = deployment.prompt_limit
        requests = [r for r in fitting if step is None or r.input_tokens <= step.tokens]
        if not requests:
            message, fix = _why_none(deployment, drawn, fitting)
            raise InputError(Problem(file=loaded.source, message=message, fix=fix))
        arrival = loaded.workload.arrival
        last_ms = max((r.at_ms or 0.0) for r in requests)
        return Job(
            replayable=deployment,
            trace=as_trace(requests),
            users=arrival.concurrency if arrival else None,
            sample_ms=max(100.0, last_ms / SAMPLES) if last_ms else 1000.0,
            seed=seed,
            too_long=len(drawn) - len(requests),
            beyond_step=len(fitting) - len(requests),
        )


def _why_none(
    deployment: Replayable, drawn: Sequence[Request], fitting: Sequence[Request]
) -> tuple[str, str]:
    """Message and fix, where no request is left to replay."""
    if not drawn:
        return "no request arrives", "raise its rate or its seconds"
    step = deployment.prompt_limit
    if fitting and step:
        message = (
            f"every prompt is longer than {step.tokens} tokens, the step of {step.pool} "
            f"({deployment.name}), which has no chunked prefill: the engine refuses them"
        )
        return message, f"enable chunked prefill of {step.pool}, or raise its tokens of a step"
    message = f"every request is longer than the {deployment.context} tokens of {deployment.name}"
    return message, "shorten them, or raise model.context_length"


class _Search:
    """The highest load of one deployment: doubled or halved until it turns, then bisected."""

    def __init__(
        self, study: Study, deployment: Replayable, say: Callable[[str], None] | None
    ) -> None:
        self._study = study
        self._deployment = deployment
        self._say = say
        self._rows: list[Row] = []

    def run(self) -> SustainedLoad:
        low, high = self._bracket()
        for _ in range(BISECTIONS if low and high else 0):
            assert low is not None
            assert high is not None
            middle = self._at(sqrt(low.scale * high.scale))
            low, high = (middle, high) if self._study.meets(middle) else (low, middle)
        low, high = self._confirmed(low, high)
        rows = tuple(sorted(self._rows, key=lambda row: row.scale))
        return SustainedLoad(most=low, broken=high, rows=rows)

    def _confirmed(self, low: Row | None, high: Row | None) -> tuple[Row | None, Row | None]:
        """The load that a long run holds too: in a short one a queue may have begun to grow, and
        nobody has missed anything yet."""
        for _ in range(STEPS_BACK if low else 0):
            assert low is not None
            long = self._at(low.scale, LONG)
            if self._study.meets(long):
                return long, high
            low, high = replace(low, scale=low.scale * BACK), long
        return None, high

    def _bracket(self) -> tuple[Row | None, Row | None]:
        """(the highest that holds, the lowest that does not), as far as ten doublings find them."""
        row = self._at(1.0)
        step = 2.0 if self._study.meets(row) else 0.5
        for _ in range(DOUBLINGS):
            further_workload = self._study.workload.at_scale(row.scale * step)
            if exceeds_sample_limit(further_workload.workload):
                break
            further = self._at(row.scale * step)
            if self._study.meets(further) != self._study.meets(row):
                return (row, further) if step > 1 else (further, row)
            row = further
        return (row, None) if step > 1 else (None, row)

    def _at(self, scale: float, repeat: int = 1) -> Row:
        row = self._study.at(self._deployment, scale, repeat)
        self._rows.append(row)
        if self._say:
            share = row.goodput or 0.0
            self._say(f"{self._deployment.name}: load × {scale:.2f}: {share:.0%} within the SLO")
        return row
