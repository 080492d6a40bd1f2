"""The steps of `plan`: candidates, estimates, replays, the winner, and its analyses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock.errors import ProblemKind, SimulationError
from penstock.plan import sensitivity
from penstock.plan.deployments import Deployments
from penstock.plan.evidence import surest_trials
from penstock.plan.prepare import Space, prepare
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.routing import routed
from penstock.plan.search import SCALE_STEP, Family, add_closest, best_of_family, search
from penstock.plan.sensitivity import Comparison, Headroom, Miss
from penstock.plan.space import Candidate, Layout
from penstock.plan.traffic import Traffic
from penstock.plan.trials import Deadline, Limit, Trial, Trials, in_order, score_of
from penstock.simulate.replay import Replays
from penstock.simulate.study import Row, Study
from penstock.simulate.working_set import WorkingSet, working_set
from penstock.text.numbers import count_of
from penstock.workload.duration import MAX_REPLAYED_REQUESTS, exceeds_plan_limit, planned_requests
from penstock.workload.load import LoadedWorkload

# CPU time of a replay, fitted to those of the requests in benchmarks/plan_cases.py.
PER_REQUEST_S, PER_INPUT_S, PER_OUTPUT_S = 0.25e-3, 4e-8, 1.5e-6  # the latter two for a token
COSTLY_S = 1.5  # of a replay; with more, one longer replay is better than several short ones
LONGEST_REPLAY_S = 5.0  # with more, a search replays a part of the workload
LEAST_REQUESTS = 2000  # of such a part
MOST_REPLAYS, FEWEST_REPLAYS = 80, 20  # of a search
SEARCH_S = 80.0  # of all replays of a search, on one core
Say = Callable[[str, int, int], None]
SEARCHED = 0.8  # share of the budget, and of the time, that the search may take
DECODING_SHARE = 0.15  # of the budget: replays of each family with and without a draft model
ANALYSES = 24  # replays that the analyses may take at least
RUNNERS_UP = 4
CONVERSATIONS = 4  # times those of a steady state, to confirm a graph


@dataclass(frozen=True, kw_only=True)
class Cost:
    replay_s: float

    @staticmethod
    def of(workload: LoadedWorkload, traffic: Traffic) -> Cost:
        """``workload``: as a search replays it."""
        requests, prompt = planned_requests(workload.workload, 1.0), traffic.cached + traffic.fresh
        tokens_s = PER_INPUT_S * prompt + PER_OUTPUT_S * traffic.output
        return Cost(replay_s=requests * (PER_REQUEST_S + tokens_s))

    @property
    def is_high(self) -> bool:
        """Whether one longer replay is better than several short ones."""
        return self.replay_s > COSTLY_S

    def affordable(self, workload: LoadedWorkload) -> LoadedWorkload:
        """A part of a trace or of conversations with which a search can compare graphs.

        The number of conversations grows at first, so a part has a lower load than the complete
        workload, which confirms a graph. Other requests are needed until they fill the engines.
        """
        spec = workload.workload
        requests = spec.requests if spec.trace else spec.fixed_requests
        has_parts = spec.trace is not None or spec.conversation is not None
        if requests is None or not has_parts or self.replay_s <= LONGEST_REPLAY_S:
            return workload
        part = max(LEAST_REQUESTS, round(requests * LONGEST_REPLAY_S / self.replay_s))
        return workload.with_workload(spec.with_requests(min(requests, part)))

    @property
    def replays(self) -> int:
        """The number of replays of a search, unless the user says how many."""
        return max(
            FEWEST_REPLAYS,
            min(MOST_REPLAYS, round(SEARCH_S / min(LONGEST_REPLAY_S, self.replay_s))),
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A graph that meets the SLO, and the reasons for it."""

    request: PlanRequest
    workload: LoadedWorkload  # as it was replayed
    complete: LoadedWorkload | None = None  # what confirmed the best graphs, if it is another
    winner: Trial
    # The best of each family; None: none met the SLO, or its search did not finish (`unfinished`).
    aggregated: Trial | None
    disaggregated: Trial | None
    runners_up: tuple[Trial, ...]
    base: float  # scale of the winner, relative to `workload`
    headroom: Headroom
    sensitivity_rows: Mapping[str, Row | str]
    losses: Mapping[str, Row | str]  # after the loss of a worker, by the name of its pool
    compared: Sequence[Comparison]
    # The best one that meets the SLO with speculative decoding if the winner has none, else without
    # it; None: none of those that were replayed.
    other_decoding: Trial | None = None
    considered: int  # candidates
    replays: int
    excluded: Mapping[Layout, str]  # layout → why
    routing: str = ""  # why the winner has its router settings
    # Why no graph of a family was replayed, by `is_disaggregated`.
    unreplayed: Mapping[bool, str] = field(default_factory=dict)
    # What ended the search of a family before a graph met the SLO, by `is_disaggregated`.
    unfinished: Mapping[bool, Limit] = field(default_factory=dict)
    is_late: bool = False  # whether the time limit ended the search or the analyses

    @property
    def frontends(self) -> int:
        """One more than the load needs: one serves while another is replaced."""
        load = self.winner.row.frontend_load
        return 1 + (load.needed if load else 1)

    @cached_property
    def working_set(self) -> WorkingSet | None:
        """The working set of the winner, which the text, the header and the JSON contain."""
        return working_set(self.winner.row, self.workload)


