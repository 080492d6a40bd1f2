"""How often `penstock bench A B` claims a difference that exists, and one that does not.

python benchmarks/bench_ab.py [--runs N] [--short]
Writes results/bench_ab.json; continues with the runs that it lacks.

Both targets are servers with planned latencies (`scripted_server.py`). In half of the runs they are
equal, in the other half B is 5% slower. The seed of a run decides the traffic and the order of the
slices. A run takes less than 3 minutes. --short: one run of each kind.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.local.ports import Ports
from report import RESULTS, write_result

SERVER = Path(__file__).with_name("scripted_server.py")
SLOWDOWNS = {"equal": 1.0, "B 5% slower": 1.05}
RUNS = 20  # of each kind
WORKLOAD = """\
requests: 1000
input: {mean: 500, cv: 0.8, max: 4000}
output: {mean: 100, cv: 0.5, max: 400}
arrival: {poisson: 8}
"""


@contextmanager
def serving(port: int, slowdown: float) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, SERVER, str(port), str(slowdown)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def measured(kind: str, seed: int) -> dict[str, Any]:
    """One run: the claims, the changes with their intervals, and its duration."""
    ports = Ports()
    with (
        TemporaryDirectory() as scratch,
        serving(ports.free(), 1.0) as first,
        serving(ports.free(), SLOWDOWNS[kind]) as second,
    ):
        workload = Path(scratch) / "workload.yaml"
        workload.write_text(WORKLOAD)
        time.sleep(1)  # until both listen
        began = time.monotonic()
        command = ["penstock", "bench", first, second, "--workload", str(workload)]
        command += ["--seed", str(seed), "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        seconds = time.monotonic() - began
    document = json.loads(done.stdout)
    changes = {
        one["metric"]: {
            "change": round(one["change"], 4),
            "interval": [round(one["low"], 4), round(one["high"], 4)],
            "claim": one["claim"],
        }
        for one in document["differences"]
        if one["metric"].endswith("_mean")
    }
    return {
        "seed": seed,
        "seconds": round(seconds),
        "requests": document["requests"],
        "has_verdict": document["has_verdict"],
        "distortion": document["distortion"],
        "changes": changes,
    }


def claims(run: dict[str, Any]) -> list[int]:
    return [one["claim"] for one in run["changes"].values()] if run["has_verdict"] else []


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        kind: {
            "runs": len(some),
            "claims that B is slower": sum(1 in claims(run) for run in some),
            "claims that B is faster": sum(-1 in claims(run) for run in some),
            "longest run (s)": max((run["seconds"] for run in some), default=0),
        }
        for kind, some in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    path = RESULTS / "bench_ab.json"
    known = {} if args.short or not path.exists() else json.loads(path.read_text())["runs"]
    runs: dict[str, list[dict[str, Any]]] = {kind: known.get(kind, []) for kind in SLOWDOWNS}
    for seed in range(1 if args.short else args.runs):
        for kind, some in runs.items():
            if seed in (run["seed"] for run in some):
                continue
            some.append(measured(kind, seed))
            print(kind, json.dumps(some[-1]), flush=True)
            if not args.short:
                figures = {"summary": summary(runs), "runs": runs}
                command = "python benchmarks/bench_ab.py"
                write_result("bench_ab", command, figures, show=False)
    print(json.dumps(summary(runs), indent=1))


if __name__ == "__main__":
    main()
