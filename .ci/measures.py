"""Measure the size and shape of the code, and how long the tests and checks take.

python .ci/measures.py [--before FOLDER] [--time | --check]
Writes benchmarks/results/measures.json.

Without options it measures this checkout ("after"). `--before` measures another checkout.
`--time` also runs `make unit`, `make check` and `.ci/run`. Run it on an idle machine.
`--check` writes nothing and fails if the recorded numbers of files, functions or lines
differ by more than 2%.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "measures.json"
OUTDATED = 0.02  # difference of a recorded size from which it is out of date
STABILITY = "benchmarks/results/test_stability.json"
PACKAGE, TESTS = "components/src/penstock", "tests"
# Of the checkout's own Python: two checkouts have two packages of the same name.
CYCLES = """
import json, grimp
import sys
only_at_run_time = sys.argv[1] == "run time"
graph = grimp.build_graph(
    "penstock", cache_dir=None, exclude_type_checking_imports=only_at_run_time
)
top = lambda name: ".".join(name.split(".")[:2])
modules = {m: {i for i in graph.find_modules_directly_imported_by(m)} for m in graph.modules}
packages = {}
for module, imported in modules.items():
    own = packages.setdefault(top(module), set())
    own |= {top(i) for i in imported if top(i) != top(module)}
packages.pop("penstock", None)
print(json.dumps([{k: sorted(v) for k, v in g.items()} for g in (packages, modules)]))
"""
COMMANDS = {
    "make unit": ["make", "unit"],
    "make check": ["make", "check"],
    ".ci/run": [".ci/run"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description="measure the code and the tests")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="measure this old checkout")
    parser.add_argument("--time", action="store_true", help="run the targets and measure seconds")
    parser.add_argument("--check", action="store_true", help="fail if the result is out of date")
    options = parser.parse_args()
    if options.check:
        return check()
    section = "before" if options.before else "after"
    content = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    measured = measure((options.before or ROOT).resolve())
    if options.time:
        measured["seconds"] = {n: timed(c, options.before or ROOT) for n, c in COMMANDS.items()}
    elif "seconds" in content.get(section, {}):
        measured["seconds"] = content[section]["seconds"]
    content[section] = measured
    RESULT.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", "utf-8")
    show(content)
    return 0


def check() -> int:
    """Whether the sizes in the result are still those of this checkout, within OUTDATED."""
    recorded = json.loads(RESULT.read_text("utf-8"))["after"]
    stale = [
        f"{name}: {recorded[name][key]} {key} recorded, {now[key]} found"
        for name, folder in (("package", PACKAGE), ("tests", TESTS))
        for now in [sizes(ROOT / folder)]
        for key in ("files", "functions", "lines")
        if abs(recorded[name][key] - now[key]) > OUTDATED * now[key]
    ]
    for line in stale:
        print(f"{RESULT.relative_to(ROOT)}: stale: {line}. Fix: make measures", file=sys.stderr)
    return 1 if stale else 0


def measure(folder: Path) -> dict[str, Any]:
    packages, modules = (cycles(g) for g in import_graphs(folder, "run time"))
    typed_packages, typed_modules = (cycles(g) for g in import_graphs(folder, "type checking"))
    return {
        "package": sizes(folder / PACKAGE),
        "tests": sizes(folder / TESTS),
        "import cycles": {
            "between packages": len(packages),
            "between modules": len(modules),
            "between packages, with imports for types": len(typed_packages),
            "between modules, with imports for types": len(typed_modules),
            "members": sorted(map(list, {tuple(c) for c in (*typed_packages, *typed_modules)})),
        },
        "tests collected": collected(folder),
        "stability": stability(folder),
    }


def sizes(folder: Path) -> dict[str, Any]:
    """Lines of the files and of the functions under ``folder``."""
    texts = [path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))]
    functions = [n for text in texts for n in function_lines(text)]
    lines = [len(text.splitlines()) for text in texts]
    return {
        "files": len(texts),
        "lines": sum(lines),
        "lines of a file": distribution(n for n in lines if n),
        "functions": len(functions),
        "lines of a function": distribution(functions),
    }


def function_lines(text: str) -> list[int]:
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def distribution(values: Iterable[int]) -> dict[str, float]:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {"median": statistics.median(ordered), "p95": p95, "max": ordered[-1]}


def import_graphs(folder: Path, kind: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What each subpackage, and each module, of penstock imports of penstock."""
    python = folder / ".venv" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(folder / "components" / "src")}
    done = subprocess.run(
        [str(python), "-c", CYCLES, kind],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    packages, modules = json.loads(done.stdout)
    return packages, modules


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of two or more nodes that import each other (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found)


def collected(folder: Path) -> int:
    command = ["uv", "run", "pytest", "--collect-only", "-q"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return int(done.stdout.rsplit(" tests collected", 1)[0].split()[-1].partition("/")[0])


def stability(folder: Path) -> dict[str, Any] | None:
    path = folder / STABILITY
    if not path.exists():
        return None
    content = json.loads(path.read_text("utf-8"))
    return {
        "runs": len(content["runs"]),
        "runs with other load": sum(run["with_load"] for run in content["runs"]),
        "failed tests": content["failed_tests"],
        "seconds": [run["seconds"] for run in content["runs"]],
    }


def timed(command: list[str], folder: Path) -> int:
    begun = time.monotonic()
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)
    return round(time.monotonic() - begun)


def show(content: Mapping[str, Mapping[str, Any]]) -> None:
    flat = {name: flattened(section) for name, section in content.items()}
    rows = sorted({key for section in flat.values() for key in section})
    names = [name for name in ("before", "after") if name in flat]
    width = max(len(row) for row in rows)
    print(" " * width, *(f"{name:>10}" for name in names))
    for row in rows:
        print(f"{row:<{width}}", *(f"{flat[name].get(row, '–')!s:>10}" for name in names))


def flattened(section: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in section.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{above}{key}, ")
        elif isinstance(value, list) and key == "failed tests":
            flat[f"{above}{key}"] = len(value)
        elif isinstance(value, int | float | str):
            flat[f"{above}{key}"] = value
    return flat


if __name__ == "__main__":
    sys.exit(main())
