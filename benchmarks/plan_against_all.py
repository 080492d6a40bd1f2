"""Compares the answer of `penstock plan` with other graphs: brute force on traffic of other seeds.

python benchmarks/plan_against_all.py [CASE…]
Writes results/plan.json after each case; without names, only cases without a result are run.

First come all graphs with fewer GPUs, one of each shape with the widest limits; if at least
`HOPELESS` of its requests meet the SLO, all limits of the shape follow, and otherwise the shape is
out, and the same shape with fewer workers. Then a sample by hash of the graphs with as many GPUs,
at least `LEAST` in total. A graph that could be better is confirmed as in a plan, and counts as
smaller if it meets the SLO on two samples of traffic. Plans do not use the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from penstock.plan.deployments import Deployments
from penstock.plan.evidence import neighbors
from penstock.plan.planning import Cost, NoPlan, Plan, complete_workload, plan
from penstock.plan.prepare import prepare
from penstock.plan.request import Objective
from penstock.plan.space import Candidate
from penstock.plan.trials import Trial, Trials, TrialSpec
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.study import Study
from penstock.tune.settings import DYNAMO_DEFAULT, grid
from plan_cases import ATTAIN, CASES, Case, chosen_cases, is_held_out, known_cases
from report import write_result

UNLIMITED = 1_000_000
SEEDS = 100, 200  # the first of the traffic, of which the search uses 0 to 2
LEAST = 40  # graphs
SAMPLE = 12  # of those with as many GPUs, at least
HOPELESS = 0.5  # share of requests within the SLO
AS_FAST = 0.99  # × the answer's tokens/s per user in a short replay: is confirmed
MOST_CONFIRMED = 6
STEP = 1.03  # of the rate, which is the margin of a plan
MOST_STEPS = 12


@dataclass
class CpuTime:
    seconds: float = 0.0


@contextmanager
def cpu_time() -> Iterator[CpuTime]:
    """The CPU seconds of the block, with the processes that it starts and ends."""
    before, used = os.times(), CpuTime()
    yield used
    used.seconds = round(sum(os.times()[:4]) - sum(before[:4]), 1)


def by_hash(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: sha256(str(c).encode()).digest())


def shape(candidate: Candidate) -> tuple[object, ...]:
    """What it has in common with candidates of other limits."""
    pools = [(pool.layout, pool.replicas) for pool in candidate.pools]
    return (*pools, candidate.is_disaggregated, candidate.router)


def is_smaller(candidate: Candidate, other: Candidate) -> bool:
    """Whether it has the shape of another one, but fewer workers."""
    alike = candidate.smallest == other.smallest
    pairs = zip(candidate.pools, other.pools, strict=False)
    return alike and all(pool.replicas <= more.replicas for pool, more in pairs)


@dataclass
class BruteForce:
    """Replays the candidates of a request that its answer is compared with."""

    answer: Plan | NoPlan
    candidates: Sequence[Candidate]
    samples: Sequence[Trials]  # of each of `SEEDS`
    replayed: set[Candidate] = field(default_factory=set)
    excluded: set[Candidate] = field(default_factory=set)  # a larger one of their shape is hopeless

    @property
    def objective(self) -> Objective:
        return self.answer.request.objective

    def trials_of(self, candidates: Sequence[Candidate], scale: float = 1.0) -> list[Trial]:
        specs = [TrialSpec(candidate, scale=scale) for candidate in candidates]
        trials = self.samples[0].of(specs)
        self.replayed |= {trial.candidate for trial in trials}
        return trials

    def confirmed(self, trial: Trial) -> Trial | None:
        """The confirmed trial; None if it misses the SLO."""
        longer = self.samples[0].surest(trial)
        return longer if longer.meets_slo else None

    def meets_again(self, candidate: Candidate) -> bool:
        """Whether it also meets the SLO on the second sample of traffic."""
        again = self.samples[1].trial_of(TrialSpec(candidate))
        return again is not None and self.samples[1].surest(again).meets_slo

    def smaller(self, gpus: int) -> list[Trial]:
        """Those with fewer GPUs that meet the SLO, the fewest first."""
        fewer = sorted((c for c in self.candidates if c.gpus < gpus), key=lambda c: -c.gpus)
        hopeful: list[Trial] = []
        for _, group in groupby(fewer, key=lambda c: c.gpus):
            hopeful += self._of_shapes([c for c in group if c not in self.excluded], fewer)
        met = [longer for trial in hopeful if (longer := self.confirmed(trial))]
        again = [trial for trial in met if self.meets_again(trial.candidate)]
        return sorted(again, key=lambda trial: (trial.candidate.gpus, -trial.user_rate))

    def _of_shapes(self, group: Sequence[Candidate], fewer: Sequence[Candidate]) -> list[Trial]:
        """The trials of a group with as many GPUs."""
        by_shape: dict[tuple[object, ...], list[Candidate]] = {}
        for candidate in group:
            by_shape.setdefault(shape(candidate), []).append(candidate)
        widest = {max(alike, key=lambda c: (c.worker.batch, -abs(c.worker.step - 8192))): alike
                  for alike in by_shape.values()}  # fmt: skip
        further: list[Candidate] = []
        trials = self.trials_of(list(widest))
        for trial in trials:
            if trial.goodput >= HOPELESS:
                further += widest[trial.candidate]
                continue
            hopeless = widest[trial.candidate]
            self.excluded |= {c for c in fewer for large in hopeless if is_smaller(c, large)}
        every = {trial.candidate: trial for trial in [*trials, *self.trials_of(further)]}
        return [trial for trial in every.values() if self.samples[0].is_hopeful(trial)]

    def sample(self, own: Candidate) -> list[Candidate]:
        """Graphs with as many GPUs as the answer, or with the others that are as good; with all
        router settings if these graphs are few."""
        alike = [c for c in self.candidates if c.gpus == own.gpus or self.objective != "cost"]
        alike = [c for c in alike if c not in self.replayed and c != own]
        count = max(SAMPLE, LEAST - len(self.replayed))
        near = [] if self.objective == "cost" else list(neighbors(own, alike))
        chosen = list(dict.fromkeys([*near, *by_hash(alike)[:count]]))
        if missing := max(0, LEAST - len(self.replayed) - len(chosen)):
            tunable = [c for c in (own, *alike) if c.router == "kv" and has_choice(c)]
            tuned = [replace(c, settings=s) for c in tunable for s in grid() if s != DYNAMO_DEFAULT]
            chosen += by_hash([c for c in tuned if c != own])[:missing]
        return chosen

    def fastest(self, own: Candidate) -> tuple[Trial | None, Trial | None]:
        """(the answer, the best of the sample and the answer), confirmed on this traffic."""
        (looked,) = self.trials_of([own])
        answered = self.confirmed(looked)
        enough = looked.user_rate * AS_FAST if answered else 0.0
        hopeful = [t for t in self.trials_of(self.sample(own)) if self.samples[0].is_hopeful(t)]
        hopeful = sorted(hopeful, key=lambda trial: -trial.user_rate)[:MOST_CONFIRMED]
        longer = [self.confirmed(trial) for trial in hopeful if trial.user_rate >= enough]
        met = [trial for trial in [answered, *longer] if trial]
        return answered, max(met, key=lambda trial: trial.user_rate, default=None)

    def highest(self, own: Candidate, claimed: float) -> tuple[Trial | None, Trial | None]:
        """The same for the rate, in steps from the answer's."""
        step, answered = 0, self._met_at(own, claimed)
        while answered is None and step > -MOST_STEPS:
            step -= 1
            answered = self._met_at(own, claimed * STEP**step)
        best, running = answered, [own, *self.sample(own)]
        while best and running and step < MOST_STEPS:
            step += 1
            looked = self.trials_of(running, claimed * STEP**step)
            met = [longer for trial in looked if (longer := self.confirmed(trial))]
            answered = next((trial for trial in met if trial.candidate == own), answered)
            running = [trial.candidate for trial in met]
            best = max(met, key=lambda trial: trial.user_rate, default=best)
        return answered, best

    def _met_at(self, candidate: Candidate, scale: float) -> Trial | None:
        trials = self.trials_of([candidate], scale)
        return self.confirmed(trials[0]) if trials else None


