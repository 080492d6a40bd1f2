"""Measures the time to check a graph and a hundred manifests, and of `penstock check`.

python benchmarks/check.py   Writes results/check.json.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import penstock.checks.report
import penstock.engines.llm_args.validate  # noqa: F401
from penstock.checks.run import check_file
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from render import ms
from report import write_result

ROOT = Path(__file__).parents[1]
GRAPHS = sorted((ROOT / "dynamo_graphs").glob("gpt-oss-*.yaml"))
RUNS = 30
MANIFESTS = 100
PROCESS_RUNS = 10


def checked(path: Path) -> Callable[[], object]:
    return lambda: check_file(path, Hints())


def hundred(folder: Path) -> list[Path]:
    """A hundred files with the rendered graphs of the repository, in turn."""
    texts = [open_source(graph).text for graph in GRAPHS]
    paths = []
    for number in range(MANIFESTS):
        path = folder / f"{number}.yaml"
        path.write_text(texts[number % len(texts)])
        paths.append(path)
    return paths


def process() -> dict[str, object]:
    penstock = shutil.which("penstock")
    if penstock is None:
        return {}
    command = [penstock, "check", str(GRAPHS[0])]
    run = partial(subprocess.run, command, capture_output=True, check=True)
    return {"process_ms": ms(run, PROCESS_RUNS)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = hundred(Path(folder))
        manifests = ms(lambda: [check_file(path, Hints()) for path in paths], 3)
    figures = {
        "runs": RUNS,
        "graph_ms": {graph.stem: ms(checked(graph), RUNS) for graph in GRAPHS},
        f"{MANIFESTS}_manifests_ms": manifests,
        **process(),
    }
    write_result("check", "python benchmarks/check.py", figures)


if __name__ == "__main__":
    main()
