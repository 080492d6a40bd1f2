"""Run the fuzz tests with hypothesis' profile "thorough": 2,000 examples in each.

python benchmarks/fuzz.py [--fresh]   Writes results/fuzz.json after each test and continues there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from report import RESULTS

ROOT = Path(__file__).parents[1]
RESULT = RESULTS / "fuzz.json"
FILES = ("tests/checks/test_fuzz.py",)
SELECTED = "mutated"  # the tests whose number of examples the profile decides
EXAMPLES = 2000  # the profile "thorough" in tests/conftest.py


def main() -> int:
    parser = argparse.ArgumentParser(description="run the fuzz tests thoroughly")
    parser.add_argument("--fresh", action="store_true", help="discard the results recorded so far")
    options = parser.parse_args()
    rows: dict[str, Any] = {}
    if RESULT.exists() and not options.fresh:
        rows = json.loads(RESULT.read_text("utf-8"))["tests"]
    for test in tests():
        if test in rows:
            continue
        rows[test] = run(test)
        print(test, rows[test], flush=True)
        RESULT.write_text(json.dumps({"tests": rows}, indent=2) + "\n", "utf-8")
    return 0 if all(row["passed"] for row in rows.values()) else 1


def pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def tests() -> list[str]:
    done = pytest("--collect-only", "-k", SELECTED, *FILES)
    listed = [line for line in done.stdout.splitlines() if "::" in line]
    if done.returncode or not listed:
        raise SystemExit(f"no fuzz test was collected:\n{done.stdout}{done.stderr}")
    return listed


def run(test: str) -> dict[str, Any]:
    begun = time.monotonic()
    done = pytest(test, "--hypothesis-profile=thorough", "--timeout=3600")
    row: dict[str, Any] = {"examples": EXAMPLES, "passed": done.returncode == 0}
    if done.returncode:
        row["output"] = done.stdout[-4000:]
    return {**row, "seconds": round(time.monotonic() - begun)}


if __name__ == "__main__":
    sys.exit(main())