@dataclass(frozen=True, kw_only=True)
class NoPlan:
    """No graph meets the SLO."""

    request: PlanRequest
    workload: LoadedWorkload
    miss: Miss | None = None  # None: no candidate could be replayed
    gpus: int | None = None  # the fewest that are estimated to be enough; None: none are
    undecided: bool  # whether a limit ended the search before it was complete
    is_late: bool  # whether the time limit ended the search
    considered: int = 0
    replays: int = 0


def plan(
    request: PlanRequest,
    loaded: LoadedWorkload,
    replays: Replays,
    *,
    budget: int | None,
    attain: float,
    say: Say,
    measured: list[Trial] | None = None,
    deadline: Deadline | None = None,
) -> Plan | NoPlan:
    """``budget``: replays of the search, None for as many as it can afford; ``attain``: share of
    requests that must meet the SLO.

    ``say`` gets a text, and how many of how many replays at most were run. ``measured`` gets each
    trial as soon as it is measured, for a search that is interrupted.

    SimulationError if no layout fits the model, or none was measured.
    """
    say("computing the step times of each layout", 0, 0)
    deadline = deadline or Deadline()
    try:
        space = prepare(request, loaded, lambda: deadline.left_s)
    except SimulationError as error:
        if error.problems[0].kind is not ProblemKind.LATE:
            raise
        return NoPlan(request=request, workload=loaded, undecided=True, is_late=True)
    if request.objective is Objective.THROUGHPUT and (capacity := space.capacity):
        # Start near the maximum: the few requests of a slow workload would not fill an engine.
        loaded, space = loaded.scaled(capacity), space.scaled(capacity)
    ranked = space.families(attain)
    steady = space.workload(loaded, ranked)
    _require_replayable_length(steady, 1.0)
    cost = Cost.of(steady, space.traffic)
    workload = cost.affordable(steady)
    budget = cost.replays if budget is None else budget
    trials = Trials(
        study=Study(workload=workload, replays=replays, attain=attain),
        deployments=Deployments(request),
        left=budget,
        say=counted(say, budget, len(space.candidates)),
        deadline=deadline,
        share=SEARCHED,
        measured=[] if measured is None else measured,
        is_costly=cost.is_high,
        complete=complete_workload(loaded, steady),
    )
    families = search(trials, ranked)
    if not any(family.best for family in families):
        add_closest(trials, _by_estimate(space), families)
    trials.left, trials.share = max(trials.left, ANALYSES), 1.0
    winner, routing = routed(trials, families, budget)
    if winner is None:
        return _no_plan(trials, space, families)
    if request.objective is Objective.THROUGHPUT:
        highest = max(family.best.row.scale for family in families if family.best)
        _require_replayable_length(workload, highest * SCALE_STEP)  # no replay could show more
    other = _other_decoding(trials, winner, families, budget)
    result = _plan(trials, space, families, winner)
    return replace(result, routing=routing, other_decoding=other)


