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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.graph.slo import Slo
from penstock.plan.deployments import Deployments
from penstock.plan.prepare import prepare
from penstock.plan.request import Objective, PlanRequest, plan_request
from penstock.workload import find_workload
from penstock.workload.load import LoadedWorkload
from report import write_result

PROMISING = 40  # candidates of each family that are rendered


@dataclass(frozen=True, kw_only=True)
class Case:
    gpu: str
    gpus: int
    workload: str
    scale: float
    ttft_ms: float
    itl_ms: float

    def __str__(self) -> str:
        slo = f"TTFT {self.ttft_ms:g} ms, ITL {self.itl_ms:g} ms"
        return f"gpt-oss-120b, {self.gpus} × {self.gpu}, {self.workload} × {self.scale:g}, {slo}"


CASES = (
    Case(gpu="b200", gpus=8, workload="agentic", scale=4, ttft_ms=800, itl_ms=15),
    Case(gpu="gb200", gpus=64, workload="document", scale=40, ttft_ms=2000, itl_ms=20),
)


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


def measure(one: Case) -> dict[str, Any]:
    loaded = find_workload(one.workload).scaled(one.scale)
    with tempfile.TemporaryDirectory() as folder:
        request = plan_request(
            "gpt-oss-120b",
            loaded,
            scratch=Path(folder),
            gpu=one.gpu,
            gpus=one.gpus,
            slo=Slo(ttft_ms=one.ttft_ms, itl_ms=one.itl_ms),
            objective=Objective.COST,
        )
        return phases(request, loaded)


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
    cases = {str(one): measure(one) for one in CASES}
    write_result("plan_speed", "python benchmarks/plan_speed.py", {"cases": cases})


if __name__ == "__main__":
    main()
