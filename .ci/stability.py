"""Run the whole test suite five times, twice with other load on the machine, and list failures.

`uv run python .ci/stability.py [--runs 5] [--fresh]` continues where it stopped: each finished run
is in benchmarks/results/test_stability.json, with its counts, seconds and failed tests.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "test_stability.json"
LOADED_RUNS = (2, 4)  # counted from 1
BURN = "import time\nend = time.monotonic() + 7200\nwhile time.monotonic() < end: pass"


@contextmanager
def other_load(is_loaded: bool) -> Iterator[None]:
    """One process that keeps a core busy, for two hours at most."""
    if not is_loaded:
        yield
        return
    burner = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        yield
    finally:
        burner.kill()
        burner.wait()


def run_suite(number: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder, other_load(number in LOADED_RUNS):
        report = Path(folder) / "junit.xml"
        started = time.monotonic()
        argv = ["uv", "run", "pytest", "-q", f"--junitxml={report}"]
        done = subprocess.run(argv, cwd=ROOT, check=False)
        seconds = time.monotonic() - started
        return {
            "run": number,
            "other_load": number in LOADED_RUNS,
            "commit": _git("rev-parse", "--short", "HEAD"),
            "exit_code": done.returncode,
            "seconds": round(seconds),
            **_counts(report),
        }


def _counts(report: Path) -> dict[str, object]:
    suite = ET.parse(report).getroot().find("testsuite")  # noqa: S314  written by pytest
    assert suite is not None
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    return {
        "passed": total - skipped - len(failed),
        "skipped": skipped,
        "failed": sorted(failed),
    }


def _git(*argv: str) -> str:
    done = subprocess.run(["git", *argv], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main() -> None:
    # A shell that starts this in the background makes it ignore SIGINT, and its children too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs in total (default: 5)")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    args = parser.parse_args()
    runs: list[dict[str, object]] = []
    if RESULT.is_file() and not args.fresh:
        runs = json.loads(RESULT.read_text())["runs"]
    for number in range(len(runs) + 1, args.runs + 1):
        runs.append(run_suite(number))
        document = {
            "command": "uv run python .ci/stability.py",
            "machine": f"2 cores, Python {platform.python_version()}",
            "runs": runs,
        }
        RESULT.write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps(runs[-1]))


if __name__ == "__main__":
    main()
