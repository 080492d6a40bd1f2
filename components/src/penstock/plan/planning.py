"""The whole of `plan`: candidates, estimates, replays, the winner, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from penstock.errors import Problem, SimulationError
from penstock.manifests.deployment import Role
from penstock.plan import sensitivity
from penstock.plan.choose import RUNG, Ranked, best_of, in_order, rank, score_of, winner_of
from penstock.plan.deployments import Deployments, estimator, step_table
from penstock.plan.estimate import Estimator, Table
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.sensitivity import Comparison, Headroom, Miss
from penstock.plan.space import Candidate, Layout, candidates, layouts
from penstock.plan.traffic import Traffic, traffic_of
from penstock.plan.trials import Trial, Trials, TrialSpec, joined
from penstock.simulate.replay import Replays
from penstock.simulate.study import Row, Study
from penstock.workload.duration import (
    MAX_REPLAYED_REQUESTS,
    exceeds_plan_limit,
    for_means,
    for_steady_state,
    planned_requests,
    steady_state_requests,
)
from penstock.workload.load import LoadedWorkload

SEARCHED = 0.8  # share of the budget that the search may take
RUNNERS_UP = 4


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``base``: the load of the winner as a scale of the workload's. ``aggregated`` and ``split``
    are the best of their families, None where none holds, or none was seen to for want of replays
    (``too_few``, by whether it is disaggregated); ``excluded``: why layouts are out."""

    request: PlanRequest
    workload: LoadedWorkload
    winner: Trial
    aggregated: Trial | None
    disaggregated: Trial | None
    runners_up: tuple[Trial, ...]
    base: float
    headroom: Headroom
    sensitivity_rows: Mapping[str, Row | str]
    compared: Sequence[Comparison]
    considered: int
    replays: int
    excluded: Mapping[Layout, str]
    too_few: frozenset[bool] = frozenset()


@dataclass(frozen=True, kw_only=True)
class NoPlan:
    """Nothing meets the SLO. ``miss`` is None where the estimate gave no candidate a chance and
    none could be replayed; ``gpus``: the fewest that might do by the estimate, if any does;
    ``undecided``: whether some looked as if they held, and no replays were left to say."""

    request: PlanRequest
    workload: LoadedWorkload
    miss: Miss | None
    gpus: int | None
    excluded: Mapping[Layout, str]
    undecided: bool
    considered: int
    replays: int


def plan(
    request: PlanRequest,
    loaded: LoadedWorkload,
    replays: Replays,
    *,
    budget: int,
    attain: float,
    say: Callable[[str], None],
) -> Plan | NoPlan:
    """SimulationError where no layout holds the model, or none was measured."""
    space = prepare(request, loaded)
    if request.objective is Objective.THROUGHPUT and (most := space.most):
        # Near what is held: a slow workload's few requests, sped up, would not fill an engine.
        loaded, space = loaded.scaled(most), space.scaled(most)
    families = space.families()
    workload = space.bounded(loaded, families)
    _refuse_too_much(workload, 1.0)
    study = Study(workload=workload, replays=replays, attain=attain)
    share = int(budget * SEARCHED / max(1, sum(bool(f.candidates) for f in families)))
    searches = [Trials(study, Deployments(request), share, say) for _ in families]
    found = _searched(request, searches, families)
    trials = joined(searches, budget)
    if not any(found):
        return _no_plan(trials, space, workload)
    if request.objective is Objective.THROUGHPUT:
        most = max(trial.row.scale for family in found for trial in family)
        _refuse_too_much(workload, most * RUNG)  # nobody could be asked for more
    too_few = [
        is_disaggregated
        for is_disaggregated, search, some in zip((False, True), searches, found, strict=True)
        if not some
        and families[is_disaggregated].candidates
        and (search.undecided or request.objective is Objective.THROUGHPUT)
    ]
    return replace(_answered(trials, space, workload, *found), too_few=frozenset(too_few))


