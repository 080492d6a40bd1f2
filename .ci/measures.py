"""Measure the code and its feedback: sizes, import cycles, tests, seconds.

`uv run python .ci/measures.py [--root DIR] [--time] [--as before|after]` prints a table;
`--as` also writes it into benchmarks/results/measures.json. `--root` names another checkout.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import grimp

HERE = Path(__file__).resolve().parents[1]
RESULT = HERE / "benchmarks" / "results" / "measures.json"
STABILITY = HERE / "benchmarks" / "results" / "test_stability.json"


def python_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def function_lengths(path: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def spread(lengths: Sequence[int]) -> dict[str, float]:
    return {
        "count": len(lengths),
        "lines": sum(lengths),
        "median": statistics.median(lengths),
        "p95": statistics.quantiles(lengths, n=20)[-1],
        "max": max(lengths),
    }


def sizes(folder: Path) -> dict[str, dict[str, float]]:
    """Files and functions of a folder, in lines."""
    files = python_files(folder)
    return {
        "files": spread([len(p.read_text().splitlines()) for p in files]),
        "functions": spread([n for p in files for n in function_lengths(p)]),
    }


def cycles(root: Path) -> dict[str, list[str]]:
    """Import cycles between packages and between modules: the members of each."""
    sys.path.insert(0, str(root / "components" / "src"))
    graph = grimp.build_graph("penstock", cache_dir=None)
    modules = {m: set(graph.find_modules_directly_imported_by(m)) for m in graph.modules}
    packages: dict[str, set[str]] = {}
    for module, imported in modules.items():
        own = _package(module)
        others = {_package(name) for name in imported} - {own}
        packages.setdefault(own, set()).update(others)
    return {"packages": _components(packages), "modules": _components(modules)}


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _components(graph: dict[str, set[str]]) -> list[str]:
    """Strongly connected components of more than one member."""
    reachable: dict[str, set[str]] = {}
    for start, direct in graph.items():
        seen: set[str] = set()
        stack = list(direct)
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack += graph.get(name, ())
        reachable[start] = seen
    groups = {
        ", ".join(sorted(b for b in reachable[a] if a in reachable.get(b, ())))
        for a in graph
        if a in reachable[a]
    }
    return sorted(groups)


def tests_collected(root: Path) -> int:
    argv = ["uv", "run", "pytest", "--collect-only", "-q"]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True)
    return sum("::" in line for line in done.stdout.splitlines())


def seconds(root: Path, *argv: str) -> float:
    started = time.monotonic()
    subprocess.run(argv, cwd=root, stdout=subprocess.DEVNULL, check=True)
    return round(time.monotonic() - started, 1)


def timings(root: Path) -> dict[str, float]:
    """`make check` is measured warm, on its second run."""
    seconds(root, "make", "check")
    return {
        "make check": seconds(root, "make", "check"),
        "make unit": seconds(root, "make", "unit"),
    }


def flaky_tests() -> list[str] | None:
    """Tests that failed in some, not all, runs of the stability script."""
    if not STABILITY.is_file():
        return None
    runs = json.loads(STABILITY.read_text())["runs"]
    failed = [set(run["failed"]) for run in runs]
    return sorted(set().union(*failed) - set.intersection(*failed)) if failed else []


def measure(root: Path, *, is_timed: bool) -> dict[str, object]:
    return {
        "package": sizes(root / "components" / "src" / "penstock"),
        "tests": sizes(root / "tests"),
        "import cycles": cycles(root),
        "tests collected": tests_collected(root),
        "seconds": timings(root) if is_timed else {},
        "flaky tests": flaky_tests() if root == HERE else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=HERE, help="checkout to measure")
    parser.add_argument("--time", action="store_true", help="time `make check` and `make unit`")
    parser.add_argument("--as", dest="section", choices=["before", "after"], help="save as")
    args = parser.parse_args()
    result = measure(args.root.resolve(), is_timed=args.time)
    print(json.dumps(result, indent=1))
    if args.section:
        saved = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
        saved["command"] = "uv run python .ci/measures.py --time --as after"
        saved[args.section] = result
        RESULT.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()
