"""Compares `penstock plan` with other candidates: quality and time of the recommendation.

python benchmarks/plan_against_all.py [--trace FILE] [--again TIMES] [CASE…]
Writes results/plan.json; cases that are not named keep their results.

Up to `MOST` candidates that could be better are all replayed; of more, a random sample and those
that differ in one step from the recommendation. For the fewest GPUs, these are the candidates with
at most as many as the recommendation. If the replays remain few, each graph is also replayed with
all router settings. A candidate that seems better is confirmed in a longer replay, as in a plan.

`--again` repeats the plans only: which graphs they recommend, and how long they take. Plans do not
use the cache. `--trace`: Mooncake's conversation trace.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from penstock.plan.deployments import Deployments
from penstock.plan.evidence import neighbors
from penstock.plan.planning import Plan, plan
from penstock.plan.prepare import prepare
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.search import SCALE_STEP
from penstock.plan.space import Candidate
from penstock.plan.trials import Trial, Trials, TrialSpec, score_of
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.study import Study
from penstock.tune.settings import DYNAMO_DEFAULT, grid
from penstock.workload.load import LoadedWorkload
from plan_cases import ATTAIN, Case, add_cases, chosen_cases, in_order, known_cases
from report import write_result

UNLIMITED = 1_000_000
MOST, SAMPLE, SEED = 400, 300, 20261126
AS_GOOD = 0.97  # × the plan's score with one seed: is replayed with all seeds
MOST_AGAIN = 12


def quiet(*_: object) -> None: ...


def compared_with(found: Plan, some: Sequence[Candidate]) -> list[Candidate]:
    """All of ``some``, or a sample of them and the neighbors of the recommendation; then each with
    all router settings, if that is not too much."""
    own = found.winner.candidate
    if found.request.objective is Objective.COST:  # those with more GPUs cannot be better
        some = [c for c in some if c.gpus <= own.gpus]
    if len(some) > MOST:
        drawn = Random(SEED).sample(list(some), SAMPLE)
        some = list(dict.fromkeys([*drawn, *neighbors(own, some)]))
    tuned = [replace(c, settings=one) for c in some if has_choice(c) for one in grid()]
    return list(dict.fromkeys([*some, *(tuned if len(some) + len(tuned) <= MOST else ())]))


def has_choice(candidate: Candidate) -> bool:
    """Whether the KV router chooses among workers."""
    return candidate.router == "kv" and any(pool.replicas > 1 for pool in candidate.pools)


def exhausted(found: Plan, trials: Trials, everything: Sequence[Candidate]) -> Trial:
    """The best of all candidates under the same traffic.

    All are replayed with one seed; those that could be better than the plan's, with all seeds and
    longer.
    """
    objective = found.request.objective
    if objective is Objective.THROUGHPUT:
        return highest_scale(found, trials, everything)
    looked = trials.of([TrialSpec(candidate) for candidate in everything])
    score = score_of(objective)
    least = (*score(found.winner)[:-1], score(found.winner)[-1] * AS_GOOD)
    hopeful = [trial for trial in looked if trial.meets_slo and score(trial) >= least]
    best = found.winner
    for trial in sorted(hopeful, key=score, reverse=True)[:MOST_AGAIN]:
        longer = trials.confirmed(trial)
        if longer.meets_slo:
            best = max([best, longer], key=score)
    return best


def highest_scale(found: Plan, trials: Trials, everything: Sequence[Candidate]) -> Trial:
    """Candidates that meet the SLO one step higher are replayed at the next, until none does."""
    best, running = found.winner, list(everything)
    while running:
        scale = best.row.scale * SCALE_STEP
        looked = trials.of([TrialSpec(candidate, scale=scale) for candidate in running])
        met = [trials.confirmed(trial) for trial in looked if trial.meets_slo]
        held = [trial for trial in met if trial.meets_slo]
        running = [trial.candidate for trial in held]
        best = max(held, key=lambda trial: trial.user_rate, default=best)
    return best


def figure(trial: Trial, objective: Objective) -> float:
    """The figure of the objective; higher is better."""
    if objective is Objective.COST:
        return 1 / trial.candidate.gpus
    return trial.row.scale if objective is Objective.THROUGHPUT else trial.user_rate


def again(case: Case, trace: Path | None, known: dict[str, Any], times: int) -> dict[str, Any]:
    """``known`` with the graphs that further plans recommend, and the time of each plan."""
    repetitions = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder, Replays(Cache(None, "")) as replays:
            found, seconds = planned(*case.request(Path(folder), trace), replays)
        repetitions.append({"graph": str(found.winner.candidate), "seconds": round(seconds, 1)})
        print(json.dumps(repetitions[-1]), file=sys.stderr, flush=True)
    return known | {"repetitions": repetitions}


def planned(request: PlanRequest, loaded: LoadedWorkload, replays: Replays) -> tuple[Plan, float]:
    """The plan, and the seconds that it took."""
    begun = time.monotonic()
    found = plan(request, loaded, replays, budget=None, attain=ATTAIN, say=quiet)
    if not isinstance(found, Plan):
        raise SystemExit(f"no graph meets the SLO: {request}")
    return found, time.monotonic() - begun


def compare(case: Case, trace: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Replays(Cache(None, "")) as replays:
        request, loaded = case.request(Path(folder), trace)
        found, took_s = planned(request, loaded, replays)
        begun = time.monotonic()
        space = prepare(request, loaded)
        study = Study(workload=found.workload, replays=replays, attain=ATTAIN)
        trials = Trials(study, Deployments(request), UNLIMITED, quiet, complete=found.complete)
        everything = compared_with(found, space.candidates)
        best = exhausted(found, trials, everything)
        return {
            "case": {**vars(case), "objective": str(case.objective)},
            "requests": found.workload.workload.requests,
            "plan": {**shown(found.winner), "seconds": round(took_s, 1), "replays": found.replays},
            "best of all": {
                **shown(best),
                "candidates": len({replace(c, settings=DYNAMO_DEFAULT) for c in everything}),
                "with router settings": any(c.settings != DYNAMO_DEFAULT for c in everything),
                "seconds": round(time.monotonic() - begun),
                "replays": trials.replays,
            },
            "plan relative to best": round(
                figure(found.winner, case.objective) / figure(best, case.objective), 3
            ),
        }


def shown(trial: Trial) -> dict[str, Any]:
    return {
        "graph": str(trial.candidate),
        "gpus": trial.candidate.gpus,
        "scale": round(trial.row.scale, 3),
        "tokens_per_second_user": round(trial.user_rate, 1),
        "within_slo": round(trial.goodput, 3),
    }


def main() -> None:
    """Cases that are not named keep their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", type=int, metavar="TIMES")
    add_cases(parser)
    args = parser.parse_args()
    known = known_cases("plan")
    for name, case in chosen_cases(args):
        if args.again:
            known[name] = again(case, args.trace, known[name], args.again)
        else:
            known[name] = compare(case, args.trace)
        print(name, json.dumps(known[name], indent=1), file=sys.stderr, flush=True)
        command = "python benchmarks/plan_against_all.py --trace FILE"
        write_result("plan", command, {"cases": in_order(known)}, show=False)


if __name__ == "__main__":
    main()
