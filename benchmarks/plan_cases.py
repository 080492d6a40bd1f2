"""The requests to `penstock plan` that several benchmarks share.

Three models, four GPUs, generated traffic, conversations and a trace, tight and loose SLOs, and 2
to 64 GPUs. The search was developed with those that are not `is_held_out`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.graph.slo import Slo
from penstock.plan.request import Objective, PlanRequest, plan_request
from penstock.simulate.acceptance import PUBLISHED
from penstock.workload import find_workload
from penstock.workload.load import LoadedWorkload
from report import RESULTS

TRACE = "conversation"  # the ready workload that reads Mooncake's conversation trace
ATTAIN = 0.95  # the default of `penstock plan`


@dataclass(frozen=True, kw_only=True)
class Case:
    model: str = "gpt-oss-120b"
    gpu: str
    gpus: int
    workload: str
    scale: float
    ttft_ms: float
    itl_ms: float | None = None
    objective: Objective = Objective.COST
    acceptance: str | None = None  # kind of text; None: without speculative decoding
    is_held_out: bool = False

    def request(self, scratch: Path, trace: Path | None) -> tuple[PlanRequest, LoadedWorkload]:
        """``trace``: Mooncake's conversation trace, which one case needs."""
        file = trace if self.workload == TRACE else None
        loaded = find_workload(self.workload, file).scaled(self.scale)
        request = plan_request(
            self.model,
            loaded,
            scratch=scratch,
            gpu=self.gpu,
            gpus=self.gpus,
            slo=Slo(ttft_ms=self.ttft_ms, itl_ms=self.itl_ms),
            objective=self.objective,
            attain=ATTAIN,
            acceptance=PUBLISHED[self.acceptance].rates if self.acceptance else None,
        )
        return request, loaded


CASES = {
    "long prompts, speed": Case(
        gpu="b200", gpus=8, workload="long-context", scale=8, ttft_ms=2000, itl_ms=50,
        objective=Objective.INTERACTIVITY,
    ),
    "documents, cost": Case(
        gpu="b200", gpus=8, workload="document", scale=4, ttft_ms=500, itl_ms=10
    ),
    "documents, speed, H200": Case(
        gpu="h200", gpus=8, workload="document", scale=1, ttft_ms=1000, itl_ms=20,
        objective=Objective.INTERACTIVITY,
    ),
    "agents, cost": Case(gpu="gb200", gpus=8, workload="agentic", scale=4, ttft_ms=500, itl_ms=8),
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
        itl_ms=20,
    ),
    "documents, cost, Qwen3-32B": Case(
        model="Qwen/Qwen3-32B", gpu="h100", gpus=16, workload="document", scale=1, ttft_ms=3000,
        itl_ms=40, is_held_out=True,
    ),
    "agents, cost, 16 H200": Case(
        gpu="h200", gpus=16, workload="agentic", scale=6, ttft_ms=400, itl_ms=10, is_held_out=True
    ),
    "long prompts, cost, 20b": Case(
        model="gpt-oss-20b", gpu="h100", gpus=8, workload="long-context", scale=4, ttft_ms=4000,
        itl_ms=25, is_held_out=True,
    ),
    "chat, speed, 16 B200": Case(
        gpu="b200", gpus=16, workload="short-chat", scale=4, ttft_ms=300, itl_ms=6,
        objective=Objective.INTERACTIVITY, is_held_out=True,
    ),
    "chat, throughput, Qwen3-32B": Case(
        model="Qwen/Qwen3-32B", gpu="b200", gpus=4, workload="short-chat", scale=1, ttft_ms=1000,
        itl_ms=25, objective=Objective.THROUGHPUT, is_held_out=True,
    ),
    "agents, cost, 20b": Case(
        model="gpt-oss-20b", gpu="h100", gpus=4, workload="agentic", scale=4, ttft_ms=800, itl_ms=15
    ),
    "trace, cost": Case(gpu="b200", gpus=8, workload=TRACE, scale=8, ttft_ms=4000),
    "documents, cost, 64 GB200": Case(
        gpu="gb200", gpus=64, workload="document", scale=40, ttft_ms=2000, itl_ms=20
    ),
    # Few enough candidates to replay all of them with all router settings.
    "documents, speed, 2 H200": Case(
        gpu="h200", gpus=2, workload="document", scale=0.5, ttft_ms=1000, itl_ms=20,
        objective=Objective.INTERACTIVITY, is_held_out=True,
    ),
    "agents, speed, 2 GB200": Case(
        gpu="gb200", gpus=2, workload="agentic", scale=1, ttft_ms=500, itl_ms=10,
        objective=Objective.INTERACTIVITY, is_held_out=True,
    ),
    "chat, speed, 20b, 2 H100": Case(
        model="gpt-oss-20b", gpu="h100", gpus=2, workload="short-chat", scale=2, ttft_ms=300,
        itl_ms=10, objective=Objective.INTERACTIVITY, is_held_out=True,
    ),
    "long prompts, cost, 2 B200": Case(
        gpu="b200", gpus=2, workload="long-context", scale=2, ttft_ms=3000, itl_ms=20,
        is_held_out=True,
    ),
    "chat, speed, EAGLE-3": Case(
        gpu="b200", gpus=8, workload="short-chat", scale=4, ttft_ms=500, itl_ms=8,
        objective=Objective.INTERACTIVITY, acceptance="chat", is_held_out=True,
    ),
    "documents, cost, EAGLE-3": Case(
        gpu="h200", gpus=8, workload="document", scale=1, ttft_ms=1500, itl_ms=8,
        acceptance="summary", is_held_out=True,
    ),
    "agents, cost, 64 GB200": Case(
        gpu="gb200", gpus=64, workload="agentic", scale=40, ttft_ms=800, itl_ms=10
    ),
}  # fmt: skip


def add_cases(parser: argparse.ArgumentParser) -> None:
    """The cases to run, and the trace that one of them needs."""
    parser.add_argument("--trace", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])


def chosen_cases(args: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    """(name, case) of the named ones, or of all; the trace's only with its file."""
    for name in args.cases or CASES:
        if CASES[name].workload == TRACE and args.trace is None:
            print(f"{name}: left out without --trace", file=sys.stderr)
        else:
            yield name, CASES[name]


def known_cases(result: str) -> dict[str, Any]:
    """The cases in a result file, by name; empty without a file."""
    file = RESULTS / f"{result}.json"
    return dict(json.loads(file.read_text())["cases"]) if file.exists() else {}


def in_order(results: dict[str, Any]) -> dict[str, Any]:
    """In the order of `CASES`."""
    return {name: results[name] for name in CASES if name in results}
