"""Router settings of a plan, chosen by replays.

With other settings than Dynamo's, a graph may meet an SLO that it misses with the default. And the
settings of the winner are chosen on one part of the traffic and confirmed on another, as in `tune`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from penstock.errors import SimulationError
from penstock.plan.margin import ITL, latencies
from penstock.plan.request import Objective
from penstock.plan.search import Family, best_of, raised
from penstock.plan.space import Candidate, allowed
from penstock.plan.trials import TIE, Trial, Trials, in_order, score_of
from penstock.simulate.model import Replayable
from penstock.tune.report import recommendation
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings, grid
from penstock.tune.tuning import (
    MIN_REQUESTS,
    MIN_SEEDS,
    indifference,
    most_replays,
    parts_of,
    possible_hits_of,
    tune,
)

RESCUED = 2  # graphs that are tried with other settings
# Times the limit. Settings without a queue in the router divided the p90 of TTFT by up to 2.3
# (benchmarks/router_settings.py), so they cannot help a graph that is slower.
FARTHEST = 2.3
KEPT = "Dynamo's default settings"
LATE = "others were not tried; raise --time-limit"
TUNING_SHARE = 0.7  # of `--replays`: replays of the settings, in addition to it


def routed(trials: Trials, families: Sequence[Family], budget: int) -> tuple[Trial | None, str]:
    """The winner with its router settings, and why it has them; None: nothing meets the SLO.

    ``families``: the best of one is replaced by the same graph, or a better one, with other
    settings. ``budget``: replays of the search, which those of this step are in addition to.
    """
    objective = trials.deployments.request.objective
    met = in_order([family.best for family in families if family.best], objective)
    winner = met[0] if met else None
    if rescue := _rescue(trials, winner):
        trial, reason = rescue
    elif winner is None:
        return None, ""
    else:
        trial, reason = _tuned(trials, winner, budget)
        trial = _with_fewest(trials, trial)
    families[trial.candidate.is_disaggregated].best = trial
    return trial, reason


def _with_fewest(trials: Trials, winner: Trial) -> Trial:
    """The winner with one worker fewer, and again, as long as it meets the SLO, where the fewest
    GPUs count: with other router settings, or in replays that the search had no budget for."""
    if trials.deployments.request.objective is not Objective.COST:
        return winner
    fewer = allowed(list(winner.candidate.losses.values()), trials.deployments.request)
    trials.left = max(trials.left, len(fewer))
    better = best_of(trials, fewer, winner)
    return _with_fewest(trials, better) if better else winner


def _rescue(trials: Trials, winner: Trial | None) -> tuple[Trial, str] | None:
    """A graph that misses the SLO with Dynamo's router settings and meets it with another mode or
    other settings, which the text names.

    ``winner``: of those that meet it with the default, than which the graph must be better.
    """
    if trials.deployments.request.objective is Objective.THROUGHPUT:
        return None  # a graph that misses the SLO at one scale meets it at a lower one
    for missed in _near_misses(trials, winner)[:RESCUED]:
        candidates = [replace(missed.candidate, settings=settings) for settings in _without_queue()]
        # Of requests that are alike it distributes more evenly than the KV router.
        candidates.append(replace(missed.candidate, router="round-robin"))
        trials.left = max(trials.left, len(candidates))
        best = best_of(trials, candidates, winner)
        if best and (best.is_confirmed or not missed.is_confirmed):
            is_kv = best.candidate.router == "kv"
            how = str(best.candidate.settings) if is_kv else f"{best.candidate.router} mode"
            return best, (
                f"{how}: {best.goodput:.1%} of requests meet the SLO; in kv mode with Dynamo's "
                f"default settings, only {missed.goodput:.1%}"
            )
    return None


def _without_queue() -> Iterator[RouterSettings]:
    """Settings without a queue in the router: `tune` tries one only with the best of these."""
    return (
        settings
        for settings in grid()
        if settings != DYNAMO_DEFAULT and settings.queue_threshold is None
    )


def _near_misses(trials: Trials, winner: Trial | None) -> list[Trial]:
    """Trials at the planned scale that only miss the limits that depend on the router, nearest
    first, without those that would not replace the ``winner``."""
    request, attain = trials.deployments.request, trials.study.attain

    def is_near(trial: Trial) -> bool:
        if trial.row.scale != 1 or trial.meets_slo or trial.row.replayable.choices == 1:
            return False
        if not trial.row.replayable.router.is_tunable:
            return False
        reached = latencies(trial.row, request.slo, attain)
        return all(
            ms <= limit * (1 if part.name == ITL else FARTHEST) for part, limit, ms in reached
        )

    def would_win(trial: Trial) -> bool:
        return winner is None or in_order([winner, trial], request.objective)[0] is trial

    near = [trial for trial in trials.known if is_near(trial) and would_win(trial)]
    return sorted(near, key=lambda trial: (-trial.goodput, trial.candidate.order))


def _tuned(trials: Trials, winner: Trial, budget: int) -> tuple[Trial, str]:
    """The winner with the router settings that `tune` recommends for it, and why."""
    ((_, deployment),) = trials.deployments.of([winner.candidate])
    loaded = trials.study.workload.at_scale(winner.row.scale, min_requests=MIN_REQUESTS)
    indifferent = indifference(winner.row, possible_hits_of(winner.row, loaded))
    if why := _not_tunable(trials, deployment, budget, indifferent):
        return winner, f"{KEPT}: {why}"
    try:
        parts = parts_of(loaded, trials.study.replays, MIN_SEEDS)
    except SimulationError as error:  # a short trace
        return winner, f"{KEPT}: {error.problems[0].message}"
    tuning = trials.in_time(
        lambda: tune(
            deployment, parts, MIN_SEEDS, lambda text, *_: trials.say(f"router, {text}", 0)
        )
    )
    if tuning is None:
        return winner, f"{KEPT}: {LATE}"
    trials.replays += tuning.replays
    if not tuning.is_changed:
        return winner, recommendation(tuning)
    candidate = replace(winner.candidate, settings=tuning.recommended)
    trial = _replayed(trials, candidate, winner)
    if trial is None or not _is_as_good(trial, winner, trials.deployments.request.objective):
        missed = f"with {tuning.recommended}, the graph misses the SLO or is slower for users"
        return winner, f"{KEPT}: {missed}"
    return trial, recommendation(tuning)


def _not_tunable(trials: Trials, deployment: Replayable, budget: int, indifferent: str) -> str:
    """Why settings cannot make a difference, or are not tried; empty if they are tried."""
    if not deployment.router.is_tunable:
        return f"in {deployment.router.mode} mode, they have no effect"
    if deployment.choices == 1:
        return "no pool has two workers, so the router has no choice"
    if indifferent:
        return indifferent
    needed = most_replays(DYNAMO_DEFAULT, MIN_SEEDS)
    if needed > budget * TUNING_SHARE:
        return f"others were not tried; raise --replays to {ceil(needed / TUNING_SHARE)}"
    if not trials.has_time_for(needed):
        return LATE
    return ""


def _replayed(trials: Trials, candidate: Candidate, winner: Trial) -> Trial | None:
    """The trial of the candidate: at the winner's scale, or at the highest that meets the SLO."""
    scale = winner.row.scale
    if trials.deployments.request.objective is Objective.THROUGHPUT:
        return raised(trials, candidate, scale)
    return best_of(trials, [candidate])


def _is_as_good(trial: Trial, winner: Trial, objective: Objective) -> bool:
    """Whether it reaches the objective, within the margin of a tie."""
    score = score_of(objective)
    tuned, default = score(trial), score(winner)
    return tuned[:-1] >= default[:-1] and tuned[-1] >= default[-1] * (1 - TIE)
