"""Priority of interactive requests while batch requests fill the router's queue.

    python benchmarks/priority.py

A graph of mockers with `router.queue_threshold: 0` serves 24 batch streams and two interactive
ones, which send `x-dynamo-request-strict-priority: 1` in every second phase. Writes
benchmarks/results/priority.json.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.drill.traffic import Traffic
from penstock.simulate.window import percentile
from report import write_result

PHASES, PHASE_S = 6, 15.0
BATCH, INTERACTIVE = 24, 2
ARGUMENTS = ("--port", "0", "--set", "router.queue_threshold=0", "--set", "prefill.replicas=1")
SPEED = ("speedup_ratio: 2.0", "speedup_ratio: 0.2")  # so slow that prompts wait in the router


async def phase(url: str, model: str, headers: dict[str, str]) -> tuple[Traffic, Traffic]:
    """Both kinds of requests for `PHASE_S`; the interactive ones have ``headers``."""
    batch = Traffic(url, model, 1, BATCH, tokens=8, until_stopped=True)
    interactive = Traffic(url, model, 1, INTERACTIVE, tokens=8, until_stopped=True, headers=headers)
    tasks = [asyncio.create_task(batch.run())]
    await asyncio.sleep(3)
    tasks.append(asyncio.create_task(interactive.run()))
    await asyncio.sleep(PHASE_S)
    batch.until_stopped = interactive.until_stopped = False
    await asyncio.gather(*tasks)
    return batch, interactive


def summary(runs: list[Traffic]) -> dict[str, Any]:
    results = [result for run in runs for result in run.results]
    served = [r.first_token_s - r.started_s for r in results if not r.error]
    return {
        "requests": len(results),
        "failed": sum(bool(r.error) for r in results),
        "ttft_s_median": round(median(served) if served else 0.0, 3),
        "ttft_s_p99": round(percentile(served, 0.99), 3),
    }


def measure(folder: Path) -> dict[str, Any]:
    runs: dict[bool, list[tuple[Traffic, Traffic]]] = {False: [], True: []}
    graph = copy_graph("quickstart-simulated", folder)
    graph.write_text(graph.read_text("utf-8").replace(*SPEED), "utf-8")
    with GraphProcess(graph, folder, ARGUMENTS) as up:
        url = up.wait_ready()
        model = str(up.state()["models"][0])
        for number in range(PHASES):
            has_priority = bool(number % 2)
            headers = {"x-dynamo-request-strict-priority": "1"} if has_priority else {}
            runs[has_priority].append(asyncio.run(phase(url, model, headers)))
    return {
        "engines": "dynamo.mocker 1.6.1: no tokens were computed",
        "interactive_without_priority": summary([i for _, i in runs[False]]),
        "interactive_with_priority": summary([i for _, i in runs[True]]),
        "batch": summary([b for both in runs.values() for b, _ in both]),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder))
    write_result("priority", "python benchmarks/priority.py", result)
