"""What clients that leave before their first token cost the next one, and `penstock down`.

    python benchmarks/cancellation.py [GRAPH…] [--clients N] [--table]

A graph serves some short requests, one long prompt, and then different long prompts whose clients
leave after LEAVE_S. Compared are the time of a short request sent right after the last has left and
that of the idle graph. At last, DOWN_CLIENTS leave the same way, and the graph is stopped, as is an
idle one. vLLM counts the prompt tokens that it computes: so many prompts were computed although
their clients had left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from report import RESULTS, write_result

START_S = 240
CLIENTS, REMOTE_CLIENTS, DOWN_CLIENTS = 250, 10, 20
AT_ONCE, LEAVE_S = 50, 2.0
IDLE_REQUESTS = 5
HELD_S = 30.0  # after the short request, to release the KV cache
LONGEST_S = 600.0  # of the short request


@dataclass(frozen=True, kw_only=True)
class Kind:
    graph: str
    settings: tuple[str, ...]
    words: int  # of a long prompt
    clients: int = CLIENTS


KINDS: Mapping[str, Kind] = {
    "llamacpp": Kind(
        graph="quickstart",
        settings=("model.context_length=8192", "prefill=null", "decode=null", "worker.replicas=1"),
        words=300,
    ),
    "llamacpp-disagg": Kind(
        graph="quickstart",
        settings=("model.context_length=8192",),
        words=300,
        clients=REMOTE_CLIENTS,
    ),
    "mockers": Kind(
        graph="quickstart-simulated", settings=("model.context_length=131072",), words=10_000
    ),
    "vllm": Kind(
        graph="smollm2-cpu-disagg",
        settings=("prefill=null", "decode=null", "worker.replicas=1"),
        words=300,
    ),
    "vllm-disagg": Kind(graph="smollm2-cpu-disagg", settings=(), words=300, clients=REMOTE_CLIENTS),
}


# Prompt tokens that engines have computed, and the share of the KV cache that requests hold.
COMPUTED = re.compile(r"^vllm:prompt_tokens_total\{.*\} (\S+)$", re.MULTILINE)
HELD = re.compile(r"^vllm:kv_cache_usage_perc\{.*\} (\S+)$", re.MULTILINE)


class Clients:
    """``prefills``: URLs of the metrics of the workers that compute prompts."""

    def __init__(self, url: str, model: str, words: int, prefills: Sequence[str]) -> None:
        self._url, self._model, self._words = url, model, words
        self._prefills = prefills
        self._sent = 0

    def metric(self, pattern: re.Pattern[str]) -> float | None:
        """The sum over the workers; None if they do not export it."""
        texts = [httpx.get(url, timeout=LONGEST_S, trust_env=False).text for url in self._prefills]
        values = [float(value) for text in texts for value in pattern.findall(text)]
        return sum(values) if values else None

    async def computed_tokens(self, words: int) -> float | None:
        """Of a new prompt, and of what was computed meanwhile."""
        before = self.metric(COMPUTED)
        await self.first_token_s(words)
        after = self.metric(COMPUTED)
        return None if before is None or after is None else after - before

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
        """Another prompt each time, of the same length."""
        self._sent += 1
        prompt = " ".join(f"{self._sent * 7919 + word:07}" for word in range(words // 2))
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
        long, short = [await self.computed_tokens(words) for words in (self._words, 4)]
        before = self.metric(COMPUTED)
        began = time.monotonic()
        await self.leave(count)
        left_s = time.monotonic() - began
        after_s = await self.first_token_s(4)
        figures = {
            "clients": count,
            "idle_s": round(median(idle), 3),
            "long_prompt_s": round(long_s, 3),
            "clients_left_within_s": round(left_s, 1),
            "after_s": round(after_s, 3),
            "ratio": round(after_s / median(idle), 2),
        }
        computed = self.metric(COMPUTED)
        if computed is None or before is None or long is None or short is None:
            return figures
        figures["prompts_computed"] = round((computed - before - short) / long, 1)
        deadline = time.monotonic() + HELD_S
        while (held := self.metric(HELD)) and time.monotonic() < deadline:
            await asyncio.sleep(1)
        return {**figures, "kv_cache_still_held": held}


def measure(name: str, count: int | None, folder: Path) -> dict[str, Any]:
    kind = KINDS[name]
    with graph_of(kind, folder / "idle") as running:
        down_idle_s = stopped_s(running)
    with graph_of(kind, folder) as running:
        clients = clients_of(running, kind)
        figures = asyncio.run(clients.measure(count or kind.clients))
        asyncio.run(clients.leave(DOWN_CLIENTS))
        return {**figures, "down_s": stopped_s(running), "down_idle_s": down_idle_s}


@contextmanager
def graph_of(kind: Kind, folder: Path) -> Iterator[GraphProcess]:
    folder.mkdir(exist_ok=True)
    arguments = ["--port", "0", *(word for text in kind.settings for word in ("--set", text))]
    with GraphProcess(copy_graph(kind.graph, folder), folder, arguments) as running:
        running.wait_ready(START_S)
        yield running


def clients_of(running: GraphProcess, kind: Kind) -> Clients:
    state = running.state()
    workers = [row for row in state["replicas"] if row["role"] in ("prefill", "worker")]
    metrics = [f"http://127.0.0.1:{row['system_port']}/metrics" for row in workers]
    url = f"{str(state['endpoint']).removesuffix('/v1')}/v1/completions"
    return Clients(url, str(state["models"][0]), kind.words, metrics)


def stopped_s(running: GraphProcess) -> float:
    began = time.monotonic()
    running.stop()
    return round(time.monotonic() - began, 1)


def table(results: Mapping[str, Any]) -> str:
    def cell(row: Mapping[str, Any], key: str, unit: str = " s") -> str:
        return f"{row[key]:.1f}{unit}" if key in row else "–"  # measured before

    return "\n".join(
        f"| {name} | {row['clients']} × {row['long_prompt_s']:.1f} s | {cell(row, 'idle_s')} | "
        f"{cell(row, 'after_s')} | {cell(row, 'prompts_computed', '')} | {cell(row, 'down_s')} | "
        f"{cell(row, 'down_idle_s')} |"
        for name, row in sorted(results.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", choices=[*KINDS, []], metavar="GRAPH")
    parser.add_argument("--clients", type=int, help="that leave (default: of each graph)")
    parser.add_argument(
        "--table", action="store_true", help="print the rows of docs/local-engines.md"
    )
    args = parser.parse_args()
    file = RESULTS / "cancellation.json"
    results = json.loads(file.read_text())["graphs"] if file.exists() else {}
    if args.table:
        print(table(results))
        return
    for name in args.graphs or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measure(name, args.clients, Path(folder))
        print(name, json.dumps(results[name]), flush=True)
        command = "python benchmarks/cancellation.py"
        write_result("cancellation", command, {"graphs": results}, show=False)


if __name__ == "__main__":
    main()
