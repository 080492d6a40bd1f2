"""Run the whole test suite five times and record counts, failures and seconds of each run.

python .ci/stability.py [--runs N] [--fresh]   Writes benchmarks/results/test_stability.json.

Runs 2 and 4 share the machine with a process that keeps one CPU core busy. The file is written
after each run, and a script that was ended continues with the next run. Each run names its commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "test_stability.json"
WITH_LOAD = (2, 4)
LONGEST_RUN_S = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(description="run the test suite repeatedly")
    parser.add_argument("--runs", type=int, default=5, help="number of runs (default: 5)")
    parser.add_argument("--fresh", action="store_true", help="discard the runs recorded so far")
    options = parser.parse_args()
    # A program that a shell starts in the background ignores SIGINT, and so would its children:
    # the tests send SIGINT to what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runs = [] if options.fresh else recorded()
    while len(runs) < options.runs:
        number = len(runs) + 1
        print(f"run {number} of {options.runs}", flush=True)
        with_load, commit = number in WITH_LOAD, current_commit()
        if with_load:
            with busy_core():
                run = run_suite()
        else:
            run = run_suite()
        runs.append({"run": number, "commit": commit, "with_load": with_load, **run})
        write(runs)
        print(json.dumps(runs[-1], indent=2), flush=True)
    return 1 if any(run["failures"] or run["exit_code"] for run in runs) else 0


def current_commit() -> str:
    git = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def recorded() -> list[dict[str, Any]]:
    """The runs that are in the result file."""
    return list(json.loads(RESULT.read_text("utf-8"))["runs"]) if RESULT.exists() else []


def write(runs: list[dict[str, Any]]) -> None:
    failed = sorted({test for run in runs for test in run["failures"]})
    content = {
        "command": "uv run python .ci/stability.py",
        "machine": {"cpus": os.cpu_count(), "system": platform.platform()},
        "failed_tests": failed,
        "runs": runs,
    }
    temporary = RESULT.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
    temporary.replace(RESULT)


def run_suite() -> dict[str, Any]:
    """Run `uv run pytest` once: exit code, seconds, counts, and the ids of the failed tests."""
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        command = ["uv", "run", "pytest", "-q", f"--junit-xml={junit}"]
        begun = time.monotonic()
        # In this process group, so that Ctrl-C reaches pytest too.
        code = subprocess.run(command, cwd=ROOT, timeout=LONGEST_RUN_S, check=False).returncode
        seconds = time.monotonic() - begun
        cases = list(ElementTree.parse(junit).iter("testcase")) if junit.exists() else []  # noqa: S314
    if code == -signal.SIGINT or code == 2:
        raise KeyboardInterrupt
    failures = [test_id(c) for c in cases if has(c, "failure") or has(c, "error")]
    skipped = sum(has(case, "skipped") for case in cases)
    return {
        "exit_code": code,
        "seconds": round(seconds),
        "passed": len(cases) - skipped - len(set(failures)),
        "skipped": skipped,
        "failures": sorted(set(failures)),
    }


def has(case: ElementTree.Element, outcome: str) -> bool:
    return case.find(outcome) is not None


def test_id(case: ElementTree.Element) -> str:
    name = case.get("name", "")
    if name.rfind("@") > name.rfind("]"):  # xdist adds the test's group
        name = name.rpartition("@")[0]
    return f"{case.get('classname', '').replace('.', '/')}.py::{name}"


@contextmanager
def busy_core() -> Iterator[None]:
    """One process that computes without a pause, ended by its pid."""
    seconds = int(LONGEST_RUN_S)  # it ends by itself if this script is killed
    code = f"import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
