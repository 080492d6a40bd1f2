"""Measures the CPU time per request of a frontend with and without the request adapter of `up`.

    python benchmarks/adapter_cpu.py [--rounds 8] [--short]
Writes results/adapter_cpu.json.

`up` starts one graph of mockers. This script starts a second frontend in the same graph, with the
arguments of the first one but without the adapter. So both have the same workers, event broker and
supervisor, whose probes are subtracted. Slices of a few seconds load one frontend after the other,
in random order, and sum the CPU time of the loaded process. Prompts have about 300 tokens, outputs
24.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from observation_overhead import CLIENTS, GRAPH, MODEL, OUTPUT_TOKENS, SENTENCE, change
from penstock.drill.graph_process import GraphProcess
from penstock.local.ports import LOOPBACK, Ports
from report import write_result

SLICE_S, IDLE_S, WARM_UP_S = 3.0, 5.0, 6.0
WITH, WITHOUT = "with the adapter", "without it"
LOADS = {"streams": True, "single responses": False}


async def closed_loop(url: str, is_stream: bool, seconds: float) -> int:
    """The number of requests that `CLIENTS` clients send one after the other."""
    began = time.monotonic()

    async def client(http: httpx.AsyncClient) -> int:
        count = 0
        while time.monotonic() < began + seconds:
            message = {"role": "user", "content": f"{random.random()} {SENTENCE * 20}"}
            body = {"model": MODEL, "messages": [message], "max_tokens": OUTPUT_TOKENS}
            answer = await http.post(
                f"{url}/v1/chat/completions", json=body | {"stream": is_stream}
            )
            answer.raise_for_status()
            count += 1
        return count

    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        return sum(await asyncio.gather(*(client(http) for _ in range(CLIENTS))))


def without_adapter(argv: list[str], port: int) -> list[str]:
    """The command line of the same frontend. Each option of the adapter has one value."""
    rest = argv[2:]
    kept = []
    while rest:
        if rest[0].startswith(("--adapter-", "--http-host", "--http-port")):
            rest = rest[2:]
        else:
            kept.append(rest.pop(0))
    http = ["--http-host", LOOPBACK, "--http-port", str(port)]
    return [argv[0], "-m", "dynamo.frontend", *kept, *http]


@contextmanager
def second_frontend(first: psutil.Process, *more: str) -> Iterator[tuple[psutil.Process, str]]:
    """A frontend without the adapter in the graph of ``first``, and its URL. ``more``: options."""
    port = Ports().free()
    env = first.environ() | {"DYN_SYSTEM_PORT": str(Ports().free())}
    argv = [*without_adapter(first.cmdline(), port), *more]
    process = subprocess.Popen(argv, env=env, cwd=first.cwd(), stdout=subprocess.DEVNULL)
    url = f"http://{LOOPBACK}:{port}"
    try:
        deadline = time.monotonic() + 180
        while not lists_the_model(url):
            if time.monotonic() > deadline:
                raise TimeoutError("the second frontend lists no model")
            time.sleep(0.2)
        yield psutil.Process(process.pid), url
    finally:
        process.terminate()
        process.wait(30)


def lists_the_model(url: str) -> bool:
    try:
        return bool(httpx.get(f"{url}/v1/models", trust_env=False).json()["data"])
    except httpx.TransportError:
        return False


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def idle_share(process: psutil.Process) -> float:
    """CPU time per second without requests. The supervisor probes only the first frontend."""
    before = cpu_s(process)
    time.sleep(IDLE_S)
    return (cpu_s(process) - before) / IDLE_S


def cpu_ms(process: psutil.Process, url: str, is_stream: bool, idle: float) -> float:
    """CPU time of the process per request, without its ``idle`` share."""
    before, began = cpu_s(process), time.monotonic()
    count = asyncio.run(closed_loop(url, is_stream, SLICE_S))
    spent_s = cpu_s(process) - before - idle * (time.monotonic() - began)
    return 1000 * spent_s / count


def measured(rounds: int) -> dict[str, list[dict[str, float]]]:
    """For each load, the CPU time in each round."""
    results: dict[str, list[dict[str, float]]] = {load: [] for load in LOADS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.yaml"
        file.write_text(GRAPH.format(speedup=1.0))
        # Without Envoy, so that the endpoint is the frontend.
        env = {"PENSTOCK_ENVIRONMENTS": f"{folder}/none"}
        with GraphProcess(file, file.parent, ["--port", "0"], env) as graph:
            url = graph.wait_ready(120).removesuffix("/v1")
            adapted = psutil.Process(graph.pids("frontend")[0])
            with second_frontend(adapted) as (plain, plain_url):
                frontends = {WITH: (adapted, url), WITHOUT: (plain, plain_url)}
                for _, target in frontends.values():
                    asyncio.run(closed_loop(target, True, WARM_UP_S))
                idle = {name: idle_share(process) for name, (process, _) in frontends.items()}
                print(json.dumps(idle), file=sys.stderr)
                for number in range(rounds):
                    rng = random.Random(number)
                    for load, is_stream in LOADS.items():
                        names = rng.sample(list(frontends), 2)
                        slices = {n: cpu_ms(*frontends[n], is_stream, idle[n]) for n in names}
                        results[load].append(slices)
                        print(number, load, json.dumps(slices), file=sys.stderr, flush=True)
    return results


def summarized(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """The medians also tell on a machine on which other programs run."""
    return {
        f"median CPU ms {WITHOUT}": round(median(r[WITHOUT] for r in rounds), 3),
        f"median CPU ms {WITH}": round(median(r[WITH] for r in rounds), 3),
        "median ratio": round(median(r[WITH] / r[WITHOUT] for r in rounds), 3),
        "change": change([r[WITH] / r[WITHOUT] for r in rounds]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--short", action="store_true", help="one round, and no result file")
    args = parser.parse_args()
    results = measured(1 if args.short else args.rounds)
    summary = {load: summarized(rounds) for load, rounds in results.items()}
    if args.short:
        print(json.dumps(summary, indent=1))
    else:
        command = f"python benchmarks/adapter_cpu.py --rounds {args.rounds}"
        write_result("adapter_cpu", command, summary)


if __name__ == "__main__":
    main()
