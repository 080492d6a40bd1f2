"""Measures the time to check graphs in-process, and of `penstock check` as a process.

python benchmarks/check.py   Writes results/check.json.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.checks.run import check_file
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from render import ms
from report import write_result

ROOT = Path(__file__).parents[1]
GRAPHS = sorted((ROOT / "dynamo_graphs").glob("gpt-oss-*.yaml"))
RUNS = 30
MANIFESTS = 200
PROCESS_RUNS = 10


def checked(path: Path) -> Callable[[], object]:
    return lambda: check_file(path, Hints())


def manifests(folder: Path) -> list[Path]:
    """Files with the rendered graphs of the repository, in turn; the first is of vLLM."""
    first = sorted(GRAPHS, key=lambda graph: "vllm" not in graph.stem)
    texts = [open_source(graph).text for graph in first]
    paths = []
    for number in range(MANIFESTS):
        path = folder / f"{number}.yaml"
        path.write_text(texts[number % len(texts)])
        paths.append(path)
    return paths


def process(command: Sequence[str], runs: int) -> dict[str, float]:
    """Medians of whole processes in ms: wall time, and CPU time of user and system."""
    wall, cpu = [], []
    for _ in range(runs + 1):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, capture_output=True, check=False)
        wall.append(1000 * (time.perf_counter() - begun))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cpu.append(1000 * used)
    # The first run reads the files from disk and writes their bytecode.
    return {
        "wall_median": round(statistics.median(wall[1:]), 1),
        "cpu_median": round(statistics.median(cpu[1:]), 1),
        "cpu_min": round(min(cpu[1:]), 1),
    }


def processes(paths: Sequence[Path]) -> dict[str, Any]:
    """`penstock check`, and an empty Python process to compare it with."""
    penstock = shutil.which("penstock")
    if penstock is None:
        return {}
    empty = process([sys.executable, "-c", "pass"], PROCESS_RUNS)
    one = process([penstock, "check", str(paths[0])], PROCESS_RUNS)
    return {
        "python_process_ms": empty,
        "graph_process_ms": process([penstock, "check", str(GRAPHS[0])], PROCESS_RUNS),
        "manifest_process_ms": one,
        "manifest_process_per_python_process": round(one["cpu_min"] / empty["cpu_min"], 1),
        f"{len(paths)}_manifests_process_ms": process([penstock, "check", *map(str, paths)], 3),
    }


def in_process(paths: Sequence[Path]) -> dict[str, Any]:
    return {
        "graph_ms": {graph.stem: ms(checked(graph), RUNS) for graph in GRAPHS},
        f"{len(paths)}_manifests_ms": ms(lambda: [check_file(path, Hints()) for path in paths], 3),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = manifests(Path(folder))
        figures = {"runs": RUNS, **in_process(paths), **processes(paths)}
    write_result("check", "python benchmarks/check.py", figures)


if __name__ == "__main__":
    main()
