"""What the parts share: graphs and workloads of a replay, its figures, and cases made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.acceptance import Acceptance
from penstock.simulate.accuracy import no_points, row_intervals
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.replayable import replayable
from penstock.simulate.study import Row, Study
from penstock.workload.load import LoadedWorkload
from penstock.workload.model import Arrival, Lengths, Workload
from published.model import Case

ROOT = Path(__file__).parents[2]
GRAPHS = ROOT / "dynamo_graphs"


def graph(name: str, *sets: str, acceptance: Acceptance | None = None) -> Replayable:
    return replayable(open_source(GRAPHS / f"{name}.yaml", sets), Hints(), acceptance)


def load(requests: int, isl: int, osl: int, *, cv: float = 0.0, **arrival: Any) -> LoadedWorkload:
    workload = Workload(
        requests=requests,
        input=Lengths(mean=isl, cv=cv),
        output=Lengths(mean=osl, cv=cv),
        arrival=Arrival(**arrival),
    )
    return LoadedWorkload(name=f"{isl}/{osl}", workload=workload, source="benchmarks/claims.py")


def rows_of(replays: Replays, loaded: LoadedWorkload, *deployments: Replayable) -> list[Row]:
    return Study(workload=loaded, replays=replays, seeds=1).rows(deployments, None)


def figures(row: Row) -> dict[str, Any]:
    one = row.metrics[0]
    return {
        "graph": row.replayable.name,
        "shape": row.replayable.shape,
        "gpus": row.replayable.gpus,
        "tokens_per_second_user": round(one.user_rate or 0.0, 1),
        "tokens_per_second_gpu": round(one.gpu_rate, 1),
        "output_tokens_per_second": round(one.output_rate),
        "ttft_p50_ms": round(one.ttft_p50_ms, 1),
        "token_gap_p99_ms": round(one.token_gap_p99_ms or 0.0, 1),
        "whole_experts": any(answer.get("whole_experts") for answer in row.results),
    }


def user_rate(row: Row, assumption: str) -> Case:
    """Output tokens/s of the median request, which grow when the ITL falls."""
    found = row_intervals(row).get("itl")
    factors = (1 / found.high, 1 / found.low) if found else None
    return case_of(row, assumption, row.metrics[0].user_rate or 0.0, factors)


def throughput(row: Row, assumption: str, scale: float) -> Case:
    """``scale`` × the output tokens/s per GPU."""
    found = row_intervals(row).get("rate")
    factors = (found.low, found.high) if found else None
    return case_of(row, assumption, row.metrics[0].gpu_rate * scale, factors)


def case_of(
    row: Row, assumption: str, predicted: float, factors: tuple[float, float] | None = None
) -> Case:
    """``factors``: those of the interval; None without one."""
    low, high = [significant(predicted * factor) for factor in factors or ()] or (None, None)
    return Case(
        assumption=assumption,
        predicted=significant(predicted),
        low=low,
        high=high,
        no_interval="" if factors else no_points(row.replayable),
        not_simulated=row.replayable.not_simulated,
        assumed=row.replayable.assumed,
    )


def significant(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


def part_result(cases: dict[str, Sequence[Case]], **details: Any) -> dict[str, Any]:
    """What a part writes: the cases of each of its claims, and what else was found."""
    return {
        "cases": {name: [case.to_json() for case in some] for name, some in cases.items()},
        **details,
    }
