"""Artificial Analysis' performance test against a graph that runs as mockers with predicted times.

python benchmarks/artificial_analysis.py [--parts 10k 1k …]
Writes results/artificial_analysis.json. It shows that the method runs against a graph, with both
definitions of speed. The step times are predicted, not measured on a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from report import write_result

GRAPH = Path("dynamo_graphs/gpt-oss-120b-b200-latency.yaml")
TARGET = (str(GRAPH), "--start", "--engine", "mocker", "--timing", "model")
PARTS = ("10k", "1k", "1k-parallel")
FIGURES = ("ttft_ms", "e2e_ms", "output_speed", "throughput")
KEPT = ("requests", "failures", "context", "tokens_per_chunk", "distortion", "interrupted")


def command(part: str) -> list[str]:
    method = ("--method", "artificial-analysis", "--part", part)
    return ["penstock", "bench", "public", *TARGET, *method, "--json"]


def measured(part: str) -> dict[str, Any]:
    done = subprocess.run(command(part), stdout=subprocess.PIPE, check=True, text=True)
    document = json.loads(done.stdout)
    spreads = {
        name: {key: round(value, 1) for key, value in document[name].items()} for name in FIGURES
    }
    kept = {name: document[name] for name in KEPT}
    return {"command": " ".join(command(part)), "part": document["part"], **spreads, **kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    runs = {}
    for part in args.parts:
        runs[part] = measured(part)
        figures = {"graph": GRAPH.name, "runs": runs}
        write_result("artificial_analysis", "python benchmarks/artificial_analysis.py", figures)


if __name__ == "__main__":
    main()