def _refuse_too_much(workload: LoadedWorkload, scale: float) -> None:
    if exceeds_plan_limit(workload.workload, scale):
        needed = planned_requests(workload.workload, scale)
        message = f"{needed:,} requests would be needed to see that load last"
        most = f"a plan replays at most {MAX_REPLAYED_REQUESTS:,} requests"
        fix = f"divide the load and --gpus alike: {most}"
        raise SimulationError(Problem(place=workload.name, message=message, fix=fix))


def _searched(
    request: PlanRequest, searches: Sequence[Trials], families: Sequence[Ranked]
) -> list[list[Trial]]:
    """Both families at once, each with replays of its own: neither's luck is the other's."""
    pool = ThreadPoolExecutor(len(families))
    try:
        asked = zip(searches, families, strict=True)
        return list(pool.map(lambda pair: best_of(pair[0], request, pair[1]), asked))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # the replays' end is theirs


@dataclass(frozen=True, kw_only=True)
class Space:
    """What may be chosen, and the estimate of it."""

    request: PlanRequest
    traffic: Traffic
    candidates: tuple[Candidate, ...]
    estimator: Estimator
    excluded: Mapping[Layout, str]

    def families(self) -> tuple[Ranked, Ranked]:
        """Aggregated, then disaggregated."""
        aggregated = [c for c in self.candidates if not c.is_disaggregated]
        disaggregated = [c for c in self.candidates if c.is_disaggregated]
        return (
            rank(aggregated, self.estimator, self.request),
            rank(disaggregated, self.estimator, self.request),
        )

    @property
    def most(self) -> float:
        """The highest load that the estimate has anybody hold, 0 if none."""
        slo = self.request.slo
        return max((self.estimator.capacity(c, slo) for c in self.candidates), default=0.0)

    def scaled(self, scale: float) -> Space:
        """Of ``scale`` times the traffic."""
        traffic, estimator = self.traffic.scaled(scale), self.estimator.scaled(scale)
        return replace(self, traffic=traffic, estimator=estimator)

    def bounded(self, loaded: LoadedWorkload, families: Sequence[Ranked]) -> LoadedWorkload:
        """The workload with as many requests as show a steady state, and no more.

        SimulationError where a trace has too few for the load that is asked of it.
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
        """Where the most load is sought a trace must fill the engines."""
        if self.request.objective is Objective.THROUGHPUT and recorded < needed:
            message = f"{recorded:,} requests; {needed:,} are needed to see the most load last"
            fix = "a longer trace, a drawn workload, or plan for cost or interactivity at a --load"
            raise SimulationError(Problem(place=loaded.name, message=message, fix=fix))

    def _request_s(self, families: Sequence[Ranked]) -> float:
        """A request, of the slower of the families' best by the estimate, at the load asked."""
        is_full = self.request.objective is Objective.THROUGHPUT
        found = []
        for family in families:
            for candidate in family.candidates[:1]:
                most = self.estimator.capacity(candidate, self.request.slo)
                found.append(self.estimator.at(candidate, most if is_full else min(1.0, most)))
        took = (one.ttft_ms + self.traffic.output * 1000 / one.user_rate for one in found if one)
        return max(took, default=0.0) / 1000


def prepare(request: PlanRequest, loaded: LoadedWorkload) -> Space:
    """SimulationError where no layout holds the model, or none was measured."""
    arrival = loaded.workload.arrival
    users = arrival.concurrency if arrival else None
    sampled = loaded.with_workload(for_means(loaded.workload))
    traffic = traffic_of(sampled.requests(0), users)
    # As wide as a split of the widest layout, which is asked of in both pools.
    probes = Deployments(replace(request, gpus=2 * request.gpus))
    table, excluded = step_table(probes, layouts(request), traffic)
    usable = [layout for layout in layouts(request) if layout not in excluded]
    if not usable:
        raise SimulationError(_none_usable(request, excluded))
    return Space(
        request=request,
        traffic=traffic,
        candidates=_known(candidates(request, usable), table),
        estimator=estimator(probes, table, traffic),
        excluded=excluded,
    )


def _none_usable(request: PlanRequest, excluded: Mapping[Layout, str]) -> Problem:
    """Layouts by what is wrong with them."""
    reasons: dict[str, list[str]] = {}
    for layout, why in excluded.items():
        reasons.setdefault(why, []).append(str(layout))
    said = "; ".join(f"{', '.join(some)}: {why}" for why, some in reasons.items())
    message = f"no worker of {request.model} can be planned on {request.gpu.name}: {said}"
    return Problem(message=message, fix="more or larger GPUs, or a model that was measured there")


