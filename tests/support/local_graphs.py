"""Shared by the end-to-end tests: graphs, what is done to them under load, what they leave."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from penstock.drill.graph_process import GraphProcess
from penstock.drill.traffic import Traffic
from tests.support.waiting import first

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "dynamo_graphs" / "quickstart-simulated.yaml"

Up = Callable[..., GraphProcess]


def without_envoy(folder: Path) -> dict[str, str]:
    """The plain machine: no environment is installed."""
    return {"PENSTOCK_ENVIRONMENTS": str(folder / "no-environments")}


def left(folder: Path) -> list[psutil.Process]:
    """Processes of graphs whose state lies under ``folder``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PENSTOCK_STATE", "").startswith(str(folder)):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def assert_nothing_left(folder: Path) -> None:
    """No process, no discovery entry, no temporary file: only the logs (and up's own words)."""
    assert left(folder) == []
    run = [p for p in (folder / "state").glob("*/run/**/*") if p.is_file()]
    assert run == []
    assert list((folder / "state").glob("*/state.json")) == []


def listening(folder: Path) -> set[str]:
    """The addresses that processes of the graphs under ``folder`` listen on."""
    return {
        connection.laddr.ip
        for process in left(folder)
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }


@contextmanager
def running_graph(
    graph: Path,
    folder: Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    start_s: int = 120,
) -> Iterator[GraphProcess]:
    """A ready graph that ends, and leaves nothing in ``folder``. ``env``: default: no Envoy."""
    limit = ("--start-timeout-s", str(start_s))
    variables = without_envoy(folder) if env is None else env
    with GraphProcess(graph, folder, [*arguments, *limit], variables) as process:
        process.wait_ready(start_s)
        yield process
    assert_nothing_left(folder)


def traffic_during(
    graph: GraphProcess, *steps: Callable[[], object], concurrency: int = 8, tokens: int = 60
) -> Traffic:
    """Send streams while ``steps`` run. Each step begins after ``concurrency`` more streams have
    ended. A rejected request is sent again, as OpenAI's clients do: the frontend rejects requests
    until it knows that a worker has exited."""
    state = graph.state()
    url, model = str(state["endpoint"]), str(state["models"][0])
    traffic = Traffic(url, model, 1, concurrency, tokens, retries=2, until_stopped=True)

    async def ended() -> int:
        return len(traffic.results)

    async def run() -> None:
        sending = asyncio.create_task(traffic.run())
        try:
            for step in (*steps, lambda: None):
                due = len(traffic.results) + concurrency
                await first(ended, due.__le__, f"{concurrency} more streams have ended")
                await asyncio.to_thread(step)
        finally:
            traffic.until_stopped = False
            await sending

    asyncio.run(run())
    return traffic


def scaled(graph: GraphProcess, **replicas: int) -> None:
    """Scale with the command, and wait until exactly so many are ready."""
    sizes = [f"{pool}={count}" for pool, count in replicas.items()]
    done = graph.penstock("scale", str(graph.graph), *sizes)
    assert done.returncode == 0, done.stderr
    graph.wait_counts(**replicas)


def replaced(graph: GraphProcess, pool: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process of the pool, and wait until another one serves in its place."""
    before = graph.pids(pool)
    os.kill(before[0], number)
    graph.wait_for(lambda s: before[0] not in {r["pid"] for r in s["replicas"]})
    graph.wait_counts(**{pool: len(before)})
