"""Suspends, kills and disconnects processes of a graph during requests, and measures the recovery.

python benchmarks/recovery.py [CASE…] [--variant envoy|etcd]   Engines are mockers. Clients retry
server errors twice, as OpenAI's do. Writes benchmarks/results/recovery.json; a case that is named
on the command line replaces its own entry.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphs import ETCD
from penstock.drill.faults import GRAPH as GRAPH_TARGET
from penstock.drill.faults import Fault
from penstock.drill.graph_process import GraphProcess
from penstock.drill.inject import KINDS
from penstock.drill.traffic import StreamResult, Traffic
from penstock.graph.edit import set_replicas
from report import RESULTS, write_result

ROOT = Path(__file__).parents[1]
GRAPH = ROOT / "dynamo_graphs" / "quickstart-simulated.yaml"
RECOVERY_S = 30.0  # seconds of requests after the end of the fault
CONCURRENCY = 8
ROLES = ("frontend", "prefill", "decode", "event-broker", "endpoint")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault. ``inject`` returns when it has ended; ``seconds`` is how long it lasts."""

    name: str
    inject: Callable[[GraphProcess, float], None]
    seconds: float


def cases() -> dict[str, Case]:
    found = [
        Case(name="suspend-all", inject=_inject("suspend-all"), seconds=15),
        Case(name="remove-discovery", inject=_inject("remove-discovery"), seconds=0),
        *(
            Case(name=f"stop-{role}", inject=_inject("stop-long", role), seconds=30)
            for role in ROLES
        ),
        *(Case(name=f"kill-{role}", inject=_kill(role), seconds=10) for role in ROLES),
    ]
    return {case.name: case for case in found}


def _inject(kind: str, program: str | None = None) -> Callable[[GraphProcess, float], None]:
    """A fault of the drill, in the first process of ``program`` or else in the whole graph."""

    def inject(graph: GraphProcess, seconds: float) -> None:
        pids = tuple(graph.pids(program)[:1]) if program else ()
        fault = Fault(
            kind=kind,
            target=program or GRAPH_TARGET,
            role=None,
            has_survivor=True,
            pids=pids,
            **KINDS[kind].effect,
        )
        with KINDS[kind].apply(fault, graph):
            time.sleep(seconds)

    return inject


def _kill(program: str) -> Callable[[GraphProcess, float], None]:
    """SIGKILL five times in a row, each time while all replicas are ready.

    Ends when they are ready again. On a loaded machine a restart takes longer than the interval.
    The next kill could then take the last replica, and requests would fail for want of any.
    """

    def all_ready(state: dict[str, Any]) -> bool:
        return len(_ready(state, program)) == _replicas(state, program)

    def kill(graph: GraphProcess, seconds: float) -> None:
        for _ in range(5):
            state = graph.wait_for(all_ready)
            os.kill(_ready(state, program)[0], signal.SIGKILL)
            time.sleep(seconds / 5)
        graph.wait_for(all_ready)

    return kill


def _replicas(state: dict[str, Any], program: str) -> int:
    return sum(r["program"] == program for r in state["replicas"])


def _ready(state: dict[str, Any], program: str) -> list[int]:
    rows = [r for r in state["replicas"] if r["program"] == program and r["state"] == "ready"]
    return [int(r["pid"]) for r in rows]


async def run(graph: GraphProcess, case: Case, recovery_s: float) -> dict[str, Any]:
    traffic = Traffic(
        graph.state()["endpoint"],
        graph.state()["models"][0],
        requests=1,
        concurrency=CONCURRENCY,
        tokens=40,
        retries=2,
        until_stopped=True,
    )
    begun = time.monotonic()
    task = asyncio.create_task(traffic.run())
    await asyncio.sleep(3)
    start = time.monotonic() - begun
    await asyncio.to_thread(case.inject, graph, case.seconds)
    end = time.monotonic() - begun
    await asyncio.sleep(recovery_s)
    traffic.until_stopped = False
    await task
    return summary(traffic.results, start, end, graph.state())


def summary(
    results: list[StreamResult], start: float, end: float, state: dict[str, Any]
) -> dict[str, Any]:
    after = [r for r in results if r.started_s > end]
    last_failure = max((r.ended_s for r in results if r.error and r.ended_s > start), default=start)
    return {
        "requests": len(results),
        "failed": sum(bool(r.error) for r in results),
        "retried": sum(bool(r.rejections) for r in results),
        "errors": dict(Counter(r.error[:110] for r in results if r.error).most_common(5)),
        "started_after_the_fault": len(after),
        "failed_of_these": sum(bool(r.error) for r in after),
        "longest_request_s": round(max(r.ended_s - r.started_s for r in results), 1),
        "last_failure_after_the_start_s": round(last_failure - start, 1),
        "seconds_after_the_start": round(max(r.ended_s for r in results) - start, 1),
        "states": dict(Counter(r["state"] for r in state["replicas"])),
    }


def measure(case: Case, folder: Path, *, variant: str, recovery_s: float) -> dict[str, Any]:
    folder.mkdir()
    graph_file = folder / "graph.yaml"
    text = set_replicas(GRAPH.read_text(), {"prefill": 2, "decode": 2})
    if variant == "envoy":
        text += "\nfrontend:\n  replicas: 2\n"
    graph_file.write_text(text + (ETCD if variant == "etcd" else ""))
    env = {} if variant == "envoy" else {"PENSTOCK_ENVIRONMENTS": str(folder / "none")}
    arguments = ["--engine", "mocker", "--port", "0"]
    with GraphProcess(graph_file, folder, arguments, env) as graph:
        graph.wait_ready()
        result = asyncio.run(run(graph, case, recovery_s))
        result["exit_code"] = graph.stop()
        result["messages"] = graph.log.read_text().splitlines()[-20:]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="measure the recovery from faults")
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    parser.add_argument("--variant", choices=("plain", "envoy", "etcd"), default="plain")
    parser.add_argument("--recovery", type=float, default=RECOVERY_S, metavar="SECONDS")
    options = parser.parse_args()
    known = cases()
    path = RESULTS / "recovery.json"
    results = json.loads(path.read_text())["cases"] if path.exists() else {}
    for name in options.cases or known:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{options.variant}: {name}", flush=True)
            result = measure(
                known[name],
                Path(folder) / name,
                variant=options.variant,
                recovery_s=options.recovery,
            )
        results[f"{options.variant}: {name}"] = result
    write_result("recovery", "python benchmarks/recovery.py", {"cases": results})


if __name__ == "__main__":
    main()
