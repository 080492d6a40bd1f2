"""A planner's run beside fixed pools of about its cost, and of its peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor
from statistics import mean, median_low

from penstock.simulate.model import Replayable
from penstock.simulate.scaling import Scaling
from penstock.simulate.study import Progress, Row, Study

WHOLE = 0.02  # of a worker: an average this near to a whole number is that number


def compare_with_planner(
    study: Study,
    deployment: Replayable,
    planned: Replayable,
    progress: Progress | None = None,
) -> list[Row]:
    """The deployment as it begins and never changes, with its planner, and with fixed pools: the
    planner's average in whole workers, below and above, and its peak."""
    start, run = study.rows([replace(deployment, slo=planned.slo), planned], progress)
    first, *others = fixed_pools(start.replayable, run.scalings)
    rows = study.rows(others, progress) if others else []
    return [replace(start, replayable=first), run, *rows]


def fixed_pools(deployment: Replayable, scalings: Sequence[Scaling]) -> list[Replayable]:
    """The deployment itself, and those that are none of them like another."""
    pools = range(len(deployment.pools))
    averages = [mean(scaling.average[pool] for scaling in scalings) for pool in pools]
    wanted = {
        "as the planner finds them": [pool.replicas for pool in deployment.pools],
        "its average, rounded down": [max(1, floor(a + WHOLE)) for a in averages],
        "its average, rounded up": [max(1, ceil(a - WHOLE)) for a in averages],
        "its peak": [median_low([s.peak[pool] for s in scalings]) for pool in pools],
    }
    reasons: dict[tuple[int, ...], list[str]] = {}
    for why, counts in wanted.items():
        reasons.setdefault(tuple(counts), []).append(why)
    return [_sized(deployment, counts, whys) for counts, whys in reasons.items()]


def _sized(deployment: Replayable, counts: Sequence[int], whys: Sequence[str]) -> Replayable:
    size = "+".join(map(str, counts))
    return replace(
        deployment,
        name=f"{deployment.name}, fixed {size}",
        pools=tuple(p.sized(n) for p, n in zip(deployment.pools, counts, strict=True)),
        unscaled=(f"the pools stay as they are: {', '.join(whys)}",),
    )
