"""Suspends the engine of vLLM workers whose own process still responds.

    python benchmarks/hangs.py [--short]

The graph is dynamo_graphs/cpu-disagg.yaml with two workers per pool, under a load of chats. An
engine is suspended (SIGSTOP) until the live view names it, and for 12 s at most. In between, and
for the last minutes, every alert is false. Writes results/hangs.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from penstock import tiny_model
from penstock.drill.graph_process import GraphProcess
from penstock.graph.edit import set_replicas
from penstock.live.source import LiveGraph
from report import write_result
from shifts import Load

NAME = "hangs"
HANGS, NORMAL_S = 10, 300.0  # of each pool; without a hang, at the end
LIMIT_S, LOOK_S, BETWEEN_S = 12.0, 0.5, 8.0
PER_S, TOKENS, START_S = 3.0, 40, 300.0
GRAPH = Path(__file__).parents[1] / "dynamo_graphs" / "cpu-disagg.yaml"
MODEL = "penstock/tiny-gpt-oss"
STAGES = {"prefill": "prefill", "decode": "KV transfer or decode"}


def chat() -> dict[str, Any]:
    content = f"{random.random()} " + "word " * random.randrange(20, 600)
    body = {"model": MODEL, "max_tokens": TOKENS, "stream": True, "ignore_eos": True}
    return body | {"messages": [{"role": "user", "content": content}]}


def engine_of(worker: int) -> psutil.Process:
    """The process with vLLM's engine core."""
    children = psutil.Process(worker).children(recursive=True)
    return next(p for p in children if "EngineCore" in " ".join([p.name(), *p.cmdline()]))


async def hang(graph: LiveGraph, pool: str) -> dict[str, Any]:
    """Suspend the engine of one worker until an alert names it."""
    latest = await graph.snapshot()
    worker = random.choice([w for w in latest.workers if w.component == pool])
    assert worker.pid is not None
    engine, began = engine_of(worker.pid), time.monotonic()
    engine.send_signal(signal.SIGSTOP)
    named: list[str] = []
    most = 0
    try:
        while not named and time.monotonic() - began < LIMIT_S:
            await asyncio.sleep(LOOK_S)
            now = await graph.snapshot()
            named = [alert for alert in now.alerts if "hangs" in alert]
            most = max(most, *(w.in_flight or 0 for w in now.workers if w.name == worker.name), 0)
        seconds = round(time.monotonic() - began, 1)
    finally:
        engine.send_signal(signal.SIGCONT)
    is_right = [n.startswith(f"{worker.name} ") and f"stage: {STAGES[pool]}" in n for n in named]
    return {
        "worker": worker.name,
        "most_in_flight": most,
        "seconds": seconds,
        "named": named,
        "is_right": any(is_right),
    }


async def false_alerts(graph: LiveGraph, seconds: float) -> list[str]:
    """The alerts about hangs in this time without a hang."""
    found: dict[str, None] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(LOOK_S)
        found |= {alert: None for alert in (await graph.snapshot()).alerts if "hangs" in alert}
    return list(found)


async def watch(live: LiveGraph, count: int, normal_s: float) -> dict[str, Any]:
    hangs, wrong = [], []
    try:
        for number in range(2 * count):
            hangs.append(await hang(live, ("decode", "prefill")[number % 2]))
            print(json.dumps(hangs[-1]), flush=True)
            await false_alerts(live, BETWEEN_S)  # until its requests have ended
            wrong += await false_alerts(live, BETWEEN_S)
        wrong += await false_alerts(live, normal_s)
    finally:
        await live.close()
    # The router avoids a worker with a long queue, and decode workers compute short prompts.
    affected = [h for h in hangs if h["most_in_flight"]]
    return {
        "hangs": len(hangs),
        "with_requests": len(affected),
        "named_with_worker_and_stage": sum(h["is_right"] for h in affected),
        "named_after_s_longest": max(h["seconds"] for h in affected),
        "minutes_without_hang": round((normal_s + 2 * count * BETWEEN_S) / 60, 1),
        "false_alerts": wrong,
        "each": hangs,
    }


def measure(count: int, normal_s: float) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hangs-") as name:
        folder = Path(name)
        tiny_model.write(folder / "model")
        text = set_replicas(GRAPH.read_text(), {"prefill": 2, "decode": 2})
        graph = folder / "graph.yaml"
        graph.write_text(text.replace(".penstock/models/tiny-gpt-oss", str(folder / "model")))
        os.environ["PENSTOCK_STATE_HOME"] = str(folder / "state")  # where LiveGraph looks
        with GraphProcess(graph, folder, ("--port", "0")) as process:
            url = process.wait_ready(START_S)
            load = Load(url.removesuffix("/v1") + "/v1", chat, PER_S)
            try:
                time.sleep(BETWEEN_S)
                figures = asyncio.run(watch(LiveGraph(graph), count, normal_s))
            finally:
                load.close()
        statuses = [response.status for response in load.responses]
        return figures | {"requests": {s: statuses.count(s) for s in sorted(set(statuses))}}


def main() -> None:
    parser = argparse.ArgumentParser(description="plant hangs of engines")
    parser.add_argument("--short", action="store_true", help="one hang of each pool, not saved")
    if parser.parse_args().short:
        print(json.dumps(measure(1, 10.0), indent=1))
        return
    write_result(NAME, f"python benchmarks/{NAME}.py", dict(measure(HANGS, NORMAL_S)))


if __name__ == "__main__":
    main()
