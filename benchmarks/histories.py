"""Measure what serves during random changes of a release on the emulated cluster.

    python benchmarks/histories.py [--reports FOLDER]

Runs the nightly part of tests/kubernetes/cluster/test_histories.py, which makes at least 60 changes
on each platform, and fails if too little serves. By kind of change: how many; the most replicas of
a component that were not ready at a time (a node that is drained may lack one, by its disruption
budget); the fewest ready workers of a pool to which every ready frontend routed; and the seconds in
which that was none. FOLDER has the reports of a run with PENSTOCK_HISTORIES=FOLDER, which is then
not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from report import write_result

NAME = "histories"
ROOT = Path(__file__).parents[1]
TEST = "tests/kubernetes/cluster/test_histories.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--reports", type=Path, metavar="FOLDER")
    reports = parser.parse_args().reports
    with tempfile.TemporaryDirectory(prefix="penstock-histories-") as folder:
        if reports is None:
            run(folder)
        files = sorted((reports or Path(folder)).glob("*.json"))
        platforms = {path.stem: json.loads(path.read_text()) for path in files}
    totals = {
        platform: {
            "changes": sum(figures["changes"] for figures in kinds.values()),
            "seconds_without_route": sum(f["seconds_without_route"] for f in kinds.values()),
        }
        for platform, kinds in platforms.items()
    }
    write_result(NAME, f"python benchmarks/{NAME}.py", {"totals": totals, "platforms": platforms})


def run(folder: str) -> None:
    """Write a report of each platform into the folder; exits if the test fails."""
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "nightly", TEST]
    environment = {**os.environ, "PENSTOCK_HISTORIES": folder}
    subprocess.run([*argv, "--timeout", "3600"], cwd=ROOT, env=environment, check=True)


if __name__ == "__main__":
    main()