def complete_workload(loaded: LoadedWorkload, steady: LoadedWorkload) -> LoadedWorkload | None:
    """What confirms a graph: all requests of a trace, and many conversations, because an overload
    shows late: it delays their next turns, and so lowers the load. None: what the search has.

    ``steady``: the workload with the fewest requests that show a steady state.
    """
    if loaded.workload.trace is not None:
        return loaded
    sampled, needed = loaded.workload.fixed_requests, steady.workload.fixed_requests
    if loaded.workload.conversation is None or sampled is None or needed is None:
        return None
    requests = max(sampled, min(needed * CONVERSATIONS, MAX_REPLAYED_REQUESTS))
    return loaded.with_workload(loaded.workload.with_requests(requests))


def _unreplayed(space: Space, families: Sequence[Family]) -> dict[bool, str]:
    """Computes `Plan.unreplayed`."""
    why = {}
    for is_disaggregated, family in zip((False, True), families, strict=True):
        kind = "disaggregated" if is_disaggregated else "aggregated"
        if not any(c.is_disaggregated == is_disaggregated for c in space.candidates):
            why[is_disaggregated] = f"no {kind} graph is possible with these GPUs"
        elif not family.ranked.candidates and family.best is None:
            why[is_disaggregated] = (
                f"no {kind} graph was replayed, because all miss the SLO in an estimate"
            )
    return why


def counted(say: Say, budget: int, candidates: int) -> Callable[[str, int], None]:
    """Adds up the replays."""
    done = 0

    def count(result: str, replays: int) -> None:
        nonlocal done
        done += replays
        # Those of later steps are in addition to the budget.
        count = f"{done} of at most {budget}" if done <= budget else f"{done}"
        say(f"{count} replays: {result}", done, max(done, budget))

    say(f"replaying the best of {count_of(candidates, 'candidate')}", 0, budget)
    return count


def _require_replayable_length(workload: LoadedWorkload, scale: float) -> None:
    """Raise SimulationError if a replay would need too many requests."""
    if exceeds_plan_limit(workload.workload, scale):
        needed = planned_requests(workload.workload, scale)
        limit = f"more than the limit of {MAX_REPLAYED_REQUESTS:,}"
        message = f"{needed:,} requests are needed to show a steady state, {limit}"
        fix = "Divide --scale and --gpus by the same number"
        if workload.workload.conversation:
            fix += ", or shorten the pauses of the conversations (`think`)"
        raise SimulationError(message, place=workload.name, fix=f"{fix}.")


def _plan(trials: Trials, space: Space, families: Sequence[Family], winner: Trial) -> Plan:
    request = space.request
    aggregated, disaggregated = (family.best for family in families)
    objective = request.objective
    # Short replays that seem better were not confirmed.
    others = [
        trial
        for trial in surest_trials(trials.measured, objective)
        if trial.meets_slo and trial.candidate != winner.candidate
        if in_order([winner, trial], objective)[0] is winner
    ]
    base = winner.row.scale
    is_full = objective is Objective.THROUGHPUT
    ((_, deployment),) = trials.deployments.of([winner.candidate])
    find_headroom = sensitivity.known_headroom if is_full else sensitivity.headroom
    trials.say("headroom, sensitivity to other traffic", 0)
    with sensitivity.in_background(
        lambda: sensitivity.sensitivity_rows(
            trials, deployment, base, shares_prefixes=request.shares_prefixes
        ),
    ) as (changed,):
        losses = winner.losses or sensitivity.loss_rows(trials, winner.candidate, base)
        headroom = find_headroom(trials, winner.candidate, base)
        pairs = _compared(trials, disaggregated, aggregated, base)
        rows = changed.result()
    ended = {
        is_disaggregated: family.ended_by
        for is_disaggregated, family in zip((False, True), families, strict=True)
        if family.best is None and family.ranked.candidates and family.ended_by
    }
    return Plan(
        request=request,
        workload=trials.study.workload,
        complete=trials.complete,
        winner=winner,
        aggregated=aggregated,
        disaggregated=disaggregated,
        runners_up=tuple(in_order(others, objective)[:RUNNERS_UP]),
        base=base,
        headroom=headroom,
        sensitivity_rows=rows,
        losses=losses,
        compared=pairs,
        considered=len(space.candidates),
        replays=trials.replays
        + sum(len(row.metrics) for row in rows.values() if isinstance(row, Row)),
        excluded=space.excluded,
        unreplayed=_unreplayed(space, families),
        unfinished=ended,
        is_late=trials.deadline.is_over(SEARCHED),
    )


