"""Compares a live twin (`up --timing model`) with the replay of the same requests, at three speeds.

python benchmarks/twin.py   Writes results/twin.json; needs the environment sim. Both have the same
step times, so a difference is the overhead of serving. It takes its time of this machine whatever
the speed of the twin: `serving_overhead_wall_ms`, from engines a thousand times as fast.
Milliseconds are of simulated time, unless a name has `wall`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from penstock.drill.graph_process import GraphProcess
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.metrics import served_requests
from penstock.simulate.replay import Cache, Job, Replays, as_trace
from penstock.simulate.replayable import replayable
from penstock.simulate.window import ServedRequest
from penstock.twin.twin import TOLERANCE, LatencyPercentiles, LiveClient, latency_percentiles
from penstock.workload import Request, Workload, sample
from penstock.workload.model import Arrival, Lengths, SystemPrompts
from report import write_result

GRAPHS = Path(__file__).parents[1] / "dynamo_graphs"
CASES = {
    "gpt-oss-120b-b200-disagg": ("prefill.replicas=2", "frontend.replicas=1"),
    "gpt-oss-120b-b200-latency": ("frontend.replicas=1",),
    "gpt-oss-120b-h100-throughput": ("worker.replicas=2", "frontend.replicas=1"),
}
SPEEDS = (1.0, 0.5, 0.25)
NO_TIME = 1000.0  # a speed at which step times are negligible
SEEDS = 3  # replays: the KV router breaks ties randomly
WORKLOAD = Workload(
    requests=40,
    input=Lengths(mean=4096, cv=0.5, max=12288),
    output=Lengths(mean=96, cv=0.3, max=192),
    arrival=Arrival(poisson=3.0),
    system_prompts=SystemPrompts(tokens=1024, count=4),
)


def simulated(
    graph: Path, sets: tuple[str, ...], requests: tuple[Request, ...]
) -> list[ServedRequest]:
    """The replay whose TTFT p50 is the median of ``SEEDS`` replays'."""
    found = replayable(open_source(graph, sets), Hints())
    jobs = [
        Job(replayable=found, trace=as_trace(requests), concurrency=None, sample_ms=1000, seed=seed)
        for seed in range(SEEDS)
    ]
    with Replays(Cache(None, "")) as replays:
        runs = [served_requests(answer) for answer in replays.run(jobs)]
    return sorted(runs, key=lambda run: latency_percentiles(run).ttft_p50)[SEEDS // 2]


@contextmanager
def running(graph: Path, sets: tuple[str, ...], speed: float) -> Iterator[GraphProcess]:
    """The live twin of a graph; ready."""
    flags = [flag for one in sets for flag in ("--set", one)]
    argv = ["--engine", "mocker", "--timing", "model", "--speed", f"{speed:g}", "--port", "0"]
    with (
        tempfile.TemporaryDirectory(prefix="penstock-twin-") as folder,
        GraphProcess(graph, Path(folder), [*argv, *flags]) as up,
    ):
        up.wait_ready(180)
        yield up


def served(
    up: GraphProcess, requests: tuple[Request, ...], speed: float, salt: str
) -> list[ServedRequest]:
    """The requests as the client measured them. Prompts with another ``salt`` are not cached."""
    url, model = up.wait_ready(), up.state()["models"][0]
    client = LiveClient(url=url, model=model, speed=speed)
    return asyncio.run(client.serve(requests, salt))


def live(
    graph: Path, sets: tuple[str, ...], requests: tuple[Request, ...], speed: float
) -> tuple[list[ServedRequest], dict[str, Any]]:
    """The requests as the client measured them, and the processor cores that were used."""
    with running(graph, sets, speed) as up:
        comparison = own_comparison(up)
        before, begun = _seconds(up), time.monotonic()
        done = served(up, requests, speed, "benchmark")
        took = time.monotonic() - begun
        used = {name: _seconds(up)[name] - seconds for name, seconds in before.items()}
    cores = {name: round(seconds / took, 2) for name, seconds in used.items()}
    return done, {"comparison_by_up": comparison, "cores": cores}


def own_comparison(up: GraphProcess) -> str:
    """The comparison that `up` prints when its own requests have ended."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for line in up.log.read_text().splitlines():
            if line.startswith("twin: "):
                return line
        time.sleep(0.2)
    raise TimeoutError(up.log.read_text())


def _seconds(up: GraphProcess) -> dict[str, float]:
    """Processor seconds of each program, of `up`, and of the client (this process)."""
    pids = {row["program"]: up.pids(row["program"]) for row in up.state()["replicas"]}
    pids |= {"up": [up.pid], "client": [os.getpid()]}
    return {
        name: sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in some)
        for name, some in pids.items()
    }


def compared(
    requests: tuple[Request, ...],
    here: list[ServedRequest],
    there: list[ServedRequest],
    speed: float,
) -> dict[str, Any]:
    """``relative_difference``: live / simulated - 1. ``added_ms``: of the median request."""
    late = [(h.arrived_ms - (r.at_ms or 0)) / speed for h, r in zip(here, requests, strict=True)]
    ttft = [(h.ttft_ms - t.ttft_ms) / speed for h, t in zip(here, there, strict=True)]
    itl = [
        (h.itl_ms - t.itl_ms) / speed
        for h, t in zip(here, there, strict=True)
        if h.itl_ms is not None and t.itl_ms is not None
    ]
    ours, theirs = asdict(latency_percentiles(here)), asdict(latency_percentiles(there))
    difference = {
        name: round(ours[name] / theirs[name] - 1, 3)
        for name in LatencyPercentiles.__dataclass_fields__
    }
    return {
        "live": {name: round(value, 2) for name, value in ours.items()},
        "simulated": {name: round(value, 2) for name, value in theirs.items()},
        "relative_difference": difference,
        "within_tolerance": abs(difference["ttft_p50"]) <= TOLERANCE
        and abs(difference["itl_p50"]) <= TOLERANCE,
        "added_ms": {"ttft_wall": round(median(ttft), 2), "itl_wall": round(median(itl), 3)},
        "prefix_hit_rate": {"live": _prefix_hit_rate(here), "simulated": _prefix_hit_rate(there)},
        "sent_late_wall_ms": round(max(late), 1),
    }


def _prefix_hit_rate(run: list[ServedRequest]) -> float:
    return round(sum(r.cached_tokens for r in run) / sum(r.input_tokens for r in run), 3)


def serving_overhead_ms(graph: Path, sets: tuple[str, ...], requests: tuple[Request, ...]) -> float:
    """Wall time to the first token with negligible step times, at the same requests/s."""
    spread = tuple(replace(r, at_ms=(r.at_ms or 0) * NO_TIME) for r in requests)
    here, _ = live(graph, sets, spread, NO_TIME)
    return round(median(one.ttft_ms for one in here) / NO_TIME, 2)


def case(name: str, sets: tuple[str, ...]) -> list[dict[str, Any]]:
    graph, requests = GRAPHS / f"{name}.yaml", sample(WORKLOAD, 0)
    there = simulated(graph, sets, requests)
    alone = serving_overhead_ms(graph, sets, requests)
    rows = []
    for speed in SPEEDS:
        here, more = live(graph, sets, requests, speed)
        row = {"graph": name, "set": sets, "speed": speed, "serving_overhead_wall_ms": alone}
        rows.append(row | compared(requests, here, there, speed) | more)
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    rows = [row for name, sets in CASES.items() for row in case(name, sets)]
    write_result(
        "twin",
        "python benchmarks/twin.py",
        {"workload": WORKLOAD.model_dump(exclude_none=True), "tolerance": TOLERANCE, "rows": rows},
    )


if __name__ == "__main__":
    main()
