"""Measures the time from `penstock up quickstart-simulated.yaml` to the first chat completion.

python benchmarks/start.py   Engines are mockers. Writes results/start.json.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import httpx

from penstock.drill.graph_process import GraphProcess
from report import write_result

GRAPH = Path(__file__).parents[1] / "dynamo_graphs" / "quickstart-simulated.yaml"
PORT = 8931
RUNS = 5
BODY = {
    "model": "openai/gpt-oss-20b",
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 8,
}


def first_completion_s(folder: Path) -> float:
    """Sends requests repeatedly from the start of `up` until one succeeds."""
    begun = time.monotonic()
    with GraphProcess(GRAPH, folder, ["--port", str(PORT)]):
        while time.monotonic() - begun < 120:
            try:
                response = httpx.post(
                    f"http://127.0.0.1:{PORT}/v1/chat/completions", json=BODY, timeout=5
                )
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if response.status_code == 200:
                return time.monotonic() - begun
            time.sleep(0.05)
    raise TimeoutError("no completion within 120 s")


def main() -> None:
    seconds = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            seconds.append(round(first_completion_s(Path(folder)), 2))
    write_result(
        "start",
        "python benchmarks/start.py",
        {
            "engines": "dynamo.mocker 1.6.1: no tokens were computed",
            "runs": RUNS,
            "first_completion_s": seconds,
            "median_s": statistics.median(seconds),
            "worst_s": max(seconds),
        },
    )


if __name__ == "__main__":
    main()
