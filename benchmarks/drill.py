"""Seeded faults under load, over four variants of a graph, and what the clients lost.

    python benchmarks/drill.py [--variant NAME] [--runs N] [--count N]

Runs the seeds that results/drill.json lacks, and writes it after each: a run is `penstock drill`
with one seed. Variants with mockers: `files` (discovery in files, events over ZMQ), `etcd` (etcd
and NATS), `envoy` (two frontends behind two Envoys). Variant `cpu`: vLLM on the CPU, KV over NIXL;
each response is compared with one without faults.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphs import ETCD, copy_graph
from penstock.drill.evaluate import Loss, median, p99
from penstock.drill.run import DrillOptions, DrillResult, run_drill
from penstock.errors import StartError
from report import RESULTS, write_result

ROOT = Path(__file__).parents[1]
RESULT = RESULTS / "drill.json"
TWO_POOLS = ("--set", "prefill.replicas=2", "--set", "decode.replicas=2")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a graph runs. ``text`` is added to its file."""

    graph: str = "quickstart"
    text: str = ""
    up: tuple[str, ...] = TWO_POOLS
    streams: int = 32
    tokens: int = 60
    stall_s: float = 5.0
    exact: bool = False


VARIANTS = {
    "files": Variant(),
    "etcd": Variant(text=ETCD),
    "envoy": Variant(up=(*TWO_POOLS, "--set", "frontend.replicas=2")),
    # On two cores, a worker of vLLM takes 40 s to start.
    "cpu": Variant(graph="cpu-disagg", streams=4, tokens=40, stall_s=30, exact=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="run seeded drills and add them to drill.json")
    parser.add_argument("--variant", choices=VARIANTS, help="only this variant")
    parser.add_argument("--runs", type=int, default=8, help="number of seeds of each variant")
    parser.add_argument("--count", type=int, default=20, help="faults of a run")
    options = parser.parse_args()
    runs = json.loads(RESULT.read_text("utf-8"))["runs"] if RESULT.exists() else []
    done = {(run["variant"], run["seed"]) for run in runs}
    names = [options.variant] if options.variant else list(VARIANTS)
    for seed in range(1, options.runs + 1):
        for name in names:
            if (name, seed) not in done:
                runs.append(drill(name, seed, options.count))
                _write(runs)
    return int(not all(run["passed"] for run in runs))


def drill(name: str, seed: int, count: int) -> dict[str, Any]:
    variant = VARIANTS[name]
    with tempfile.TemporaryDirectory(prefix="penstock-drill-") as folder:
        graph = copy_graph(variant.graph, Path(folder))
        graph.write_text(graph.read_text("utf-8") + variant.text, "utf-8")
        options = DrillOptions(
            seed=seed,
            count=count,
            streams=variant.streams,
            tokens=variant.tokens,
            stall_s=variant.stall_s,
            exact=variant.exact,
            up_arguments=variant.up,
        )
        run = Path(folder) / "run"
        run.mkdir()
        try:
            result = run_drill(graph, options, run, lambda line: print(f"{name} {seed}: {line}"))
        except StartError as error:
            return _row(name, seed) | {"passed": False, "not_started": str(error)[-2000:]}
    return _row(name, seed) | _figures(result)


def _row(name: str, seed: int) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {"variant": name, "seed": seed, "commit": commit.stdout.strip()}


def _figures(result: DrillResult) -> dict[str, Any]:
    evaluation = result.evaluation
    bad = [loss for loss in evaluation.losses if not loss.is_unavoidable]
    is_clean = not (evaluation.not_recovered or evaluation.leftovers)
    return {
        "passed": is_clean and not any(_is_avoidable(loss) for loss in bad),
        "seconds": round(result.seconds),
        "requests": evaluation.requests,
        "rows": [
            {
                "kind": row.kind,
                "target": row.target,
                "faults": row.faults,
                "affected": {harm.value: n for harm, n in row.affected.items()},
                "unavoidable": row.unavoidable,
                "recovery_s": [round(seconds, 1) for seconds in row.recovery_s],
            }
            for row in evaluation.rows
        ],
        "avoidable": dict(Counter(_line(x) for x in bad if _is_avoidable(x))),
        "without_survivor": dict(Counter(_line(x) for x in bad if not _is_avoidable(x))),
        "not_recovered": [f"{f.kind} {f.target}" for f in evaluation.not_recovered],
        "leftovers": list(evaluation.leftovers),
    }


def _is_avoidable(loss: Loss) -> bool:
    """Whether another process could have served the request."""
    return loss.fault is None or loss.fault.has_survivor


def _line(loss: Loss) -> str:
    fault = f"{loss.fault.kind} {loss.fault.target}" if loss.fault is not None else "no fault"
    return f"{loss.harm} during {fault}: {loss.request.error[:200]}"


def _write(runs: list[dict[str, Any]]) -> None:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in runs:
        for row in run.get("rows", ()):
            groups.setdefault((run["variant"], row["kind"], row["target"]), []).append(row)
    figures = {
        "faults": sum(row["faults"] for rows in groups.values() for row in rows),
        "requests": sum(run.get("requests", 0) for run in runs),
        "avoidable": sum(sum(run.get("avoidable", {}).values()) for run in runs),
        "without_survivor": sum(sum(run.get("without_survivor", {}).values()) for run in runs),
        "groups": [_group(key, rows) for key, rows in sorted(groups.items())],
        "runs": runs,
    }
    write_result("drill", "python benchmarks/drill.py", figures, show=False)


def _group(key: tuple[str, str, str], rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    rows = list(rows)
    affected: Counter[str] = Counter()
    for row in rows:
        affected.update(row["affected"])
    recovery = [seconds for row in rows for seconds in row["recovery_s"]]
    return {
        **dict(zip(("variant", "kind", "target"), key, strict=True)),
        "faults": sum(row["faults"] for row in rows),
        "affected": dict(affected),
        "unavoidable": sum(row["unavoidable"] for row in rows),
        "recovery_s_median": median(recovery),
        "recovery_s_p99": p99(recovery),
    }


if __name__ == "__main__":
    sys.exit(main())
