"""Changes the engine configuration several times during requests, and counts failed requests.

    python benchmarks/change_generation.py

Engines are mockers, and no Envoy retries a request. Each edit starts a new generation of all
workers; the old one is removed when every frontend reports the new one as ready. Writes
benchmarks/results/change_generation.json.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from penstock.drill.graph_process import GraphProcess
from penstock.drill.traffic import Traffic
from penstock.graph.edit import set_replicas
from report import write_result

GRAPH = Path(__file__).parents[1] / "dynamo_graphs" / "quickstart-simulated.yaml"
SPEED = "speedup_ratio: 2.0"
EDITS = 8
BETWEEN_S = 2.0


async def run(graph: GraphProcess, text: str, traffic: Traffic, edits: int) -> None:
    """``edits`` edits, each after the old generation is gone."""
    traffic.until_stopped = True
    task = asyncio.create_task(traffic.run())
    for number in range(edits):
        await asyncio.sleep(BETWEEN_S)
        old = {*graph.pids("prefill"), *graph.pids("decode")}
        graph.graph.write_text(text.replace(SPEED, f"speedup_ratio: {2.1 + number / 10:.1f}"))
        await asyncio.to_thread(graph.wait_for, _without(old))
    traffic.until_stopped = False
    await task


def _without(pids: set[int]) -> Any:
    return lambda state: not pids & {r["pid"] for r in state["replicas"]}


def measure(folder: Path, edits: int = EDITS, retries: int = 0) -> dict[str, Any]:
    """``retries``: of the clients, after an error instead of a stream."""
    text = set_replicas(GRAPH.read_text(), {"decode": 2})
    file = folder / "graph.yaml"
    file.write_text(text)
    env = {"PENSTOCK_ENVIRONMENTS": str(folder / "none")}
    with GraphProcess(file, folder, ["--port", "0"], env) as graph:
        url = graph.wait_ready()
        traffic = Traffic(url, str(graph.state()["models"][0]), 100, 32, 40, retries=retries)
        asyncio.run(run(graph, text, traffic, edits))
    return {
        "engines": "dynamo.mocker 1.6.1: no tokens were computed",
        "edits": edits,
        "requests": len(traffic.results),
        "concurrency": 32,
        "retried": len(traffic.retried),
        "failed": len(traffic.failures),
        "failures": dict(Counter(o.error[:60] for o in traffic.failures)),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder))
    write_result("change_generation", "python benchmarks/change_generation.py", result)
