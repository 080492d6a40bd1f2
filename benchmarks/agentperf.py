"""AgentPerf against graphs: the context length that agentperf-local reads, and its own verdict.

python benchmarks/agentperf.py
Writes results/agentperf.json. A graph of gpt-oss-120b runs as mockers with predicted times, and the
quickstart graph runs SmolLM2 on llama.cpp, whose context is shorter than the benchmark's. The load
of the machine, which is recorded with each run, changes the speeds but not the verdict.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from report import write_result

LATENCY = "dynamo_graphs/gpt-oss-120b-b200-latency.yaml"
MOCKER = (LATENCY, "--start", "--engine", "mocker", "--timing", "model")
QUICKSTART = (
    *("dynamo_graphs/quickstart.yaml", "--start"),
    *("--set", "model.context_length=8192"),
)
RUNS = {
    "gpt-oss-120b as mockers, aa-mini-v1": (*MOCKER, "--replay", "aa-mini-v1"),
    "gpt-oss-120b as mockers, agentperf-default-v1": (*MOCKER, "--replay", "agentperf-default-v1"),
    "SmolLM2 on llama.cpp, aa-mini-v1": (*QUICKSTART, "--replay", "aa-mini-v1"),
}
RATES = ("output_tokens_per_second", "end_to_end_output_tokens_per_second")


def measured(arguments: tuple[str, ...]) -> dict[str, Any]:
    """The tool's verdict and figures; a run whose turns fail has them too."""
    method = ("--method", "artificial-analysis", "--part", "agentperf")
    command = ["penstock", "bench", "public", *arguments, *method, "--json"]
    before = os.getloadavg()[0]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    document = json.loads(done.stdout)
    loads = [round(load, 1) for load in (before, os.getloadavg()[0])]
    summary = document["summary"]
    return {
        "command": " ".join(command),
        "exit_code": done.returncode,
        "load_average": loads,  # of one minute, before and after the run
        "context": document["context"],
        "has_full_context": document["has_full_context"],
        "totals": summary["totals"],
        "latencies_ms": summary["latency_distributions_ms"],
        **{name: summary[name] for name in RATES},
        "remarks": document["remarks"],
    }


def main() -> None:
    runs = {}
    for name, arguments in RUNS.items():
        runs[name] = measured(arguments)
        print(name, json.dumps(runs[name]["context"]), flush=True)
    write_result("agentperf", "python benchmarks/agentperf.py", {"runs": runs}, show=False)


if __name__ == "__main__":
    main()
