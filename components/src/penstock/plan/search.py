"""Which candidates are replayed, and which one wins.

The estimate ranks the candidates. Short replays compare the first ones of different shapes, longer
replays confirm the best, and the graphs that differ from it in one step follow. Aggregated and
disaggregated candidates are searched separately, so that the best of both are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log

from penstock.plan.estimate import Ranked
from penstock.plan.evidence import neighbors
from penstock.plan.request import Objective
from penstock.plan.sensitivity import closest
from penstock.plan.space import Candidate, allowed
from penstock.plan.trials import Limit, Trial, Trials, TrialSpec, in_order

# Shapes that are replayed first: for the fewest GPUs, of each number of GPUs; and if replays are
# costly.
GROUP, COSTLY_GROUP, FASTEST = 4, 3, 16
LAST_GROUP, COSTLY_LAST = 15, 6  # shapes of the lowest number of GPUs, and of the one below
ENOUGH = 0.95  # estimated capacity, with which a search for the fewest GPUs begins
FEWER = 3  # lower numbers of GPUs that miss the SLO, after which the search ends
MOST_CONFIRMED = 4  # longer replays of a group
NEIGHBORS, ROUNDS = 12, 3  # graphs that differ from the best in one step, and how often
SCALE_STEP = 1.05  # scales of the search for throughput are powers of it
CLIMB = 4  # exponents of the first step up, which is halved until 1
FALLS = (0, 6, 14, 28)  # exponents below the estimated scale, at which a climb may start
STEPS_DOWN = 8  # exponents, until a longer replay meets the SLO
FINALISTS = 2
BATCH = 4
CLOSEST = 8  # candidates that are replayed at a time to see how far they miss the SLO
CLOSER = 3  # steps to a graph that is closer to the SLO, if none meets it


@dataclass
class Family:
    """The aggregated or the disaggregated candidates."""

    ranked: Ranked
    best: Trial | None = None  # None: none met the SLO
    ended_by: Limit | None = None  # what ended its search


def search(trials: Trials, ranked: Sequence[Ranked]) -> list[Family]:
    """The best of each family; half of the replays are for each."""
    families = [Family(each) for each in ranked]
    total = trials.left
    for at, family in enumerate(families):
        later = [each for each in families[at + 1 :] if each.ranked.candidates]
        kept = total // 2 if later else 0
        trials.left, trials.ended_by = trials.left - kept, None
        family.best = best_of_family(trials, family.ranked)
        family.ended_by = trials.ended_by
        trials.left += kept
    if _objective(trials) is Objective.COST:
        _searched_to_the_end(trials, families)
    return families


def best_of_family(trials: Trials, ranked: Ranked) -> Trial | None:
    """The best confirmed trial; None if none meets the SLO."""
    objective = _objective(trials)
    if objective is Objective.THROUGHPUT:
        return highest_scale(trials, ranked)
    if objective is Objective.COST:
        best = _cheapest(trials, ranked)
    else:
        best = best_of(trials, ranked.shapes[:FASTEST])
    return improved(trials, best, ranked) if best else None


def best_of(
    trials: Trials, candidates: Sequence[Candidate], better_than: Trial | None = None
) -> Trial | None:
    """The best of those that meet the SLO in a longer replay; None if none does, or none is better
    than another trial."""
    objective, known = _objective(trials), [better_than] if better_than else []
    is_cost = objective is Objective.COST
    left = [t for t in trials.of([TrialSpec(c) for c in candidates]) if trials.is_hopeful(t)]
    for _ in range(MOST_CONFIRMED):
        # Those that nearly met the SLO only if none met it.
        hopeful = [t for t in left if t.meets_slo] or left
        # Users are slower in a longer replay. That is compared only if it is the objective.
        first = in_order([*known[:1], *hopeful], objective, on_short_traffic=is_cost)[:1]
        if first == known[:1]:
            break
        left.remove(first[0])
        longer = trials.confirmed(first[0])
        if longer.meets_slo:
            known = in_order([*known, longer], objective)
    return known[0] if known and known[0] is not better_than else None


def _cheapest(trials: Trials, ranked: Ranked) -> Trial | None:
    """Starts at the estimated number of GPUs. If no graph with it meets the SLO, the highest number
    follows, and bisection; then lower ones, which the estimate may exclude wrongly."""
    groups, last = ranked.by_gpus, len(ranked.by_gpus) - 1
    size = COSTLY_GROUP if trials.is_costly else GROUP

    def best_at(number: int) -> Trial | None:
        return best_of(trials, groups[number][:size])

    enough = (n for n, group in enumerate(groups) if ranked.capacity[group[0]] >= ENOUGH)
    number = next(enough, last)
    best = best_at(number) if groups else None
    if best is None and groups:
        missed, number = number, last
        best = best_at(last) or best_of(trials, groups[last][:LAST_GROUP])
        while best and number - missed > 1:
            middle = (missed + number) // 2
            if lower := best_at(middle):
                best, number = lower, middle
            else:
                missed = middle
    misses = 0
    while best and number and misses < FEWER:
        number -= 1
        lower = best_at(number)
        best, misses = (lower, 0) if lower else (best, misses + 1)
    return best


def _searched_to_the_end(trials: Trials, families: Sequence[Family]) -> None:
    """Replays more shapes of both families with as many GPUs as the best has, and with the next
    lower number, so that none wins because its family was searched further."""
    size = COSTLY_LAST if trials.is_costly else LAST_GROUP
    before = None
    while before != (least := _fewest_gpus(families)):
        before = least
        for family in families:
            enough = [g for g in family.ranked.by_gpus if g[0].gpus <= (least or 0)]
            for group in reversed(enough[-2:]):
                family.best = best_of(trials, group[:size], family.best) or family.best


def _fewest_gpus(families: Sequence[Family]) -> int | None:
    return min((f.best.candidate.gpus for f in families if f.best), default=None)


def improved(trials: Trials, best: Trial, ranked: Ranked) -> Trial:
    """The best after graphs that differ from it in one step, and then from the better one."""
    for _ in range(ROUNDS):
        near = _near(trials, best, ranked)
        better = best_of(trials, near, best)
        if better is None:
            break
        best = better
    return best


def _near(trials: Trials, best: Trial, ranked: Ranked) -> list[Candidate]:
    """Graphs that differ from the best in one step, the most promising first. Where the fewest GPUs
    count, also those with one worker fewer that the estimate excludes."""
    near = list(neighbors(best.candidate, ranked.candidates))
    if _objective(trials) is Objective.COST:
        fewer = allowed(list(best.candidate.losses.values()), trials.deployments.request)
        no_more = [c for c in near if c.gpus <= best.candidate.gpus]
        near = list(dict.fromkeys([*fewer, *no_more]))
    return near[: COSTLY_LAST if trials.is_costly else NEIGHBORS]


def add_closest(
    trials: Trials, by_estimate: Sequence[Candidate], families: Sequence[Family]
) -> None:
    """Replays the best by the estimate, of which the search may have replayed none, and then graphs
    that differ from the closest in one step, as long as one of them is closer.

    ``by_estimate``: all candidates.
    """
    hopeful, before = by_estimate, None
    for _ in range(CLOSER + 1):
        trials.left = max(trials.left, CLOSEST)
        if best := best_of(trials, hopeful[:CLOSEST]):
            families[best.candidate.is_disaggregated].best = best
            break
        nearest = closest(trials)
        if nearest is None or nearest.candidate == before:
            break
        before, tried = nearest.candidate, {trial.candidate for trial in trials.known}
        hopeful = [c for c in neighbors(before, by_estimate) if c not in tried]


def highest_scale(trials: Trials, ranked: Ranked) -> Trial | None:
    """The graph that sustains the highest scale."""
    best = _finals(trials, _raced(trials, ranked.shapes, _first_met(trials, ranked)))
    if best is None:
        return None
    known = {best.candidate: _exponent(best.row.scale)}
    better = _finals(trials, _raced(trials, _near(trials, best, ranked), known))
    return in_order([t for t in (best, better) if t], Objective.THROUGHPUT)[0]


def _raced(
    trials: Trials, candidates: Sequence[Candidate], met: dict[Candidate, int]
) -> dict[Candidate, int]:
    """The highest exponents of those that were better than all before them. A candidate that misses
    the SLO one step above the best so far is out after one replay."""
    waiting = [c for c in candidates if c not in met]
    for first in range(0, len(waiting) if met else 0, BATCH):
        scale = SCALE_STEP ** (max(met.values()) + 1)
        batch = [TrialSpec(c, scale=scale) for c in waiting[first : first + BATCH]]
        for trial in trials.of(batch):
            start = max(met.values()) + 1
            if not trial.meets_slo:
                continue
            if (exponent := _climbed(trials, trial.candidate, start)) is not None:
                met[trial.candidate] = exponent
    return met


def _first_met(trials: Trials, ranked: Ranked) -> dict[Candidate, int]:
    """The first candidate that meets the SLO near its estimated capacity, and its exponent."""
    for candidate in ranked.shapes[:BATCH]:
        for lower in FALLS:
            start = _exponent(ranked.capacity[candidate]) - lower
            if (exponent := _climbed(trials, candidate, start)) is not None:
                return {candidate: exponent}
    return {}


def _exponent(scale: float) -> int:
    return floor(log(scale) / log(SCALE_STEP) + 1e-6)


def _climbed(trials: Trials, candidate: Candidate, start: int) -> int | None:
    """The highest exponent that meets the SLO, from ``start`` on; None if ``start`` misses it."""

    def meets_slo(exponent: int) -> bool:
        trial = trials.trial_of(TrialSpec(candidate, scale=SCALE_STEP**exponent))
        return trial is not None and trial.meets_slo

    if not meets_slo(start):
        return None
    low, step = start, CLIMB
    while step:
        if meets_slo(low + step):
            low += step
        else:
            step //= 2
    return low


def _finals(trials: Trials, met: dict[Candidate, int]) -> Trial | None:
    """The best of the finalists, each at the highest scale that a longer replay confirms."""
    finalists = sorted(met, key=lambda c: (-met[c], c.order))[:FINALISTS]
    longer = [trial for c in finalists if (trial := confirmed_below(trials, c, met[c]))]
    return in_order(longer, Objective.THROUGHPUT)[0] if longer else None


def confirmed_below(trials: Trials, candidate: Candidate, exponent: int) -> Trial | None:
    """The trial at the highest scale from ``exponent`` down at which a longer replay meets the
    SLO."""
    trials.left = max(trials.left, STEPS_DOWN)
    for lower in range(STEPS_DOWN + 1):
        trial = trials.trial_of(TrialSpec(candidate, scale=SCALE_STEP ** (exponent - lower)))
        if trial is None:
            break
        if trial.meets_slo and (longer := trials.confirmed(trial)).meets_slo:
            return longer
    return None


def raised(trials: Trials, candidate: Candidate, scale: float) -> Trial | None:
    """The trial at the highest scale from ``scale`` on."""
    highest = _climbed(trials, candidate, _exponent(scale))
    return None if highest is None else confirmed_below(trials, candidate, highest)


def _objective(trials: Trials) -> Objective:
    return trials.deployments.request.objective