def _known(found: Sequence[Candidate], table: Table) -> tuple[Candidate, ...]:
    def is_known(candidate: Candidate) -> bool:
        worker = Role.DECODE if candidate.is_disaggregated else Role.WORKER
        asked = [(candidate.worker.layout, worker)]
        asked += [(pool.layout, Role.PREFILL) for pool in candidate.prefill]
        return all(key in table for key in asked)

    return tuple(candidate for candidate in found if is_known(candidate))


def _answered(
    trials: Trials,
    space: Space,
    workload: LoadedWorkload,
    aggregated: Sequence[Trial],
    disaggregated: Sequence[Trial],
) -> Plan:
    request = space.request
    winner = winner_of([*aggregated, *disaggregated], request.objective)
    best_aggregated = aggregated[0] if aggregated else None
    best_disaggregated = disaggregated[0] if disaggregated else None
    others = in_order([*aggregated, *disaggregated], score_of(request.objective))
    runners_up = [trial for trial in others if trial is not winner][:RUNNERS_UP]
    base = winner.row.scale
    is_full = request.objective is Objective.THROUGHPUT
    ((_, deployment),) = trials.deployments.of([winner.candidate])
    pairs = []
    if best_aggregated and best_disaggregated:
        is_cost = request.objective is Objective.COST
        pair = best_disaggregated.candidate, best_aggregated.candidate
        if is_cost:  # who needs how many at another load is another plan's question
            pair = pair[0], sensitivity.widened(pair[1], pair[0].gpus)
        most = 1.0 if is_full else max(sensitivity.COMPARED)  # none holds more than the most
        pairs = sensitivity.compared(trials, *pair, base, by_gpus=is_cost, most=most)
    ask = sensitivity.broken if is_full else sensitivity.headroom
    held = ask(trials, winner.candidate, base)
    rows = sensitivity.sensitivity_rows(
        trials.study, deployment, base, shares_prefixes=request.shares_prefixes
    )
    return Plan(
        request=request,
        workload=workload,
        winner=winner,
        aggregated=best_aggregated,
        disaggregated=best_disaggregated,
        runners_up=tuple(runners_up),
        base=base,
        headroom=held,
        sensitivity_rows=rows,
        compared=pairs,
        considered=len(space.candidates),
        replays=trials.replays
        + sum(len(row.metrics) for row in rows.values() if isinstance(row, Row)),
        excluded=space.excluded,
    )


def _no_plan(trials: Trials, space: Space, workload: LoadedWorkload) -> NoPlan:
    """The best by the estimate is replayed, where the search found nothing worth a replay."""
    request, undecided = space.request, trials.undecided
    hopeful = sorted(
        space.candidates,
        key=lambda c: (-space.estimator.capacity(c, request.slo), -c.gpus, c.simplicity),
    )
    trials.of([TrialSpec(c) for c in hopeful[: sensitivity.NEAREST]])
    return NoPlan(
        request=request,
        workload=workload,
        miss=sensitivity.nearest_miss(trials, request.slo),
        gpus=_enough(space),
        excluded=space.excluded,
        undecided=undecided,
        considered=len(space.candidates),
        replays=trials.replays,
    )


def _enough(space: Space) -> int | None:
    """The fewest GPUs, doubled up to sixteenfold, with which the estimate meets the SLO."""
    for times in (2, 4, 8, 16):
        more = (_multiplied(candidate, times) for candidate in space.candidates)
        if any(space.estimator.capacity(c, space.request.slo) >= 1 for c in more):
            return space.request.gpus * times
    return None


def _multiplied(candidate: Candidate, times: int) -> Candidate:
    """The same pools with ``times`` as many workers."""
    prefill = tuple(replace(pool, replicas=pool.replicas * times) for pool in candidate.prefill)
    worker = replace(candidate.worker, replicas=candidate.worker.replicas * times)
    return replace(candidate, prefill=prefill, worker=worker)
