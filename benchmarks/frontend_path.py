"""Measures the frontend's time and CPU time per request, without the request adapter of `up`.

    python benchmarks/frontend_path.py [--rounds 10] [--short]
Writes results/frontend_path.json after each round; continues with the rounds that it lacks.

Mockers answer at once, so the TTFT is the time of the client, the frontend (HTTP, template,
tokenizer, router) and the request plane. `up` starts a graph, in which this script starts
frontends: one for each tokenizer library, and a second one. Slices of half a second load one of
them, in random order. CPU time is that of its process, without its share of an idle one. Prompts
are text of this repository: `chat` and `completions` begin like the last ones, `new chat` is
another part of the text, and `ids` are completions of token ids.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from tokenizers import Tokenizer

from adapter_cpu import cpu_s, idle_share, second_frontend
from gpt_oss_tokenizer import write_tokenizer
from penstock.drill.graph_process import GraphProcess
from penstock.tokenizer import FOLDER
from report import RESULTS, write_result

NAME, MODEL, ROOT = "frontend_path", "gpt-oss-tokenizer", Path(__file__).parents[1]
GRAPH = """\
model: {{id: gpt-oss-tokenizer, path: {folder}, context_length: {context}}}
engine: {{kind: mocker, config: {{engine: {{speedup_ratio: 1000000, num_gpu_blocks: 65536}}}}}}
worker: {{replicas: 1}}
"""
LENGTHS = (1_000, 4_000, 16_000, 64_000, 128_000)
OUTPUTS = (2, 512)  # tokens; the longer one only for the shortest prompt
KINDS = ("new chat", "chat", "completions", "ids")
SLICE_S, CLIENTS, SECOND = 0.5, 4, "fastokens, 2 frontends"
FRONTENDS = {"fastokens": "fastokens", "default": "default", SECOND: "fastokens"}


@dataclass(frozen=True)
class Cell:
    frontend: str
    kind: str
    tokens: int
    output: int = OUTPUTS[0]
    clients: int = 1

    def __str__(self) -> str:
        load = f"{self.output} tokens, {self.clients} client{'s' * (self.clients > 1)}"
        return f"{self.frontend}, {self.kind}, {self.tokens} → {load}"


def cells(*, short: bool) -> list[Cell]:
    if short:
        return [Cell("fastokens", kind, LENGTHS[0]) for kind in KINDS]
    idle = [Cell(*c) for c in itertools.product(("fastokens", "default"), KINDS, LENGTHS)]
    loaded = itertools.product(FRONTENDS, KINDS[:1], LENGTHS[:4], OUTPUTS[:1], (CLIENTS,))
    return [*idle, Cell("fastokens", "chat", LENGTHS[0], OUTPUTS[1]), *(Cell(*c) for c in loaded)]


class Prompts:
    def __init__(self, model: Path) -> None:
        files = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("components/src/**/*.py")])
        self._text = "\n".join(file.read_text("utf-8") for file in files)
        self._ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(self._text).ids

    def request(self, cell: Cell, rng: random.Random) -> tuple[str, bytes]:
        """Path and body of a request, which ends unlike all others."""
        body: dict[str, Any] = {"model": MODEL, "stream": True, "max_tokens": cell.output}
        characters = cell.tokens * len(self._text) // len(self._ids)
        start = rng.randrange(len(self._text) - characters) if cell.kind == KINDS[0] else 0
        text = f"{self._text[start : start + characters]} {rng.randrange(10**6)}"
        if cell.kind.endswith("chat"):
            body |= {"messages": [{"role": "user", "content": text}]}
            return "/v1/chat/completions", json.dumps(body).encode()
        ids = [*self._ids[: cell.tokens], rng.randrange(4_000)]
        body |= {"prompt": ids if cell.kind == "ids" else text}
        return "/v1/completions", json.dumps(body).encode()


def ttft_ms(connection: http.client.HTTPConnection, path: str, body: bytes) -> float:
    sent = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    line = response.readline()
    while response.status == 200 and not line.startswith(b"data: {"):
        line = response.readline()
    took, rest = 1000 * (time.perf_counter() - sent), response.read()
    if response.status != 200 or b"[DONE]" not in rest:
        raise RuntimeError(f"HTTP {response.status}: {(line + rest)[:300]!r}")
    return took


def measured(
    cell: Cell, targets: Sequence[tuple[psutil.Process, str, float]], prompts: Prompts
) -> dict[str, float]:
    """One slice. ``targets``: process, URL and idle share of frontends, which share the clients."""
    ttfts: list[float] = []
    began = time.monotonic()

    def client(number: int) -> None:
        host = targets[number % len(targets)][1].removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        rng = random.Random(f"{began} {number}")
        while time.monotonic() < began + SLICE_S:
            ttfts.append(ttft_ms(connection, *prompts.request(cell, rng)))

    before = sum(cpu_s(process) for process, *_ in targets)
    threads = [threading.Thread(target=client, args=(n,)) for n in range(cell.clients)]
    for step in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            step(thread)
    took = time.monotonic() - began
    spent = sum(cpu_s(process) - idle * took for process, _, idle in targets) - before
    return {
        "requests": len(ttfts),
        "minimum TTFT ms": round(min(ttfts), 2),
        "median TTFT ms": round(median(ttfts), 2),
        "CPU ms": round(1000 * spent, 1),
        "requests/s": round(len(ttfts) / took, 1),
    }


@contextmanager
def frontends(folder: Path, *, short: bool) -> Iterator[tuple[dict[str, Any], Prompts]]:
    """The targets of each kind of frontend, and the prompts."""
    model = FOLDER if short else folder / "model"
    if not short:
        write_tokenizer(model)
    prompts, file = Prompts(model), folder / "graph.yaml"
    file.write_text(GRAPH.format(folder=model, context=131072 if short else 262144))
    env = {"PENSTOCK_ENVIRONMENTS": f"{folder}/none"}  # without Envoy
    with GraphProcess(file, folder, ["--port", "0"], env) as graph, ExitStack() as stack:
        graph.wait_ready(300)
        first, targets = psutil.Process(graph.pids("frontend")[0]), dict[str, Any]()
        for name, tokenizer in list(FRONTENDS.items())[: 1 if short else None]:
            pair = stack.enter_context(second_frontend(first, "--tokenizer", tokenizer))
            targets[name] = [(*pair, 0.0 if short else idle_share(pair[0]))]
        targets.get(SECOND, []).extend(targets["fastokens"])
        yield targets, prompts


def over_rounds(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fastest slices, as other programs run on the machine, and the mean CPU time."""
    figures = {}
    for cell in rounds[0]["cells"]:
        slices = [entry["cells"][cell] for entry in rounds]
        requests = sum(s["requests"] for s in slices)
        figures[cell] = {
            "requests": requests,
            "minimum TTFT ms": min(s["minimum TTFT ms"] for s in slices),
            "median TTFT ms": round(median(s["median TTFT ms"] for s in slices), 2),
            "CPU ms per request": round(sum(s["CPU ms"] for s in slices) / requests, 3),
            "requests/s": max(s["requests/s"] for s in slices),
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--short", action="store_true", help="one round, and no result file")
    args = parser.parse_args()
    path, command = RESULTS / f"{NAME}.json", f"python benchmarks/{NAME}.py --rounds {args.rounds}"
    rounds = json.loads(path.read_text())["rounds"] if path.exists() and not args.short else []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        targets, prompts = stack.enter_context(frontends(folder, short=args.short))
        every = cells(short=args.short)
        for cell in every:
            measured(cell, targets[cell.frontend], prompts)  # fills the caches
        for number in range(len(rounds), 1 if args.short else args.rounds):
            load, order = os.getloadavg()[0], random.Random(number).sample(every, len(every))
            slices = {str(c): measured(c, targets[c.frontend], prompts) for c in order}
            rounds.append({"load average": round(load, 1), "cells": slices})
            print(number, load, file=sys.stderr, flush=True)
            figures = {"cells": over_rounds(rounds), "rounds": rounds}
            if args.short:
                print(json.dumps(figures["cells"], indent=1))
            else:
                write_result(NAME, command, figures, show=False)


if __name__ == "__main__":
    main()
