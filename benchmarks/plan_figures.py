"""Compares the figures that `penstock plan` prints with `penstock simulate` of the planned graph.

python benchmarks/plan_figures.py [--trace FILE]   Writes results/plan_figures.json.

`simulate` lengthens its replays until the state is steady, so a plan whose replays were too short
shows here. --trace: Mooncake's conversation trace; without it, its case is left out.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cli.main import main as penstock
from report import write_result

FIGURES = ("user_rate", "gpu_rate", "ttft_p50_ms", "itl_p50_ms", "goodput")


@dataclass(frozen=True, kw_only=True)
class Case:
    model: str = "gpt-oss-120b"
    gpu: str
    gpus: int
    workload: tuple[str, ...]  # arguments of both commands
    slo: tuple[str, ...]

    def __str__(self) -> str:
        shown = " ".join(part for part in self.workload if "/" not in part)
        return f"{self.model}, {self.gpus} × {self.gpu}, {shown} {' '.join(self.slo)}"


def cases(trace: Path | None) -> list[Case]:
    agentic = ("--workload", "agentic", "--scale", "4")
    slo = ("--ttft", "800ms", "--itl", "15ms")
    found = [
        Case(
            gpu="gb200",
            gpus=64,
            workload=("--workload", "document", "--scale", "40"),
            slo=("--ttft", "2s", "--itl", "20ms"),
        ),
        Case(gpu="b200", gpus=4, workload=agentic, slo=slo),
        Case(model="gpt-oss-20b", gpu="h100", gpus=4, workload=agentic, slo=slo),
        Case(
            gpu="b200",
            gpus=8,
            workload=("--workload", "document", "--scale", "4"),
            slo=("--ttft", "500ms", "--itl", "10ms"),
        ),
    ]
    if trace is not None:
        recorded = ("--workload", "conversation", "--trace", str(trace), "--scale", "8")
        found.append(Case(gpu="b200", gpus=8, workload=recorded, slo=("--ttft", "4s")))
    return found


def printed(*arguments: str) -> dict[str, Any]:
    """The JSON that a command prints."""
    output = io.StringIO()
    with redirect_stdout(output):
        code = penstock([*arguments, "--json", "-q"])
    assert code == 0, arguments
    return dict(json.loads(output.getvalue()))


def measured(case: Case, file: Path) -> dict[str, Any]:
    own = ("--model", case.model, "--gpu", case.gpu, "--gpus", str(case.gpus))
    plan = printed("plan", *own, *case.workload, *case.slo)
    file.write_text(plan["graph"])
    planned = plan["graphs"][0]
    simulated = printed("simulate", str(file), *case.workload)["graphs"][0]
    pairs = {
        name: [one["figures"][name]["median"] for one in (planned, simulated)] for name in FIGURES
    }
    return {
        "recommended": plan["recommended"],
        "router": plan["router"]["reason"],
        "replays": plan["replays"],
        "steady": [planned["is_steady"], simulated["is_steady"]],
        "planned and simulated": {k: [round(v, 4) for v in pair] for k, pair in pairs.items()},
        "planned / simulated": {
            name: round(one / other, 3) for name, (one, other) in pairs.items() if other
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace", type=Path)
    trace = parser.parse_args().trace
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(trace):
            results[str(case)] = measured(case, Path(folder) / "planned.yaml")
            print(case, json.dumps(results[str(case)], ensure_ascii=False), flush=True)
    command = "python benchmarks/plan_figures.py --trace FILE"
    write_result("plan_figures", command, {"cases": results}, show=False)


if __name__ == "__main__":
    main()
