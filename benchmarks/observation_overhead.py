"""Measures the overhead of traces and of the page, with mockers.

    python benchmarks/observation_overhead.py [--rounds 4] [--kinds tracing page] [--short]
Writes results/observation_overhead.json; continues with the kinds that it lacks.

Each kind is measured with three loads, in slices of a few seconds, alternately with and without
what is measured and in random order. A change is the ratio of two slices:

- TTFT: prompts arrive at a fixed rate, at equal times in both slices (Poisson).
- requests/s: a closed loop of clients. The simulated times of the engine limit it, as a GPU would.
- requests/s, CPU-bound: the same with mockers that are 1,000 times faster, so that the CPU limits
  it. The machine has no idle CPU time, and any additional work costs requests.

The page is that of `penstock top --web`, in headless Chromium on the same machine or without a
browser.
For the slices without it, the process that reads the graph is paused: the page then gets no
updates, and its connections stay open. So all slices have the same graph. Tracing is set when a
graph starts, so two graphs run at the same time, one with `--trace`. Two graphs differ by more than
the slices of one graph do: `control` compares two graphs that are identical. Intervals are
Student's, over the logarithms of the ratios of all starts.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, geometric_mean, stdev
from typing import Any

import httpx

from penstock.bench.difference import student
from penstock.drill.graph_process import PENSTOCK, GraphProcess
from report import RESULTS, write_result

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from pictures.browser import browser

KINDS = ("tracing", "page", "page, no browser", "control")
CLIENTS = 32  # of the closed loop
RATE = 12.0  # requests/s of the fixed arrivals
OUTPUT_TOKENS = 24
SETTLE_S = 0.5  # after the updates of the page were paused or continued
MODEL = "openai/gpt-oss-20b"
GRAPH = """\
model: {{id: openai/gpt-oss-20b, context_length: 16384}}
engine: {{kind: mocker, config: {{engine: {{speedup_ratio: {speedup}}}}}}}
prefill: {{replicas: 1}}
decode: {{replicas: 1}}
"""
SENTENCE = "The pressure at the gate rises with the level of the lake behind it. "


Switch = Callable[[bool], None]
Target = Callable[[bool], str]


async def ttft_of(http: httpx.AsyncClient, url: str, prompt: str) -> float:
    """TTFT (ms) of a streamed response, which is read to its end."""
    message = {"role": "user", "content": prompt}
    body = {"model": MODEL, "messages": [message], "stream": True, "max_tokens": OUTPUT_TOKENS}
    sent, first = time.monotonic(), None
    async with http.stream("POST", f"{url}/chat/completions", json=body) as response:
        response.raise_for_status()
        async for _ in response.aiter_raw():
            first = first or time.monotonic()
    assert first is not None
    return 1000 * (first - sent)


async def fixed_arrivals(url: str, seed: str, seconds: float) -> float:
    """Mean TTFT (ms) of prompts of about 2,000 tokens that arrive at `RATE`."""
    rng = random.Random(seed)
    async with httpx.AsyncClient(timeout=60) as http, asyncio.TaskGroup() as group:
        at, began, sent = 0.0, time.monotonic(), []
        while (at := at + rng.expovariate(RATE)) < seconds:
            await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            prompt = f"{random.random()} {SENTENCE * 130}"
            sent.append(group.create_task(ttft_of(http, url, prompt)))
    return fmean(task.result() for task in sent)


async def closed_loop(url: str, _: str, seconds: float) -> float:
    """Requests/s of `CLIENTS` clients with prompts of about 300 tokens."""
    began = time.monotonic()

    async def client() -> int:
        count = 0
        while time.monotonic() < began + seconds:
            await ttft_of(http, url, f"{random.random()} {SENTENCE * 20}")
            count += 1
        return count

    async with httpx.AsyncClient(timeout=60) as http:
        counts = await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return sum(counts) / (time.monotonic() - began)


@dataclass(frozen=True, kw_only=True)
class Load:
    run: Callable[[str, str, float], Coroutine[Any, Any, float]]
    """With the URL, a seed of the arrivals and the duration in seconds."""
    slice_s: float
    pairs: int
    """Pairs of slices after each start."""
    starts: int
    """Starts per round."""
    speedup: float
    """`speedup_ratio` of the mockers."""

    def measure(self, url: str, seed: str) -> float:
        return asyncio.run(self.run(url, seed, self.slice_s))


LOADS = {
    "TTFT": Load(run=fixed_arrivals, slice_s=5.0, pairs=3, starts=1, speedup=1.0),
    "requests/s": Load(run=closed_loop, slice_s=3.0, pairs=4, starts=2, speedup=1.0),
    "requests/s, CPU-bound": Load(run=closed_loop, slice_s=2.0, pairs=4, starts=2, speedup=1000.0),
}


def change(starts: list[float]) -> dict[str, Any]:
    """Geometric mean of the changes after each start, with its 95% interval."""
    logs = [log(one) for one in starts]
    half = 0.0
    if len(logs) > 1:
        half = student(0.975, len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    low, middle, high = (exp(fmean(logs) + part) - 1 for part in (-half, 0.0, half))
    return {
        "change": round(middle, 4),
        "interval": [round(low, 4), round(high, 4)] if half else None,
        "starts": [round(one, 4) for one in starts],
    }


@contextmanager
def started(graph: Path, *options: str) -> Iterator[str]:
    """Base URL of a graph that is ready, in a folder of its own."""
    with GraphProcess(graph, graph.parent, ["--port", "0", *options]) as running:
        running.wait_ready(120)
        yield str(running.state()["endpoint"])


@contextmanager
def page(graph: Path, has_browser: bool) -> Iterator[Switch]:
    """The page of a running graph, and a function that pauses and continues its updates."""
    command = [*PENSTOCK, "top", "--web", str(graph)]
    env = {**os.environ, "PENSTOCK_STATE_HOME": str(graph.parent / "state")}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert server.stdout is not None
    with ExitStack() as stack:
        stack.callback(server.wait)
        stack.callback(server.terminate)
        url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        if has_browser:
            stack.enter_context(browser()).open(url, 1280, 900)

        def switch(is_on: bool) -> None:
            server.send_signal(signal.SIGCONT if is_on else signal.SIGSTOP)
            time.sleep(SETTLE_S)

        stack.callback(switch, True)
        yield switch


@contextmanager
def two_targets(kind: str, load: Load, folder: Path, order: list[bool]) -> Iterator[Target]:
    """A function that returns the URL to load, with or without what is measured."""
    with ExitStack() as stack:

        def start(name: str, *options: str) -> tuple[Path, str]:
            graph = folder / name / "graph.yaml"
            graph.parent.mkdir(parents=True)
            graph.write_text(GRAPH.format(speedup=load.speedup))
            url = stack.enter_context(started(graph, *options))
            load.measure(url, "warm-up")
            return graph, url

        if kind.startswith("page"):
            graph, url = start("a")
            switch = stack.enter_context(page(graph, has_browser=kind == "page"))

            def target(is_measured: bool) -> str:
                switch(is_measured)
                return url

            yield target
            return
        urls = {}
        for is_measured in order:
            options = ["--trace"] if is_measured and kind == "tracing" else []
            _, urls[is_measured] = start("b" if is_measured else "a", *options)
        yield urls.__getitem__


def ratio(kind: str, load: Load, seed: str, folder: Path) -> float:
    """Of slices with and without what is measured, after one start."""
    rng = random.Random(seed)
    with two_targets(kind, load, folder, rng.sample([True, False], 2)) as target:
        ratios = []
        for pair in range(1, load.pairs + 1):
            found = {}
            for is_measured in rng.sample([True, False], 2):
                url = target(is_measured)
                found[is_measured] = load.measure(url, f"{seed} {pair}")
            ratios.append(found[True] / found[False])
    return geometric_mean(ratios)


def measured(kind: str, count: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {name: [] for name in LOADS}
    for number, (name, load) in itertools.product(range(count), LOADS.items()):
        for start in range(load.starts):
            with tempfile.TemporaryDirectory() as tmp:
                one = ratio(kind, load, f"{kind} {number} {start}", Path(tmp))
            print(f"{kind}, round {number}: {name} {one:.3f}", file=sys.stderr)
            found[name].append(one)
    return {name: change(ratios) for name, ratios in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--short", action="store_true", help="one round, and no result file")
    args = parser.parse_args()
    path = RESULTS / "observation_overhead.json"
    known = json.loads(path.read_text())["changes"] if path.exists() and not args.short else {}
    for kind in args.kinds:
        if kind in known:
            continue
        known[kind] = measured(kind, 1 if args.short else args.rounds)
        print(kind, json.dumps(known[kind]), flush=True)
        if not args.short:
            command = f"python benchmarks/observation_overhead.py --rounds {args.rounds}"
            write_result("observation_overhead", command, {"changes": known}, show=False)


if __name__ == "__main__":
    main()
