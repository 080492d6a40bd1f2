"""The requests to `penstock plan` that several benchmarks share.

The rule by which they were written, before the first run: two cases that a former search answered
wrongly, and ten of six kinds of traffic, with 2 to 16 GPUs of three types, three models and all
objectives. A TTFT of 0.3 to 3 s for interactive traffic, in some cases also the ITL; the end-to-end
latency for batch jobs. The scale is 40% to 80% of what the GPUs sustain in the estimate of `plan`,
so that answers are neither the fewest nor all GPUs. The hash of the name selects six of the ten;
these are held out: no change of the search may be decided by them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from penstock.graph.slo import Slo
from penstock.plan.request import Objective, PlanRequest, plan_request
from penstock.workload import find_workload
from penstock.workload.load import LoadedWorkload
from report import RESULTS

ATTAIN = 0.95  # the default of `penstock plan`
FOLDER = Path(__file__).parent / "workloads" / "plan"
HELD_OUT = 6
COST, SPEED, RATE = Objective.COST, Objective.INTERACTIVITY, Objective.THROUGHPUT


@dataclass(frozen=True, kw_only=True)
class Case:
    model: str = "gpt-oss-120b"
    gpu: str
    gpus: int
    workload: str  # a ready one, or one in FOLDER
    scale: float
    slo: Slo
    objective: Objective

    @cached_property
    def source(self) -> str:
        """Name or path of the workload."""
        file = FOLDER / f"{self.workload}.yaml"
        return str(file) if file.exists() else self.workload

    @property
    def described(self) -> dict[str, Any]:
        """The case for a result file."""
        slo = self.slo.model_dump(exclude_none=True)
        objective = str(self.objective)
        fields = ("model", "gpu", "gpus", "workload", "scale")
        return {**{key: getattr(self, key) for key in fields}, "slo": slo, "objective": objective}

    def request(self, scratch: Path) -> tuple[PlanRequest, LoadedWorkload]:
        loaded = find_workload(self.source, None).scaled(self.scale)
        request = plan_request(
            self.model,
            loaded,
            scratch=scratch,
            gpu=self.gpu,
            gpus=self.gpus,
            slo=self.slo,
            objective=self.objective,
            attain=ATTAIN,
        )
        return request, loaded


KNOWN = {
    "code agents, 8 H200, cost": Case(
        gpu="h200", gpus=8, workload="code-agents", scale=3.5, slo=Slo(ttft_ms=1500), objective=COST
    ),
    "RAG, 8 H200, cost": Case(
        gpu="h200", gpus=8, workload="rag", scale=2, slo=Slo(ttft_ms=1000, itl_ms=15),
        objective=COST,
    ),
}  # fmt: skip
OTHERS = {
    "agents, 4 B200, cost": Case(
        gpu="b200", gpus=4, workload="agentic", scale=5.5, slo=Slo(ttft_ms=800, itl_ms=10),
        objective=COST,
    ),
    "agents, 2 H100, speed": Case(
        model="gpt-oss-20b", gpu="h100", gpus=2, workload="agentic", scale=1.5,
        slo=Slo(ttft_ms=1000), objective=SPEED,
    ),
    "RAG, 4 H100, rate": Case(
        model="gpt-oss-20b", gpu="h100", gpus=4, workload="rag", scale=1,
        slo=Slo(ttft_ms=1000, itl_ms=15), objective=RATE,
    ),
    "batch, 4 B200, cost": Case(
        gpu="b200", gpus=4, workload="batch", scale=2.4, slo=Slo(e2e_ms=8000), objective=COST
    ),
    "batch, 2 H100, rate": Case(
        model="Qwen/Qwen3-32B", gpu="h100", gpus=2, workload="batch", scale=1,
        slo=Slo(e2e_ms=60000), objective=RATE,
    ),
    "mixed classes, 8 H100, cost": Case(
        gpu="h100", gpus=8, workload="mixed", scale=1.6, slo=Slo(ttft_ms=1000, itl_ms=20),
        objective=COST,
    ),
    "mixed classes, 4 H200, speed": Case(
        model="gpt-oss-20b", gpu="h200", gpus=4, workload="mixed", scale=2.2,
        slo=Slo(ttft_ms=1000), objective=SPEED,
    ),
    "long documents, 16 B200, cost": Case(
        gpu="b200", gpus=16, workload="long-context", scale=15, slo=Slo(ttft_ms=3000, itl_ms=20),
        objective=COST,
    ),
    "long documents, 4 H200, speed": Case(
        model="gpt-oss-20b", gpu="h200", gpus=4, workload="long-context", scale=1.4,
        slo=Slo(ttft_ms=3000), objective=SPEED,
    ),
    "chat, 16 H200, cost": Case(
        gpu="h200", gpus=16, workload="short-chat", scale=2, slo=Slo(ttft_ms=300, itl_ms=8),
        objective=COST,
    ),
}  # fmt: skip
CASES = {**KNOWN, **OTHERS}


def is_held_out(name: str) -> bool:
    """Whether the case decides no change of the search."""
    ordered = sorted(OTHERS, key=lambda other: sha256(other.encode()).digest())
    return name in ordered[:HELD_OUT]


def chosen_cases(names: Sequence[str], results: dict[str, Any]) -> Iterator[tuple[str, Case]]:
    """(name, case) of the named ones; without names, of those that have no result yet."""
    return ((name, CASES[name]) for name in names or (n for n in CASES if n not in results))


def known_cases(result: str) -> dict[str, Any]:
    """The results of a file by the name of the case, in the order of `CASES`; without those of
    another case than today's."""
    file = RESULTS / f"{result}.json"
    results = json.loads(file.read_text())["cases"] if file.exists() else {}
    return {
        name: results[name]
        for name, case in CASES.items()
        if name in results and results[name].get("case") == case.described
    }