def has_choice(candidate: Candidate) -> bool:
    """Whether the KV router chooses among workers."""
    return any(pool.replicas > 1 for pool in candidate.pools)


def compare(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        request, loaded = case.request(Path(folder))
        with cpu_time() as planned, Replays(Cache(None, ""), processes=1) as replays:
            answer = plan(request, loaded, replays, budget=None, attain=ATTAIN, say=lambda *_: None)
        progress("planned", answered(answer), planned.seconds)
        with cpu_time() as compared, Replays(Cache(None, ""), processes=1) as replays:
            space = prepare(request, loaded)
            complete = complete_workload(loaded, answer.workload)
            if isinstance(answer, Plan):
                complete = answer.complete
            is_costly = Cost.of(answer.workload, space.traffic).is_high
            samples = [
                Trials(
                    study=Study(
                        workload=answer.workload, replays=replays, attain=ATTAIN, first_seed=seed
                    ),
                    deployments=Deployments(request),
                    left=UNLIMITED,
                    say=progress,
                    is_costly=is_costly,
                    complete=complete,
                )
                for seed in SEEDS
            ]
            figures = against(BruteForce(answer, space.candidates, samples))
        return {
            "case": case.described,
            **figures,
            "plan_cpu_s": planned.seconds,
            "plan_replays": answer.replays,
            "brute_force_cpu_s": compared.seconds,
        }


def answered(answer: Plan | NoPlan) -> str:
    return str(answer.winner.candidate) if isinstance(answer, Plan) else "no graph meets the SLO"


def progress(*texts: object) -> None:
    print(*texts, file=sys.stderr, flush=True)


def against(others: BruteForce) -> dict[str, Any]:
    """The answer, the best graph, and the answer's share of the best's figure."""
    answer, is_cost = others.answer, others.objective is Objective.COST
    if not isinstance(answer, Plan):
        met = others.smaller(answer.request.gpus + 1)
        return {"answer": None, "smaller_that_meet_the_slo": listed(met), **counts(others)}
    own, scale = answer.winner.candidate, answer.winner.row.scale
    smaller = others.smaller(own.gpus) if is_cost else []
    is_rate = others.objective is Objective.THROUGHPUT
    same, best = others.highest(own, scale) if is_rate else others.fastest(own)
    ratio = user_ratio = None
    if same and best:
        ratio = user_ratio = same.user_rate / best.user_rate
        ratio = same.row.scale / best.row.scale if is_rate else user_ratio
    if is_cost:
        ratio = smaller[0].candidate.gpus / own.gpus if smaller else 1.0
    return {
        "answer": shown(answer.winner),
        "answer_on_other_traffic": shown(same) if same else "misses the SLO",
        "best": shown(smaller[0]) if smaller else shown(best) if best else None,
        "ratio": rounded(ratio),
        "user_rate_ratio": rounded(user_ratio),
        "smaller_that_meet_the_slo": listed(smaller),
        **counts(others),
    }


def counts(others: BruteForce) -> dict[str, int]:
    excluded = len(others.excluded - others.replayed)
    return {
        "replayed": len(others.replayed),
        "excluded": excluded,
        "candidates": len(others.candidates),
    }


def listed(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    return [shown(trial) for trial in trials]


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def shown(trial: Trial) -> dict[str, Any]:
    return {
        "graph": str(trial.candidate),
        "gpus": trial.candidate.gpus,
        "scale": round(trial.row.scale, 3),
        "tokens_per_second_user": round(trial.user_rate, 1),
        "within_slo": round(trial.goodput, 4),
        "requests": trial.row.requests,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    args = parser.parse_args()
    for name, case in list(chosen_cases(args.cases, known_cases("plan"))):
        result = {"held_out": is_held_out(name), **compare(case)}
        progress(name, json.dumps(result, indent=1))
        known = known_cases("plan") | {name: result}
        cases = {name: known[name] for name in CASES if name in known}
        write_result("plan", "python benchmarks/plan_against_all.py", {"cases": cases}, show=False)


if __name__ == "__main__":
    main()
