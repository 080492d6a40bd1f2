"""Measures the time to render each graph in-process, and of `penstock --help` as a process.

python benchmarks/render.py   Writes results/render.json.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from penstock.manifests.render import render
from report import write_result

GRAPHS = sorted((Path(__file__).parents[1] / "dynamo_graphs").glob("*.yaml"))
RUNS = 50
HELP_RUNS = 10


def ms(work: Callable[[], object], runs: int) -> dict[str, float]:
    """Median and 99th percentile of ``runs`` in ms; the first, which loads Helm, is separate."""
    taken = []
    for _ in range(runs + 1):
        begun = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - begun))
    first, *rest = taken
    rest.sort()
    p99 = rest[min(len(rest) - 1, round(0.99 * len(rest)))]
    figures = {"first": first, "min": rest[0], "median": statistics.median(rest), "p99": p99}
    return {name: round(value, 1) for name, value in figures.items()}


def rendered(graph: Path) -> Callable[[], object]:
    values = yaml.safe_load(graph.read_text("utf-8"))
    return lambda: render(values, name=graph.stem)


def command_line() -> dict[str, Any]:
    """`penstock --help`, if the command is installed."""
    penstock = shutil.which("penstock")
    if penstock is None:
        return {}
    run = partial(subprocess.run, [penstock, "--help"], capture_output=True, check=True)
    return {"help_ms": ms(run, HELP_RUNS)}


def main() -> None:
    figures = {
        "runs": RUNS,
        "render_ms": {graph.stem: ms(rendered(graph), RUNS) for graph in GRAPHS},
        **command_line(),
    }
    write_result("render", "python benchmarks/render.py", figures)


if __name__ == "__main__":
    main()
