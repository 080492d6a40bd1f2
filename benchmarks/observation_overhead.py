"""What traces and the page cost: requests/s and TTFT of a graph with and without them, on mockers.

    python benchmarks/observation_overhead.py [--rounds 8] [--kinds tracing page] [--short]
Writes results/observation_overhead.json; continues with the kinds that it lacks.

In each round, two equal graphs start and run at the same time, B with traces or with `penstock
page`, which headless Chromium displays on the same machine. Clients send to A and B in turn, in
slices of a few seconds and random order. A change is the ratio B / A of two slices. Two equal
graphs differ by more than two slices of one graph do, so the interval is a bootstrap over rounds,
and `control` compares two graphs that have neither traces nor the page.
`saturated`: mockers without simulated times, so that all time is that of Dynamo and the clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, geometric_mean, quantiles
from typing import Any

import httpx

from penstock.drill.graph_process import GraphProcess
from report import RESULTS, write_result

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from pictures.browser import browser

KINDS = ("control", "tracing", "tracing, saturated", "page", "page, saturated")
CONCURRENCY = 8
SLICE_S = 4.0
PAIRS = 4  # of slices per round
GRAPH = """\
model: {{id: openai/gpt-oss-20b, context_length: 16384}}
engine: {{kind: mocker, config: {{engine: {{speedup_ratio: {speedup}}}}}}}
prefill: {{replicas: 1}}
decode: {{replicas: 1}}
"""
PROMPT = "The pressure at the gate rises with the level of the lake behind it. " * 20


async def sliced(url: str, seed: int) -> tuple[float, float]:
    """Requests/s and mean TTFT (ms) of a closed loop of clients."""
    rng, began = random.Random(seed), time.monotonic()
    ttft: list[float] = []
    end = began + SLICE_S

    async def client() -> None:
        while time.monotonic() < end:
            message = {"role": "user", "content": f"{rng.random()} {PROMPT}"}
            body = {"model": "openai/gpt-oss-20b", "messages": [message], "stream": True}
            sent, first = time.monotonic(), True
            request = http.stream(
                "POST", f"{url}/chat/completions", json={**body, "max_tokens": 24}
            )
            async with request as response:
                response.raise_for_status()
                async for _ in response.aiter_raw():
                    if first:
                        ttft.append(1000 * (time.monotonic() - sent))
                        first = False

    async with httpx.AsyncClient(timeout=60) as http:
        await asyncio.gather(*(client() for _ in range(CONCURRENCY)))
    return len(ttft) / (time.monotonic() - began), fmean(ttft)


def change(rounds: list[float]) -> dict[str, Any]:
    """Geometric mean of the changes of B against A in each round, with its 95% interval."""
    rng = random.Random(0)
    drawn = [geometric_mean(rng.choices(rounds, k=len(rounds))) for _ in range(4000)]
    cuts = quantiles(drawn, n=40)
    return {
        "change": round(geometric_mean(rounds) - 1, 4),
        "interval": [round(cuts[0] - 1, 4), round(cuts[-1] - 1, 4)],
        "rounds": [round(ratio, 4) for ratio in rounds],
    }


@contextmanager
def paged(graph: Path, folder: Path) -> Iterator[None]:
    """The page of a graph, in Chromium."""
    command = [sys.executable, "-m", "penstock.cli.main", "page", str(graph)]
    env = {**os.environ, "PENSTOCK_STATE_HOME": str(folder / "state")}
    page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert page.stdout is not None
    try:
        url = next(word for word in page.stdout.readline().split() if word.startswith("http"))
        with browser() as opened:
            opened.open(url, 1280, 900)
            yield
    finally:
        page.terminate()
        page.wait()


def one_round(kind: str, number: int, tmp: Path) -> tuple[float, float]:
    """The ratios B / A of requests/s and of the mean TTFT."""
    what, _, saturated = kind.partition(", ")
    text = GRAPH.format(speedup=0 if saturated else 1.0)
    rng = random.Random(f"{kind} {number}")
    urls = {}
    with ExitStack() as running:
        for name in rng.sample("ab", 2):
            folder = tmp / f"{number}-{name}"
            folder.mkdir()
            path = folder / "graph.yaml"
            path.write_text(text)
            is_traced = name == "b" and what == "tracing"
            options = ["--port", "0", *(["--trace"] if is_traced else [])]
            graph = running.enter_context(GraphProcess(path, folder, options))
            graph.wait_ready(120)
            urls[name] = str(graph.state()["endpoint"])
        if what == "page":
            folder = tmp / f"{number}-b"
            running.enter_context(paged(folder / "graph.yaml", folder))
        for url in urls.values():
            asyncio.run(sliced(url, 0))  # warm-up
        pairs = []
        for pair in range(1, PAIRS + 1):
            order = rng.sample("ab", 2)
            pairs.append({name: asyncio.run(sliced(urls[name], pair)) for name in order})
    rates = geometric_mean(pair["b"][0] / pair["a"][0] for pair in pairs)
    return rates, geometric_mean(pair["b"][1] / pair["a"][1] for pair in pairs)


def measured(kind: str, count: int, tmp: Path) -> dict[str, Any]:
    rates, ttfts = [], []
    for number in range(count):
        rate, ttft = one_round(kind, number, tmp)
        print(f"{kind}, round {number}: requests/s {rate:.3f}, TTFT {ttft:.3f}", file=sys.stderr)
        rates.append(rate)
        ttfts.append(ttft)
    return {"requests/s": change(rates), "TTFT": change(ttfts)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--short", action="store_true", help="two rounds, and no result file")
    args = parser.parse_args()
    path = RESULTS / "observation_overhead.json"
    known = json.loads(path.read_text())["changes"] if path.exists() and not args.short else {}
    for kind in args.kinds:
        if kind in known:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            known[kind] = measured(kind, 2 if args.short else args.rounds, Path(tmp))
        print(kind, json.dumps(known[kind]), flush=True)
        if not args.short:
            command = "python benchmarks/observation_overhead.py"
            write_result("observation_overhead", command, {"changes": known}, show=False)


if __name__ == "__main__":
    main()
