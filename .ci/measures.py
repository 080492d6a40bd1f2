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
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.code_size import module_size  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "measures.json"
OUTDATED = 0.02  # difference of a recorded size from which it is out of date
STABILITY = "benchmarks/results/test_stability.json"
PACKAGE, TESTS = "components/src/penstock", "tests"
# Of the checkout's own Python: two checkouts have two packages of the same name.
CYCLES = """
import json, sys
import grimp

graph = grimp.build_graph(
    "penstock", cache_dir=None, exclude_type_checking_imports=sys.argv[1] == "run time"
)


def cycles():
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    groups = {tuple(sorted([m, *(n for n in above[m] if m in above[n])])) for m in above}
    return sorted(group for group in groups if len(group) > 1)


modules = cycles()
for package in graph.find_children("penstock"):
    graph.squash_module(package)
graph.remove_module("penstock")
print(json.dumps([cycles(), modules]))
"""
COMMANDS = {"make unit": ["make", "unit"], "make check": ["make", "check"], ".ci/run": [".ci/run"]}


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
    packages, modules = import_cycles(folder, "run time")
    typed_packages, typed_modules = import_cycles(folder, "type checking")
    return {
        "package": sizes(folder / PACKAGE),
        "tests": sizes(folder / TESTS),
        "import cycles": {
            "between packages": len(packages),
            "between modules": len(modules),
            "between packages, with imports for types": len(typed_packages),
            "between modules, with imports for types": len(typed_modules),
            "members": sorted([*typed_packages, *typed_modules]),
        },
        "tests collected": collected(folder),
        "stability": stability(folder),
    }


def sizes(folder: Path) -> dict[str, Any]:
    """Lines of the files and of the functions under ``folder``."""
    modules = [module_size(path) for path in sorted(folder.rglob("*.py"))]
    functions = [lines for module in modules for lines in module.functions.values()]
    return {
        "files": len(modules),
        "lines": sum(module.lines for module in modules),
        "lines of a file": distribution(module.lines for module in modules if module.lines),
        "functions": len(functions),
        "lines of a function": distribution(functions),
    }


def distribution(lines: Iterable[int]) -> dict[str, float]:
    ordered = sorted(lines)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {"median": statistics.median(ordered), "p95": p95, "max": ordered[-1]}


def import_cycles(folder: Path, kind: str) -> tuple[list[list[str]], list[list[str]]]:
    """Groups of two or more subpackages, and modules, of penstock that import each other."""
    done = subprocess.run(
        [str(folder / ".venv" / "bin" / "python"), "-c", CYCLES, kind],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "components" / "src")},
        check=True,
        capture_output=True,
        text=True,
    )
    packages, modules = json.loads(done.stdout)
    return packages, modules


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


if __name__ == "__main__":
    sys.exit(main())
