"""Splits traffic into a part that chooses settings and another that confirms them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from penstock.errors import Problem, SimulationError
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.study import Study
from penstock.workload.duration import MAX_REPLAYED_REQUESTS, steady_state_requests
from penstock.workload.load import LoadedWorkload
from penstock.workload.request import Request

CONFIRMATIONS = 2  # × the replays that choose: the bound of one ratio needs more than a ranking
MIN_REQUESTS = 200  # of a replay: half of them may be warm-up, and the p99 needs a hundred


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
    own, rate = workload.fixed_requests, workload.mean_rate
    if workload.conversation is None or own is None or rate is None:
        return loaded
    (row,) = Study(workload=loaded, replays=replays, seeds=1).rows([deployment], None)
    took = [one.e2e_ms for one in served_requests(row.results[0])]
    needed = steady_state_requests(workload, rate=rate, request_s=fmean(took or [0]) / 1000)
    requests = max(own, min(needed, MAX_REPLAYED_REQUESTS))
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
        raise SimulationError(Problem(file=loaded.source, message=message, fix=fix))
