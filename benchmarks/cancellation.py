"""What clients that leave before their first token cost the next one, and `penstock down`.

    python benchmarks/cancellation.py [GRAPH…] [--clients N]

A graph serves some short requests, one long prompt, and then CLIENTS different long prompts whose
clients leave after LEAVE_S. Compared are the time of a short request sent right after the last has
left and that of the idle graph. At last, DOWN_CLIENTS leave the same way, and the graph is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from report import RESULTS, write_result

START_S = 240
CLIENTS, DOWN_CLIENTS = 250, 20
AT_ONCE, LEAVE_S = 50, 2.0
IDLE_REQUESTS = 5
LONGEST_S = 600.0  # of the short request


@dataclass(frozen=True, kw_only=True)
class Kind:
    graph: str
    settings: tuple[str, ...]
    words: int  # of a long prompt


KINDS: Mapping[str, Kind] = {
    "llamacpp": Kind(
        graph="quickstart",
        settings=("model.context_length=8192", "prefill=null", "decode=null", "worker.replicas=1"),
        words=300,
    ),
    "llamacpp-disagg": Kind(graph="quickstart", settings=("model.context_length=8192",), words=300),
    "mockers": Kind(
        graph="quickstart-simulated", settings=("model.context_length=131072",), words=10_000
    ),
    "vllm": Kind(graph="cpu-aggregated", settings=(), words=300),
}


class Clients:
    def __init__(self, url: str, model: str, words: int) -> None:
        self._url, self._model, self._words = url, model, words
        self._sent = 0

    async def first_token_s(self, words: int) -> float:
        """Seconds of a streamed completion until its first token."""
        async with httpx.AsyncClient(timeout=LONGEST_S, trust_env=False) as client:
            began = time.monotonic()
            async with client.stream("POST", self._url, json=self._body(words)) as response:
                async for line in response.aiter_lines():
                    if response.status_code != 200:
                        raise RuntimeError(f"HTTP {response.status_code}: {line}")
                    if line.startswith("data: {"):
                        break
                return time.monotonic() - began

    def _body(self, words: int) -> dict[str, Any]:
        """Another prompt each time."""
        self._sent += 1
        prompt = " ".join(f"{self._sent * 7919 + word}" for word in range(words // 2))
        return {"model": self._model, "prompt": prompt, "max_tokens": 8, "stream": True}

    async def leave(self, count: int) -> None:
        """Clients that send a long prompt and leave, AT_ONCE at a time."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def client() -> None:
            async with limit:
                request = asyncio.ensure_future(self.first_token_s(self._words))
                done, _ = await asyncio.wait([request], timeout=LEAVE_S)
                request.cancel()
                await asyncio.wait([request])
                if done and (error := request.exception()):
                    raise error

        await asyncio.gather(*(client() for _ in range(count)))

    async def measure(self, count: int) -> dict[str, Any]:
        idle = [await self.first_token_s(4) for _ in range(IDLE_REQUESTS)]
        long_s = await self.first_token_s(self._words)
        began = time.monotonic()
        await self.leave(count)
        left_s = time.monotonic() - began
        after_s = await self.first_token_s(4)
        return {
            "clients": count,
            "idle_s": round(median(idle), 3),
            "long_prompt_s": round(long_s, 3),
            "clients_left_within_s": round(left_s, 1),
            "after_s": round(after_s, 3),
            "ratio": round(after_s / median(idle), 2),
        }


def measure(name: str, count: int, folder: Path) -> dict[str, Any]:
    kind = KINDS[name]
    graph = copy_graph(kind.graph, folder)
    arguments = ["--port", "0", *(word for text in kind.settings for word in ("--set", text))]
    with GraphProcess(graph, folder, arguments) as running:
        url = running.wait_ready(START_S)
        model = str(running.state()["models"][0])
        clients = Clients(f"{url.removesuffix('/v1')}/v1/completions", model, kind.words)
        figures = asyncio.run(clients.measure(count))
        asyncio.run(clients.leave(DOWN_CLIENTS))
        began = time.monotonic()
        running.stop()
        return {**figures, "down_s": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", choices=[*KINDS, []], metavar="GRAPH")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    args = parser.parse_args()
    file = RESULTS / "cancellation.json"
    results = json.loads(file.read_text())["graphs"] if file.exists() else {}
    for name in args.graphs or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measure(name, args.clients, Path(folder))
        print(name, json.dumps(results[name]), flush=True)
        command = "python benchmarks/cancellation.py"
        write_result("cancellation", command, {"graphs": results}, show=False)


if __name__ == "__main__":
    main()