def _other_decoding(
    trials: Trials, winner: Trial, families: Sequence[Family], budget: int
) -> Trial | None:
    """Finds `Plan.other_decoding`. The search may have replayed none, so a smaller one follows, in
    addition to the budget."""
    request = trials.deployments.request
    if request.draft is None:
        return None
    for family in families:
        trials.left = int(budget * DECODING_SHARE)
        best_of_family(trials, family.ranked.only(drafts=not winner.candidate.drafts))
    surest = surest_trials(trials.measured, request.objective)
    met = [t for t in surest if t.meets_slo and t.candidate.drafts != winner.candidate.drafts]
    return max(met, key=score_of(request.objective), default=None)


def _compared(
    trials: Trials, disaggregated: Trial | None, aggregated: Trial | None, base: float
) -> Sequence[Comparison]:
    if disaggregated is None or aggregated is None:
        return []
    objective = trials.deployments.request.objective
    is_cost = objective is Objective.COST
    pair = disaggregated.candidate, aggregated.candidate
    if is_cost:  # the number of GPUs stays; other scales may need other numbers
        pair = pair[0], sensitivity.widened(pair[1], pair[0].gpus)
    # Nothing is above the maximum rate.
    scales: Sequence[float] = (1.0,) if trials.is_costly else sensitivity.COMPARED
    scales = tuple(scale for scale in scales if scale <= 1 or objective is not Objective.THROUGHPUT)
    return sensitivity.compared(trials, *pair, base, by_gpus=is_cost, scales=scales)


def _by_estimate(space: Space) -> list[Candidate]:
    """All candidates, the highest estimated capacity first."""
    capacity = space.estimator.required_capacity
    key = {c: (-capacity(c, space.request), -c.gpus, c.order) for c in space.candidates}
    return sorted(space.candidates, key=key.__getitem__)


def _no_plan(trials: Trials, space: Space, families: Sequence[Family]) -> NoPlan:
    request = space.request
    return NoPlan(
        request=request,
        workload=trials.study.workload,
        miss=sensitivity.nearest_miss(trials, request.slo),
        gpus=_enough_gpus(space),
        undecided=any(family.ended_by for family in families),
        is_late=trials.deadline.is_over(SEARCHED),
        considered=len(space.candidates),
        replays=trials.replays,
    )


def _enough_gpus(space: Space) -> int | None:
    """The fewest GPUs that are estimated to meet the SLO: 2, 4, 8 or 16 times the budget."""
    for times in (2, 4, 8, 16):
        more = (_multiplied(candidate, times) for candidate in space.candidates)
        if any(space.estimator.required_capacity(c, space.request) >= 1 for c in more):
            return space.request.gpus * times
    return None


def _multiplied(candidate: Candidate, times: int) -> Candidate:
    """The same pools with ``times`` as many workers."""
    prefill = tuple(replace(pool, replicas=pool.replicas * times) for pool in candidate.prefill)
    worker = replace(candidate.worker, replicas=candidate.worker.replicas * times)
    return replace(candidate, prefill=prefill, worker=worker)
