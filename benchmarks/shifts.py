"""Shifts the requests of a gateway to good and to bad releases, under load.

    python benchmarks/shifts.py [--short | --table] [CASE…]

Two graphs with mockers run behind `penstock gateway up`, and 20 requests per second arrive, of
which 2 % have a long prompt. `penstock gateway shift` must promote each good release, and shift
back from each bad one. Writes results/shifts.json after each shift, and continues where it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from penstock import tiny_model
from penstock.drill.graph_process import GraphProcess
from report import read_cases, write_cases
from shadow import GATEWAY, KEY, GatewayProcess, served

NAME = "shifts"
SHIFTS = 20  # of each case
PROMOTED, WORSE = 0, 16  # exit codes of `gateway shift`
START_S = 300.0  # of a graph
PER_S, LONG = 20.0, 0.02
TOKENS = 16
BACKENDS = "backends:\n  - {release: old, weight: 100}\n  - {release: new, weight: 0}\n"
MODEL = "openai/gpt-oss-20b"
GRAPH = """
model: {{id: {model}, path: {folder}, context_length: {context}}}
engine: {{kind: mocker, config: {{engine: {{speedup_ratio: {speed}, num_gpu_blocks: 4096}}}}}}
worker: {{replicas: 1}}
"""
PACE = ("--steps", "25,50,100", "--step-s", "15", "--copies")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is wrong with the new release."""

    speed: float = 2.0
    context: int = 8192
    """Tokens. A shorter one fails the long prompts."""
    has_other_template: bool = False
    copies: int = 0
    """Percent of the requests that are copied first."""
    expected: int = WORSE


@dataclass(frozen=True, kw_only=True)
class Releases:
    """Two running releases and their gateway."""

    gateway: GatewayProcess
    graphs: Mapping[str, Path]
    url: str
    """Of the new release."""


CASES = {
    "good": Case(expected=PROMOTED),
    "good, copies first": Case(copies=100, expected=PROMOTED),
    "slow (half the speed)": Case(speed=1.0),
    "2% of the requests fail": Case(context=2048),
    "2% of the requests fail, copies first": Case(context=2048, copies=100),
    "other chat template": Case(has_other_template=True),
}


@dataclass(frozen=True, kw_only=True)
class Response:
    """What a client got."""

    began_s: float
    """Monotonic."""
    status: str
    """Of HTTP, `cut off` or the name of an error."""
    ttft_s: float


class Load:
    """Requests until it is closed, at random times. ``body``: of one request."""

    def __init__(self, url: str, body: Callable[[], dict[str, Any]], per_s: float = PER_S) -> None:
        self._url, self._open, self._body, self._per_s = url, True, body, per_s
        self.responses: list[Response] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()))
        self._thread.start()

    def close(self) -> None:
        self._open = False
        self._thread.join()

    async def _send(self) -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        tasks: set[asyncio.Task[None]] = set()
        async with httpx.AsyncClient(timeout=60, trust_env=False, headers=headers) as client:
            while self._open:
                task = asyncio.create_task(self._request(client))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                await asyncio.sleep(random.expovariate(self._per_s))
            await asyncio.gather(*tasks)

    async def _request(self, client: httpx.AsyncClient) -> None:
        began, first, text = time.monotonic(), None, ""
        try:
            url = f"{self._url}/chat/completions"
            async with client.stream("POST", url, json=self._body()) as response:
                async for part in response.aiter_text():
                    first = first or time.monotonic()
                    text += part
            is_cut = response.status_code == 200 and "[DONE]" not in text
            status = "cut off" if is_cut else str(response.status_code)
        except httpx.HTTPError as error:
            status = type(error).__name__
        ttft_s = (first or time.monotonic()) - began
        self.responses.append(Response(began_s=began, status=status, ttft_s=ttft_s))


def simulated() -> dict[str, Any]:
    """A request to mockers."""
    words = 3000 if random.random() < LONG else 30
    content = f"{random.random()} " + "word " * words
    body = {"model": MODEL, "max_tokens": TOKENS, "stream": True}
    return body | {"messages": [{"role": "user", "content": content}]}


def graph_of(folder: Path, name: str, case: Case) -> str:
    """The text of a graph; also writes the model that it names."""
    model = folder / f"model-{name}"
    tiny_model.write(model)
    if case.has_other_template:
        config = model / "tokenizer_config.json"
        values = json.loads(config.read_text())
        values["chat_template"] = "Talk:\n" + values["chat_template"]
        config.write_text(json.dumps(values))
    return GRAPH.format(model=MODEL, folder=model, context=case.context, speed=case.speed)


