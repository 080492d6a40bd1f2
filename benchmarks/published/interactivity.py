"""Interactivity at 32k input: the graph that `plan` recommends, and every aggregated graph."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from penstock.graph.slo import Slo
from penstock.plan.deployments import Deployments
from penstock.plan.planning import Plan, plan
from penstock.plan.request import Objective, PlanRequest, plan_request
from penstock.plan.space import BATCHES, Candidate, candidates, layouts
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.study import Row
from penstock.workload.load import LoadedWorkload
from published.replays import case_of, figures, load, part_result, rows_of

EQUAL = 0.9  # × the throughput of the planned graph, from which on a throughput counts as equal
GPUS, RATE = 8, 9.0
GPUS_OF_WORKER = 4  # of an aggregated worker in two of the cases, as of the planned decode worker


def interactivity(replays: Replays) -> dict[str, Any]:
    loaded = load(1500, 32768, 1024, poisson=RATE)
    with tempfile.TemporaryDirectory() as folder:
        request = plan_request(
            "gpt-oss-120b",
            loaded,
            scratch=Path(folder),
            gpu="b200",
            gpus=GPUS,
            slo=Slo(ttft_ms=2000),
            objective=Objective.INTERACTIVITY,
            attain=0.95,
        )
        planned, made = _planned_and_aggregated(request, loaded, replays)
    planned_row, *rows = rows_of(replays, loaded, planned, *made.values())
    fours = [
        row for c, row in zip(made, rows, strict=True) if c.worker.layout.gpus == GPUS_OF_WORKER
    ]
    # A saturated graph is fast for the few requests that it serves.
    equal = [row for row in rows if _rate(row) >= EQUAL * _rate(planned_row)]
    baselines = {
        f"fastest of {len(equal)} aggregated graphs with equal throughput": equal,
        f"fastest of them with workers of {GPUS_OF_WORKER} GPUs": [
            row for row in fours if row in equal
        ],
        f"fastest with workers of {GPUS_OF_WORKER} GPUs, at any throughput": fours,
    }
    cases = [
        case_of(
            planned_row, f"compared with the {text}", _speed(planned_row) / max(map(_speed, some))
        )
        for text, some in baselines.items()
        if some
    ]
    return part_result(
        {"interactivity": cases},
        workload=f"Poisson, {RATE:g} requests/s, 32,768 + 1,024 tokens, {GPUS} × B200",
        planned=figures(planned_row),
        aggregated=[figures(row) for row in sorted(rows, key=_speed, reverse=True)],
    )


def _planned_and_aggregated(
    request: PlanRequest, loaded: LoadedWorkload, replays: Replays
) -> tuple[Replayable, dict[Candidate, Replayable]]:
    found = plan(request, loaded, replays, budget=100, attain=0.95, say=lambda *_: None)
    assert isinstance(found, Plan)
    winner = found.winner.candidate
    pools = [c for c in candidates(request, layouts(request)) if _is_aggregated(c)]
    made = dict(Deployments(request).of([winner, *pools]))
    return made.pop(winner), made


def _is_aggregated(candidate: Candidate) -> bool:
    return not candidate.is_disaggregated and candidate.worker.batch == BATCHES[-1]


def _speed(row: Row) -> float:
    return row.metrics[0].user_rate or 0.0


def _rate(row: Row) -> float:
    return row.metrics[0].gpu_rate
