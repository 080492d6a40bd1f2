"""Changes graphs under load: rollouts, reverts, edits in quick succession, scaling, and kills.

    python benchmarks/rollouts.py [--short | --table] [CASE…]

Each case is a drill of a graph with 16 streams, a quarter each of chats, requests with a grammar,
required tools and long prompts. Meanwhile, each frontend is asked for its models, and the endpoint
for one token, every 50 ms: both must always succeed during planned changes. Writes
results/rollouts.json after each batch of changes, and continues where the file ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import httpx

from penstock.drill.evaluate import FailureType
from penstock.drill.inject import choose
from penstock.drill.run import DrillOptions, DrillResult, drill_graph
from penstock.drill.traffic import RequestKind
from penstock.graph.edit import set_replicas
from penstock.local.ports import Ports
from report import read_cases, write_cases

NAME = "rollouts"
NO_MODEL = "a frontend lists no model"
GRAPHS = Path(__file__).parents[1] / "dynamo_graphs"
STREAMS, INTERVAL_S = 16, 0.05
BATCH = 10  # changes of one started graph
PLANNED = "scale,edit-config,edit-twice,revert,edit-frontend"
KILLS = "kill,stop-long,term"
AGGREGATED = """
model: {id: openai/gpt-oss-20b, context_length: 8192}
engine: {kind: mocker, config: {engine: {speedup_ratio: 2.0, num_gpu_blocks: 4096}}}
frontend: {replicas: 2}
worker: {replicas: 2}
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph and its changes. Excluded are graphs with a pool of one worker, and no room."""

    text: str
    faults: str
    changes: int
    exact: bool = False
    streams: int = STREAMS
    stall_s: float = 5.0
    interval_s: float = INTERVAL_S  # of the looks
    has_envoy: bool = True
    kinds: tuple[RequestKind, ...] = tuple(RequestKind)


def cases() -> dict[str, Case]:
    quick = set_replicas((GRAPHS / "quickstart-simulated.yaml").read_text(), {"decode": 2})
    llamacpp = set_replicas((GRAPHS / "quickstart.yaml").read_text(), {"decode": 2})
    etcd = quick + "\ninfrastructure: {discovery: etcd, requests: nats}\n"
    return {
        "mockers, disaggregated": Case(text=quick, faults=PLANNED, changes=80),
        "mockers, aggregated, two frontends": Case(text=AGGREGATED, faults=PLANNED, changes=80),
        "mockers, disaggregated, etcd and NATS": Case(text=etcd, faults=PLANNED, changes=20),
        "mockers, disaggregated, without Envoy": Case(
            text=quick, faults=PLANNED, changes=20, has_envoy=False
        ),
        "llama.cpp, disaggregated, exact": Case(
            text=llamacpp,
            faults=PLANNED,
            changes=10,
            exact=True,
            streams=4,
            interval_s=1.0,
            stall_s=120.0,  # on two cores, workers that load a model take the time of the others
            kinds=(RequestKind.CHAT, RequestKind.GUIDED, RequestKind.TOOLS, RequestKind.CHAT),
        ),
        "mockers, disaggregated, kills": Case(text=quick, faults=KILLS, changes=40),
        "mockers, aggregated, kills": Case(text=AGGREGATED, faults=KILLS, changes=20),
    }


@dataclass
class Watch:
    """Asks the frontends of the graph in ``folder``, and the endpoint, in short intervals."""

    folder: Path
    port: int
    interval_s: float
    samples: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    first: dict[str, float] = field(default_factory=dict)

    def state(self) -> dict[str, Any]:
        for path in self.folder.glob("state/*/state.json"):
            try:
                return dict(json.loads(path.read_text()))
            except (OSError, ValueError):
                break
        return {}

    def note(self, problem: str) -> None:
        self.problems[problem] += 1
        self.first.setdefault(problem, round(time.monotonic() - self._began, 1))

    async def run(self, stopped: threading.Event) -> None:
        self._began = time.monotonic()
        pending: set[asyncio.Task[None]] = set()
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as client:
            while not stopped.is_set():
                state = self.state()
                if state.get("phase") == "ready" and len(pending) < 100:
                    for coroutine in self.asked(client, state):
                        task = asyncio.create_task(coroutine)
                        pending.add(task)
                        task.add_done_callback(pending.discard)
                await asyncio.sleep(self.interval_s)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    def asked(self, client: httpx.AsyncClient, state: dict[str, Any]) -> Iterator[Any]:
        for replica in state["replicas"]:
            if replica["program"] == "frontend" and replica["state"] == "ready":
                yield self.models(client, replica["port"])
        yield self.completion(client, state["models"][0])

    async def models(self, client: httpx.AsyncClient, port: int) -> None:
        """A frontend that just ended refuses the connection, which is no lack of workers."""
        try:
            response = await client.get(f"http://127.0.0.1:{port}/v1/models")
            is_empty = not response.json()["data"]
        except (httpx.HTTPError, ValueError):
            self.samples["frontend did not respond"] += 1
            return
        self.samples["models"] += 1
        if is_empty:
            self.note(NO_MODEL)

    async def completion(self, client: httpx.AsyncClient, model: str) -> None:
        body = {"model": model, "prompt": "Hello", "max_tokens": 1}
        self.samples["completions"] += 1
        try:
            response = await client.post(f"http://127.0.0.1:{self.port}/v1/completions", json=body)
        except httpx.HTTPError as error:
            self.note(f"completion: {type(error).__name__}")
            return
        if response.status_code != 200:
            self.note(f"completion: HTTP {response.status_code}")


@contextmanager
def watched(folder: Path, port: int, interval_s: float) -> Iterator[Watch]:
    stopped, watch = threading.Event(), Watch(folder, port, interval_s)
    thread = threading.Thread(target=lambda: asyncio.run(watch.run(stopped)))
    thread.start()
    try:
        yield watch
    finally:
        stopped.set()
        thread.join()


def measure(case: Case, changes: int, seed: int) -> dict[str, Any]:
    options = DrillOptions(
        count=changes,
        seed=seed,
        streams=case.streams,
        stall_s=case.stall_s,
        kinds=case.kinds,
        exact=case.exact,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = folder / "original" / "graph.yaml"
        graph.parent.mkdir()
        graph.write_text(case.text)
        port = Ports().free()
        hidden = {} if case.has_envoy else {"PENSTOCK_ENVIRONMENTS": str(folder / "none")}
        with mock.patch.dict(os.environ, hidden), watched(folder, port, case.interval_s) as watch:
            result = drill_graph(
                graph, choose(case.faults), ["--port", str(port)], [], options, folder, print
            )
    return summary(result, watch) | {"seed": seed, "changes": len(result.faults)}


def summary(result: DrillResult, watch: Watch) -> dict[str, Any]:
    evaluation = result.evaluation
    stalled = sum(failure.type is FailureType.STALLED for failure in evaluation.avoidable)
    lost = [failure for failure in evaluation.failures if not failure.is_not_migratable]
    return {
        "kinds": dict(Counter(fault.kind for fault in result.faults)),
        "requests": evaluation.requests,
        "of_each_kind": dict(Counter(request.kind for request in result.history)),
        "lost": len(evaluation.avoidable) - stalled,
        "stalled": stalled,
        "not_migratable": evaluation.not_migratable,
        "with_their_frontend": len(lost) - len(evaluation.avoidable),
        "retried": evaluation.retried,
        "failures": [
            {
                "kind": failure.request.kind,
                "fault": failure.fault and f"{failure.fault.kind} {failure.fault.target}",
                "after_s": failure.fault
                and round(failure.request.ended_s - failure.fault.started_s, 1),
                "error": failure.request.error[:100],
                "cause": failure.cause[:100],
            }
            for failure in lost[:20]
        ],
        "not_recovered": len(evaluation.not_recovered),
        "samples": dict(watch.samples),
        "problems": dict(watch.problems),
        "first_problem_s": watch.first,
    }


def total(batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    numbers = ["changes", "requests", "lost", "stalled", "retried"]
    numbers += ["not_migratable", "with_their_frontend"]
    sums: dict[str, Any] = {name: sum(batch[name] for batch in batches) for name in numbers}
    problems: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    for batch in batches:
        problems.update(batch["problems"])
        samples.update(batch["samples"])
    return sums | {"samples": dict(samples), "problems": dict(problems)}


def table(figures: dict[str, Any]) -> str:
    """The rows of docs/accuracy.md."""
    rows = [
        "| graph | changes | requests | avoidable losses | avoidable stalls | retried by clients "
        "| lost with their frontend or Envoy | lost because of a grammar "
        "| polls of `/v1/models` without a model |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, case in figures.items():
        total = case["total"]
        numbers = [total[key] for key in ("changes", "requests", "lost", "stalled", "retried")]
        numbers += [total["with_their_frontend"], total["not_migratable"]]
        without = total["problems"].get(NO_MODEL, 0)
        looks = f"{without:,} of {total['samples']['models']:,}"
        rows.append(f"| {name} | {' | '.join(f'{n:,}' for n in numbers)} | {looks} |")
    return "\n".join(rows)


def main() -> None:
    options, saved = read_cases(
        NAME,
        "change graphs under load",
        short="3 changes of each case, not saved",
        page="docs/accuracy.md",
    )
    known = cases()
    if options.table:
        print(table(saved))
        return
    for name in options.cases or known:
        if options.short:
            print(json.dumps(measure(known[name], 3, seed=1), indent=1))
            continue
        batches = saved.setdefault(name, {"batches": []})["batches"]
        while (done := sum(batch["changes"] for batch in batches)) < known[name].changes:
            print(f"{name}: {done} of {known[name].changes}", flush=True)
            left = min(BATCH, known[name].changes - done)
            batches.append(measure(known[name], left, seed=len(batches)))
            saved[name]["total"] = total(batches)
            write_cases(NAME, saved)
            print(json.dumps(saved[name]["total"]), flush=True)


if __name__ == "__main__":
    main()
