"""Scales, kills and stops workers during requests by editing the graph, and counts failed requests.

python benchmarks/edit_under_load.py   Engines are mockers: routing, migration and supervision are
real, the tokens are not. Writes benchmarks/results/edit_under_load.json. Rejected requests are
retried twice, as OpenAI's clients do, and counted with the frontend's error. One run of about 20
had two responses of status 500, not reproduced since. We suspect that the selected worker ended
before the request was sent to it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.drill.graph_process import GraphProcess
from penstock.drill.traffic import Traffic
from penstock.graph.edit import set_replicas
from report import write_result

ROOT = Path(__file__).parents[1]
GRAPH = ROOT / "dynamo_graphs" / "quickstart-simulated.yaml"

Step = tuple[str, Callable[[], None]]


def steps(graph: GraphProcess) -> list[Step]:
    """The steps, in order, evenly distributed over the requests."""

    def scale(**replicas: int) -> Step:
        sizes = [f"{pool}={count}" for pool, count in replicas.items()]

        def edit() -> None:
            done = graph.penstock("scale", str(graph.graph), *sizes)
            assert done.returncode == 0, done.stderr
            graph.wait_counts(**replicas)

        return "scale " + " ".join(sizes), edit

    def send(number: signal.Signals, pool: str) -> Step:
        def act() -> None:
            before = graph.pids(pool)
            os.kill(before[0], number)
            graph.wait_for(lambda s: before[0] not in _ready_pids(s, pool))
            graph.wait_counts(**{pool: len(before)})

        return f"{number.name} to one {pool}", act

    return [
        scale(decode=4),
        scale(prefill=3),
        scale(decode=1),
        scale(prefill=1),
        scale(decode=3, prefill=2),
        send(signal.SIGKILL, "decode"),
        send(signal.SIGKILL, "prefill"),
        send(signal.SIGTERM, "decode"),
        send(signal.SIGTERM, "prefill"),
        scale(decode=2),
    ]


def _ready_pids(state: dict[str, Any], pool: str) -> list[int]:
    rows = [r for r in state["replicas"] if r["program"] == pool and r["state"] == "ready"]
    return [int(r["pid"]) for r in rows]


async def run(graph: GraphProcess, traffic: Traffic) -> list[dict[str, Any]]:
    """Runs traffic and steps concurrently; each step starts at its share of the requests."""
    log: list[dict[str, Any]] = []
    traffic.until_stopped = True
    plan = steps(graph)
    task = asyncio.create_task(traffic.run())
    for at, (name, act) in enumerate(plan, start=1):
        due = traffic.requests * at // (len(plan) + 1)
        while len(traffic.results) < due and not task.done():
            await asyncio.sleep(0.05)
        begun = len(traffic.results)
        await asyncio.to_thread(act)
        log.append({"step": name, "requests_before": begun, "after": len(traffic.results)})
    traffic.until_stopped = False
    await task
    return log


def measure(folder: Path, requests: int, concurrency: int = 32, tokens: int = 60) -> dict[str, Any]:
    """One run on a copy of the quickstart graph, from one prefill and two decode workers."""
    graph_file = folder / "graph.yaml"
    graph_file.write_text(set_replicas(GRAPH.read_text(), {"prefill": 1}))
    with GraphProcess(graph_file, folder, ["--engine", "mocker", "--port", "0"]) as graph:
        url = graph.wait_ready()
        model = str(graph.state()["models"][0])
        traffic = Traffic(url, model, requests, concurrency, tokens, retries=2)
        log = asyncio.run(run(graph, traffic))
        errors = _frontend_errors(folder)
        exit_code = graph.stop()
    first = sorted(o.first_token_s - o.started_s for o in traffic.results if not o.error)
    return {
        "engines": "dynamo.mocker 1.6.1: no tokens were computed",
        "requests": len(traffic.results),
        "concurrency": concurrency,
        "output_tokens": tokens,
        "failed": len(traffic.failures),
        "failures": [f"{o.number}: {o.error}" for o in traffic.failures][:20],
        "retried": len(traffic.retried),
        "rejections": [f"{o.number}: {'; '.join(o.rejections)}" for o in traffic.retried][:20],
        "frontend_errors": errors,
        "seconds": round(max(o.ended_s for o in traffic.results), 1),
        "ttft_p50_ms": round(statistics.median(first) * 1000, 1),
        "ttft_p99_ms": round(first[int(len(first) * 0.99)] * 1000, 1),
        "steps": log,
        "exit_code": exit_code,
    }


def _frontend_errors(folder: Path) -> list[str]:
    """The errors that the frontend logged for rejected requests."""
    lines = (
        line
        for log in folder.glob("state/*/logs/frontend.*.log")
        for line in log.read_text(errors="replace").splitlines()
    )
    mark = "Internal server error: "
    return [line.partition(mark)[2].partition(" method=")[0] for line in lines if mark in line][:20]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), requests=2000)
    write_result("edit_under_load", "python benchmarks/edit_under_load.py", result)
