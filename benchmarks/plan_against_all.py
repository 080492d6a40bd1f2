"""Compares `penstock plan` with replays of every candidate: quality and time of the recommendation.

python benchmarks/plan_against_all.py [--again TIMES] [CASE…]   Writes results/plan.json; cases that
are not named keep their results. `--again` repeats the plans only: how often they recommend the
same graph, and their median time on an otherwise idle machine. Plans do not use the cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from penstock.graph.slo import Slo
from penstock.plan.deployments import Deployments
from penstock.plan.planning import Plan, plan
from penstock.plan.prepare import prepare
from penstock.plan.request import Objective, PlanRequest, plan_request
from penstock.plan.score import SCALE_STEP, score_of
from penstock.plan.space import Candidate
from penstock.plan.traffic import SEEDS
from penstock.plan.trials import Trial, Trials, TrialSpec
from penstock.simulate.cache import Cache
from penstock.simulate.replay import Replays
from penstock.simulate.study import Study
from penstock.workload import find_workload
from penstock.workload.load import LoadedWorkload
from report import RESULTS, write_result

BUDGET = 80  # the default of `penstock plan`
UNLIMITED = 1_000_000
ATTAIN = 0.95
AS_GOOD = 0.97  # × the plan's score with one seed: is replayed with all seeds
MOST_AGAIN = 12


@dataclass(frozen=True, kw_only=True)
class Case:
    model: str = "gpt-oss-120b"
    gpu: str
    gpus: int
    workload: str
    scale: float
    ttft_ms: float
    itl_ms: float
    objective: Objective


CASES = {
    "long prompts, speed": Case(
        gpu="b200", gpus=8, workload="long-context", scale=8, ttft_ms=2000, itl_ms=50,
        objective=Objective.INTERACTIVITY,
    ),
    "documents, cost": Case(
        gpu="b200", gpus=8, workload="document", scale=4, ttft_ms=500, itl_ms=10,
        objective=Objective.COST,
    ),
    "documents, speed, H200": Case(
        gpu="h200", gpus=8, workload="document", scale=1, ttft_ms=1000, itl_ms=20,
        objective=Objective.INTERACTIVITY,
    ),
    "agents, cost": Case(
        gpu="gb200", gpus=8, workload="agentic", scale=4, ttft_ms=500, itl_ms=8,
        objective=Objective.COST,
    ),
    "documents, throughput, GB200": Case(
        gpu="gb200", gpus=4, workload="document", scale=1, ttft_ms=1000, itl_ms=15,
        objective=Objective.THROUGHPUT,
    ),
    "chat, throughput, 20b": Case(
        model="gpt-oss-20b", gpu="h100", gpus=4, workload="short-chat", scale=1, ttft_ms=500,
        itl_ms=10, objective=Objective.THROUGHPUT,
    ),
    "chat, cost, Qwen3-32B": Case(
        model="Qwen/Qwen3-32B", gpu="h200", gpus=8, workload="short-chat", scale=1, ttft_ms=500,
        itl_ms=20, objective=Objective.COST,
    ),
}  # fmt: skip


def request_of(case: Case, scratch: Path) -> tuple[PlanRequest, LoadedWorkload]:
    loaded = find_workload(case.workload).scaled(case.scale)
    request = plan_request(
        case.model,
        loaded,
        scratch=scratch,
        gpu=case.gpu,
        gpus=case.gpus,
        slo=Slo(ttft_ms=case.ttft_ms, itl_ms=case.itl_ms),
        objective=case.objective,
    )
    return request, loaded


def quiet(*_: object) -> None: ...


def exhausted(found: Plan, trials: Trials, everything: Sequence[Candidate]) -> Trial:
    """The best of all candidates under the same traffic.

    All are replayed with one seed; those as good as the plan's are replayed with all seeds.
    """
    objective = found.request.objective
    if objective is Objective.THROUGHPUT:
        return highest_scale(found, trials, everything)
    looked = trials.of([TrialSpec(candidate) for candidate in everything])
    score = score_of(objective)
    least = (*score(found.winner)[:-1], score(found.winner)[-1] * AS_GOOD)
    hopeful = [trial for trial in looked if trial.meets_slo and score(trial) >= least]
    hopeful = sorted(hopeful, key=score, reverse=True)[:MOST_AGAIN]
    again = trials.of([TrialSpec(trial.candidate, seeds=SEEDS) for trial in hopeful])
    return max([found.winner, *(trial for trial in again if trial.meets_slo)], key=score)


def highest_scale(found: Plan, trials: Trials, everything: Sequence[Candidate]) -> Trial:
    """Candidates that meet the SLO one step higher are replayed at the next, until none does."""
    best, running = found.winner, list(everything)
    while running:
        scale = best.row.scale * SCALE_STEP
        looked = trials.of([TrialSpec(candidate, scale=scale) for candidate in running])
        running = [trial.candidate for trial in looked if trial.meets_slo]
        again = trials.of([TrialSpec(candidate, scale=scale, seeds=SEEDS) for candidate in running])
        held = [trial for trial in again if trial.meets_slo]
        running = [trial.candidate for trial in held]
        best = max(held, key=lambda trial: trial.user_rate, default=best)
    return best


def figure(trial: Trial, objective: Objective) -> float:
    """The figure of the objective; higher is better."""
    if objective is Objective.COST:
        return 1 / trial.candidate.gpus
    return trial.row.scale if objective is Objective.THROUGHPUT else trial.user_rate


def again(case: Case, known: dict[str, Any], times: int) -> dict[str, Any]:
    """``known`` with how often the same graph is recommended, and the median time."""
    took_s, same = [], 0
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder, Replays(Cache(None, "")) as replays:
            found, seconds = planned(case, Path(folder), replays)
        took_s.append(seconds)
        same += str(found.winner.candidate) == known["plan"]["graph"]
        print(f"{found.winner.candidate}: {seconds:.1f} s", file=sys.stderr, flush=True)
    more = {"seconds": round(median(took_s), 1), "same graph": f"{same} of {times}"}
    return known | {"plan": known["plan"] | more}


def planned(case: Case, folder: Path, replays: Replays) -> tuple[Plan, float]:
    """The plan, and the seconds that it took."""
    request, loaded = request_of(case, folder)
    begun = time.monotonic()
    found = plan(request, loaded, replays, budget=BUDGET, attain=ATTAIN, say=quiet)
    if not isinstance(found, Plan):
        raise SystemExit(f"no graph meets the SLO: {case}")
    return found, time.monotonic() - begun


def compare(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Replays(Cache(None, "")) as replays:
        found, took_s = planned(case, Path(folder), replays)
        request, loaded = request_of(case, Path(folder))
        begun = time.monotonic()
        space = prepare(request, loaded)
        study = Study(workload=found.workload, replays=replays, attain=ATTAIN)
        trials = Trials(study, Deployments(request), UNLIMITED, quiet)
        # For cost, candidates with more GPUs cannot be better.
        most = found.winner.candidate.gpus if case.objective is Objective.COST else request.gpus
        everything = [c for c in space.candidates if c.gpus <= most]
        best = exhausted(found, trials, everything)
        return {
            "case": {**vars(case), "objective": str(case.objective)},
            "requests": found.workload.workload.requests,
            "plan": {**shown(found.winner), "seconds": round(took_s, 1), "replays": found.replays},
            "best of all": {
                **shown(best),
                "candidates": len(everything),
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
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    args = parser.parse_args()
    file = RESULTS / "plan.json"
    known = json.loads(file.read_text())["cases"] if file.exists() else {}
    for name in args.cases or CASES:
        case = CASES[name]
        known[name] = again(case, known[name], args.again) if args.again else compare(case)
        print(name, json.dumps(known[name], indent=1), file=sys.stderr, flush=True)
        cases = {case: known[case] for case in CASES if case in known}
        write_result("plan", "python benchmarks/plan_against_all.py", {"cases": cases})


if __name__ == "__main__":
    main()
