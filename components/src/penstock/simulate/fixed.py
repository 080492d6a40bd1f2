"""A run with Dynamo's planner, compared with fixed pools of about its cost and of its peak size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor
from statistics import mean, median_low

from penstock.simulate.model import Replayable
from penstock.simulate.scaling import Scaling
from penstock.simulate.study import Progress, Row, Study

TOLERANCE = 0.02  # of a worker: an average this close to an integer is that integer


def compare_with_planner(
    study: Study,
    deployment: Replayable,
    planned: Replayable,
    progress: Progress | None = None,
) -> list[Row]:
    """Rows of the initial pools without changes, of the planner, and of fixed pools: the planner's
    average number of workers, rounded down and up, and its peak."""
    initial, run = study.rows([replace(deployment, slo=planned.slo), planned], progress)
    first, *others = fixed_pools(initial.replayable, run.scalings)
    rows = study.rows(others, progress) if others else []
    return [replace(initial, replayable=first), run, *rows]


def fixed_pools(deployment: Replayable, scalings: Sequence[Scaling]) -> list[Replayable]:
    """The deployment with its initial pools, and with each other size; every size once."""
    pools = range(len(deployment.pools))
    averages = [mean(scaling.average[pool] for scaling in scalings) for pool in pools]
    sizes = {
        "the initial size": [pool.replicas for pool in deployment.pools],
        "the planner's average, rounded down": [max(1, floor(a + TOLERANCE)) for a in averages],
        "the planner's average, rounded up": [max(1, ceil(a - TOLERANCE)) for a in averages],
        "the planner's peak": [median_low([s.peak[pool] for s in scalings]) for pool in pools],
    }
    reasons: dict[tuple[int, ...], list[str]] = {}
    for reason, counts in sizes.items():
        reasons.setdefault(tuple(counts), []).append(reason)
    return [_resized(deployment, counts, some) for counts, some in reasons.items()]


def _resized(deployment: Replayable, counts: Sequence[int], reasons: Sequence[str]) -> Replayable:
    size = "+".join(map(str, counts))
    return replace(
        deployment,
        name=f"{deployment.name}, fixed {size}",
        pools=tuple(p.resized(n) for p, n in zip(deployment.pools, counts, strict=True)),
        unscaled=(f"the pools have a fixed size: {', '.join(reasons)}",),
    )