@contextmanager
def behind_gateway(folder: Path, texts: Mapping[str, str]) -> Iterator[Releases]:
    """The graphs `old` and `new` with these texts, behind a gateway."""
    environment = {"PENSTOCK_STATE_HOME": str(folder / "state")}
    graphs = {name: folder / f"{name}.yaml" for name in texts}
    with ExitStack() as stack:
        urls = {}
        for name, graph in graphs.items():
            graph.write_text(texts[name])
            process = GraphProcess(graph, folder, ("--port", "0", "--skip-check"), environment)
            urls[name] = stack.enter_context(process).wait_ready(START_S)
        gateway = stack.enter_context(GatewayProcess(folder, BACKENDS, urls))
        yield Releases(gateway=gateway, graphs=graphs, url=urls["new"])


@contextmanager
def running(case: Case) -> Iterator[Releases]:
    """A good release, and that of the case."""
    with tempfile.TemporaryDirectory(prefix="shifts-") as name:
        folder = Path(name)
        cases = {"old": Case(), "new": case}
        with behind_gateway(folder, {n: graph_of(folder, n, c) for n, c in cases.items()}) as both:
            yield both


def shift(
    releases: Releases, expected: int, options: Sequence[str], load: Load | None = None
) -> dict[str, Any]:
    """One shift under load, from the same weights; ``expected``: its exit code."""
    gateway, graphs, url = releases.gateway, releases.graphs, releases.url
    gateway.file.write_text(GATEWAY + BACKENDS)
    command = [sys.executable, "-m", "penstock.cli.main", "gateway", "shift", str(gateway.file)]
    command += ["--to", "new", "--yes", *options]
    for release, graph in graphs.items():
        command += ["--graph", f"{release}={graph}"]
    state = {"PENSTOCK_STATE_HOME": str(gateway.file.parent / "state")}
    load = load or Load(gateway.url, simulated)
    served_before, first_s = served(url), None
    try:
        time.sleep(1)
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | state,
        )
        lines = []
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if line.startswith(("copies of", "25%")) and first_s is None:
                first_s, served_before = time.monotonic(), served(url)
        code = process.wait()
        ended_s = time.monotonic()
    finally:
        load.close()
    if code not in (PROMOTED, WORSE):
        raise SystemExit("\n".join(lines))
    weights = re.findall(r"weight: (\d+)", gateway.file.read_text())
    return {
        "code": code,
        "is_correct": code == expected and weights == (["0", "100"], ["100", "0"])[code > 0],
        "seconds": round(ended_s - first_s, 1) if first_s else 0.0,
        "new_requests": served(url) - served_before if first_s else 0,
        "clients": dict(Counter(response.status for response in load.responses)),
        "reason": lines[-1] if code else "",
    }


def total(shifts: list[dict[str, Any]]) -> dict[str, Any]:
    clients: Counter[str] = Counter()
    for each in shifts:
        clients.update(each["clients"])
    return {
        "shifts": len(shifts),
        "correct": sum(each["is_correct"] for each in shifts),
        "seconds_longest": max(each["seconds"] for each in shifts),
        "later_than_60_s_and_300_requests": sum(
            each["seconds"] > 60 and each["new_requests"] > 300 for each in shifts if each["code"]
        ),
        "requests": sum(clients.values()),
        "failed": sum(count for status, count in clients.items() if status != "200"),
    }


def table(cases: dict[str, Any]) -> str:
    rows = []
    for name, case in cases.items():
        figures = case["total"]
        outcome = "promoted" if CASES[name].expected == PROMOTED else "shifted back"
        rows.append(
            f"| {name} | {figures['correct']} of {figures['shifts']} {outcome} | "
            f"{figures['seconds_longest']:.0f} s | {figures['requests']:,} | {figures['failed']} |"
        )
    return "\n".join(rows)


def main() -> None:
    options, saved = read_cases(
        NAME,
        "shift requests to good and bad releases",
        short="one shift of each case, not saved",
        page="docs/gateway.md",
    )
    if options.table:
        print(table(saved))
        return
    for name in options.cases or CASES:
        case = CASES[name]
        shifts = saved.get(name, {"shifts": []})["shifts"]
        if not options.short and len(shifts) >= SHIFTS:
            continue
        pace = (*PACE, str(case.copies))
        with running(case) as releases:
            if options.short:
                figures = shift(releases, case.expected, pace)
                print(name, json.dumps(figures, indent=1), flush=True)
                continue
            while len(shifts) < SHIFTS:
                shifts.append(shift(releases, case.expected, pace))
                saved[name] = {"total": total(shifts), "shifts": shifts}
                write_cases(NAME, saved)
                print(name, json.dumps(saved[name]["total"]), shifts[-1]["reason"], flush=True)


if __name__ == "__main__":
    main()
