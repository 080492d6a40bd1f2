"""The candidates of a request that can be estimated, and their estimates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from penstock.errors import Problem, SimulationError
from penstock.manifests.deployment import Role
from penstock.plan.deployments import Deployments, estimator, step_table
from penstock.plan.estimate import Estimator, Ranked, Table, rank
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.space import Candidate, Layout, allowed, candidates, layouts
from penstock.plan.traffic import Traffic, traffic_of
from penstock.text.numbers import count_of
from penstock.workload.duration import for_means, for_steady_state, steady_state_requests
from penstock.workload.load import LoadedWorkload


@dataclass(frozen=True, kw_only=True)
class Space:
    """The candidates and their estimates."""

    request: PlanRequest
    traffic: Traffic
    candidates: tuple[Candidate, ...]
    estimator: Estimator
    excluded: Mapping[Layout, str]

    def families(self, attain: float) -> tuple[Ranked, Ranked]:
        """The aggregated, then the disaggregated candidates. ``attain``: share of requests that
        must meet the SLO."""
        aggregated = [c for c in self.candidates if not c.is_disaggregated]
        disaggregated = [c for c in self.candidates if c.is_disaggregated]
        return (
            rank(aggregated, self.estimator, self.request, attain),
            rank(disaggregated, self.estimator, self.request, attain),
        )

    @property
    def capacity(self) -> float:
        """The highest scale at which a candidate is estimated to meet the SLO; 0 if none is."""
        capacities = (self.estimator.required_capacity(c, self.request) for c in self.candidates)
        return max(capacities, default=0.0)

    def scaled(self, scale: float) -> Space:
        """The same space for ``scale`` times the traffic."""
        traffic, estimator = self.traffic.scaled(scale), self.estimator.scaled(scale)
        return replace(self, traffic=traffic, estimator=estimator)

    def workload(self, loaded: LoadedWorkload, families: Sequence[Ranked]) -> LoadedWorkload:
        """The workload with as many requests as show a steady state, and no more.

        SimulationError if a trace has too few requests to search for the maximum rate.
        """
        workload, rate = loaded.workload, self.traffic.rate
        request_s = self._request_s(families)
        recorded = None
        if workload.trace is not None:
            recorded = len(loaded.requests(0))
            needed = steady_state_requests(workload, rate=rate, request_s=request_s)
            self._refuse_short_trace(loaded, recorded, needed)
        return loaded.with_workload(
            for_steady_state(workload, rate=rate, request_s=request_s, recorded=recorded)
        )

    def _refuse_short_trace(self, loaded: LoadedWorkload, recorded: int, needed: int) -> None:
        """A search for the maximum rate must fill the engines."""
        if self.request.objective is Objective.THROUGHPUT and recorded < needed:
            message = (
                f"{count_of(recorded, 'request')}; a search for the maximum rate needs {needed:,}"
            )
            fix = "Use a longer trace, a sampled workload, or --objective cost or interactivity."
            raise SimulationError(message, place=loaded.name, fix=fix)

    def _request_s(self, families: Sequence[Ranked]) -> float:
        """Estimated duration of a request in the slower of the best candidates of each family."""
        is_full = self.request.objective is Objective.THROUGHPUT
        estimates = []
        for family in families:
            for candidate in family.candidates[:1]:
                capacity = self.estimator.required_capacity(candidate, self.request)
                scale = capacity if is_full else min(1.0, capacity)
                estimates.append(self.estimator.at(candidate, scale))
        output = self.traffic.output
        durations = (
            estimate.ttft_ms + output * 1000 / estimate.user_rate
            for estimate in estimates
            if estimate
        )
        return max(durations, default=0.0) / 1000


def prepare(
    request: PlanRequest, loaded: LoadedWorkload, left_s: Callable[[], float] = lambda: inf
) -> Space:
    """SimulationError if no layout fits the model, or none was measured, for a trace without an
    arrival rate, and, of the kind LATE, when no time is left."""
    if loaded.is_at_once:
        message = "all requests arrive at once, so there is no rate to plan for"
        fix = "Use a trace with different arrival times."
        raise SimulationError(message, file=loaded.trace_source, fix=fix)
    sampled = loaded.with_workload(for_means(loaded.workload))
    # The engines reject longer ones of a trace.
    requests = [r for r in sampled.requests(0) if r.tokens <= request.context]
    traffic = traffic_of(requests, loaded.workload.concurrency or None)
    # Wide enough for a disaggregated graph with the widest layout in both pools.
    probes = Deployments(replace(request, gpus=2 * request.gpus))
    table, excluded = step_table(probes, layouts(request), traffic, left_s)
    usable = [layout for layout in layouts(request) if layout not in excluded]
    if not usable:
        raise SimulationError(_none_usable(request, excluded))
    return Space(
        request=request,
        traffic=traffic,
        candidates=_measured(allowed(candidates(request, usable), request), table),
        estimator=estimator(probes, table, traffic),
        excluded=excluded,
    )


def _none_usable(request: PlanRequest, excluded: Mapping[Layout, str]) -> Problem:
    """The problem that lists all layouts, grouped by the reason."""
    reasons: dict[str, list[str]] = {}
    for layout, why in excluded.items():
        reasons.setdefault(why, []).append(str(layout))
    text = "; ".join(f"{', '.join(layouts)}: {why}" for why, layouts in reasons.items())
    message = f"no worker of {request.model} can be planned on {request.gpu.name}: {text}"
    return Problem(message=message, fix="Use more or larger GPUs, or another model.")


def _measured(possible: Sequence[Candidate], table: Table) -> tuple[Candidate, ...]:
    def is_known(candidate: Candidate) -> bool:
        worker = Role.DECODE if candidate.is_disaggregated else Role.WORKER
        keys = [(candidate.worker.layout, worker)]
        keys += [(pool.layout, Role.PREFILL) for pool in candidate.prefill]
        return all(key in table for key in keys)

    return tuple(candidate for candidate in possible if is_known(candidate))
