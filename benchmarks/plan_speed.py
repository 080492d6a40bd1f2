"""Measures the phases of `penstock plan` before its replays: step times, ranking and rendering.

python benchmarks/plan_speed.py   Writes results/plan_speed.json.

Times are in seconds of this machine's clock and of processor time, which other load changes less.
Rendering is that of the 40 most promising candidates of each family, `check` and parsers included.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.plan.deployments import Deployments
from penstock.plan.prepare import prepare
from penstock.plan.request import PlanRequest
from penstock.workload.load import LoadedWorkload
from plan_cases import ATTAIN, CASES, Case
from report import write_result

PROMISING = 40  # candidates of each family that are rendered


MEASURED = ("agents, cost", "documents, cost, 64 GB200")


@contextmanager
def timed(figures: dict[str, Any], phase: str) -> Iterator[None]:
    """Adds the time of the block to ``figures``."""
    clock, used = time.perf_counter(), os.times()
    yield
    now = os.times()
    own, children = (
        sum(now[at] - used[at] for at in some) for some in ((0, 1), (2, 3))
    )  # user and system time
    figures[phase] = {
        "s": round(time.perf_counter() - clock, 2),
        "processor_s": round(own, 2),
        "processor_s_of_children": round(children, 2),
    }


def measure(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return phases(*case.request(Path(folder), None))


def phases(request: PlanRequest, loaded: LoadedWorkload) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with timed(figures, "step times"):
        space = prepare(request, loaded)
    with timed(figures, "ranking"):
        families = space.families(ATTAIN)
    promising = [c for family in families for c in family.candidates[:PROMISING]]
    with timed(figures, "rendering"):
        rendered = Deployments(request).of(promising)
    return {
        "candidates": len(space.candidates),
        "ranked": sum(len(family.candidates) for family in families),
        "rendered": len(rendered),
        "phases": figures,
    }


def main() -> None:
    cases = {name: measure(CASES[name]) for name in MEASURED}
    write_result("plan_speed", "python benchmarks/plan_speed.py", {"cases": cases})


if __name__ == "__main__":
    main()
