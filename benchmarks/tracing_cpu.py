"""Measures the CPU time per request that traces add, and how much each part of them adds.

    python benchmarks/tracing_cpu.py [--rounds 8] [--short]
Writes results/tracing_cpu.json.

Each start runs mockers with `speedup_ratio` 1000 under the closed loop of observation_overhead.py,
without Envoy, and sums the CPU time of the graph's processes. A round starts each variant once, in
random order; a change is the ratio to the start without traces. Variants other than `--trace` set
environment variables: this file then runs `up` in a child process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from observation_overhead import GRAPH, change, closed_loop
from penstock.cli.main import main as penstock
from penstock.drill.graph_process import GraphProcess
from penstock.local import tracing
from penstock.local.deployment import Program
from report import write_result

WARM_UP_S, MEASURED_S = 4.0, 5.0
Changes = Mapping[str, str | None]
"""Environment variables to set; None removes one."""
NO_REQUEST_TRACE: Changes = {"DYN_REQUEST_TRACE": None, "DYN_REQUEST_TRACE_SINKS": None}
# Dynamo accepts "1"; the request adapter then measures no client and sends no sampling decision.
AS_ON_A_CLUSTER: Changes = {**NO_REQUEST_TRACE, tracing.ENABLED: "1"}
OFF, ALL = "without traces", "--trace"
VARIANTS: Mapping[str, Changes | None] = {
    OFF: None,
    ALL: {},
    "without request trace": NO_REQUEST_TRACE,
    "as on a cluster, all requests": {**AS_ON_A_CLUSTER, tracing.SAMPLE_RATIO: "1.0"},
    "as on a cluster, 10% of requests": {**AS_ON_A_CLUSTER, tracing.SAMPLE_RATIO: "0.1"},
    "as on a cluster, no request": {**AS_ON_A_CLUSTER, tracing.SAMPLE_RATIO: "0.0"},
}


def up_with(changes: Changes, arguments: list[str]) -> int:
    """`penstock up`, whose traced processes get changed variables."""
    original = tracing.environment

    def changed(url: str, program: Program) -> dict[str, str]:
        env: dict[str, str | None] = {**original(url, program), **changes}
        return {name: value for name, value in env.items() if value is not None}

    tracing.environment = changed
    return penstock(arguments)


def cpu_s(graph: GraphProcess) -> float:
    """CPU time (s) of the graph's processes."""
    up = psutil.Process(graph.pid)
    times = [one.cpu_times() for one in [up, *up.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def measured(changes: Changes | None) -> dict[str, float]:
    """CPU time (ms) per request, and requests/s."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.yaml"
        file.write_text(GRAPH.format(speedup=1000.0))
        options = ["--port", "0", *([] if changes is None else ["--trace"])]
        program = [sys.executable, __file__, "--changes", json.dumps(changes or {}), "--"]
        env = {"PENSTOCK_ENVIRONMENTS": f"{folder}/none"}
        with GraphProcess(file, file.parent, options, env, program) as graph:
            url = graph.wait_ready(120)
            asyncio.run(closed_loop(url, "", WARM_UP_S))
            before, began = cpu_s(graph), time.monotonic()
            rate = asyncio.run(closed_loop(url, "", MEASURED_S))
            spent_s, elapsed_s = cpu_s(graph) - before, time.monotonic() - began
    return {"CPU ms": 1000 * spent_s / (rate * elapsed_s), "requests/s": rate}


def changes_by_variant(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    return {
        name: {
            metric: change([one[name][metric] / one[OFF][metric] for one in rounds])
            for metric in rounds[0][OFF]
        }
        for name in VARIANTS
        if name != OFF
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--short", action="store_true", help="run two variants once and write no file"
    )
    parser.add_argument("--changes", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("up", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.changes is not None:
        sys.exit(up_with(args.changes, args.up))
    names = [OFF, ALL] if args.short else list(VARIANTS)
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(1 if args.short else args.rounds):
        order = random.Random(number).sample(names, len(names))
        rounds.append({name: measured(VARIANTS[name]) for name in order})
        print(number, json.dumps(rounds[-1]), file=sys.stderr, flush=True)
    if not args.short:
        command = f"python benchmarks/tracing_cpu.py --rounds {args.rounds}"
        usual = {m: round(sum(r[OFF][m] for r in rounds) / len(rounds), 2) for m in rounds[0][OFF]}
        write_result("tracing_cpu", command, {OFF: usual, "changes": changes_by_variant(rounds)})


if __name__ == "__main__":
    main()
