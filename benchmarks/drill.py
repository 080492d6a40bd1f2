"""Inject faults in a seeded order under load, in variants of a graph, and record failed requests.

    python benchmarks/drill.py [--variant NAME]… [--runs N]

Runs the seeds that results/drill.json lacks, or has from older rules, and writes it after each: a
run is `penstock drill` with one seed, in which each kind of fault of the variant hits each of its
programs once. Several can run at the same time, each with other variants or seeds. Variants with
mockers: `files` (discovery in files, events over ZMQ, one frontend behind two Envoys), `envoy` (two
frontends behind two Envoys), `etcd` (etcd and NATS), `soak` (an hour, for the memory of processes
that no fault ends), `steady` (20 minutes in which no worker is replaced, to compare the memory
with), `network` (1 Mbit/s for all connections), `clock` (requires root; sets the machine's clock,
so run nothing else at the same time). Variant `cpu`: vLLM on the CPU, KV over NIXL; each response
is compared with one without faults.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from graphs import ETCD, copy_graph
from penstock.drill import isolation
from penstock.drill.evaluate import Failure
from penstock.drill.faults import Choice, Fault, Kind, Need
from penstock.drill.graph_process import GraphProcess
from penstock.drill.inject import KINDS, choose
from penstock.drill.run import DrillOptions, DrillResult, drill_graph
from penstock.errors import StartError
from penstock.simulate.window import percentile
from report import RESULTS, write_result

ROOT = Path(__file__).parents[1]
RESULT = RESULTS / "drill.json"
# Of the evaluation: increase it when failures are judged in another way, and all seeds run again.
RULES = 2
TWO_POOLS = ("prefill.replicas=2", "decode.replicas=2")
TWO_EACH = (*TWO_POOLS, "frontend.replicas=2")
OF_PROCESS = [kind.name for kind in KINDS.values() if kind.of_process]
ALONE = "slow-network"  # it has a variant
OF_GRAPH = [k.name for k in KINDS.values() if not k.of_process and k.name != ALONE]
CLOCK_S, STEP_S = 5.0, 60.0


@contextlib.contextmanager
def _clock_ahead(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    """Set the machine's clock one minute ahead, then correct it."""
    offset = time.time() - time.monotonic()
    time.clock_settime(time.CLOCK_REALTIME, time.monotonic() + offset + STEP_S)
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, time.monotonic() + offset)


# Not a fault of `penstock drill`: it affects all processes of the machine, and requires root.
CLOCK_STEP = Kind(
    name="clock-step", of_process=False, apply=_clock_ahead, lasts_s=CLOCK_S, stalls=True
)


def _of(*programs: str, kinds: Iterable[str] = tuple(OF_PROCESS)) -> list[str]:
    return [f"{kind}:{program}" for kind in kinds for program in programs]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a graph runs. ``text`` is added to its file."""

    faults: list[str]
    graph: str = "quickstart-simulated"
    text: str = ""
    sets: tuple[str, ...] = TWO_POOLS
    minutes: float | None = None
    rounds: int = 1
    """How often each kind hits each program in a run."""
    streams: int = 12
    tokens: int = 60
    stall_s: float = 5.0
    exact: bool = False


VARIANTS = {
    "files": Variant(faults=_of("prefill", "decode", "event-broker") + OF_GRAPH),
    "envoy": Variant(
        faults=[*_of("frontend", "endpoint"), "suspend-all", "edit-config"],
        sets=TWO_EACH,
    ),
    "etcd": Variant(faults=[*_of("etcd", "nats"), "suspend-all", "edit-config"], text=ETCD),
    "soak": Variant(
        faults=[*_of("prefill", "decode", kinds=["kill"]), "scale", "edit-config", "invalid-edit"],
        sets=TWO_EACH,
        minutes=65,
    ),
    "steady": Variant(faults=["invalid-edit"], sets=TWO_EACH, minutes=20),
    "network": Variant(faults=["slow-network"], rounds=20),
    "clock": Variant(faults=[CLOCK_STEP.name], rounds=20),
    # On two cores, a worker of vLLM takes 40 s to start.
    "cpu": Variant(
        faults=_of("prefill", "decode", kinds=["kill", "stop-short"])
        + _of("frontend", "event-broker", kinds=["kill"])
        + ["suspend-all", "packet-loss"],
        graph="cpu-disagg",
        streams=4,
        tokens=40,
        stall_s=30,
        exact=True,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="run seeded drills and add them to drill.json")
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="only this variant")
    parser.add_argument("--runs", type=int, default=20, help="number of seeds of each variant")
    parser.add_argument("--first", type=int, default=1, help="first seed (default: 1)")
    options = parser.parse_args()
    if not isolation.is_inside() and (namespaces := isolation.prefix()):
        isolation.enter(namespaces, [sys.executable, *sys.argv])
    if isolation.is_inside():
        isolation.start_loopback()
    for seed in range(options.first, options.first + options.runs):
        for name in options.variant or VARIANTS:
            if seed > options.first and (VARIANTS[name].minutes or VARIANTS[name].rounds > 1):
                continue
            if not any(_is_of(run, name, seed) and run.get("rules") == RULES for run in _runs()):
                run = drill(name, seed)
                with _locked():
                    _write([*(r for r in _runs() if not _is_of(r, name, seed)), run])
    return int(not all(run["passed"] for run in _runs()))


def _is_of(run: Mapping[str, Any], name: str, seed: int) -> bool:
    return (run["variant"], run["seed"]) == (name, seed)


def drill(name: str, seed: int) -> dict[str, Any]:
    variant = VARIANTS[name]
    choices = _choices(variant)
    options = DrillOptions(
        seed=seed,
        count=len(choices) * variant.rounds,
        minutes=variant.minutes,
        streams=variant.streams,
        tokens=variant.tokens,
        stall_s=variant.stall_s,
        exact=variant.exact,
    )
    with (
        tempfile.TemporaryDirectory(prefix="penstock-drill-") as folder,
        isolation.disk(Path(folder)) as disk,
    ):
        graph = copy_graph(variant.graph, Path(folder))
        graph.write_text(graph.read_text("utf-8") + variant.text, "utf-8")
        try:
            result = drill_graph(
                graph, choices, (), variant.sets, options, disk, lambda line: _say(name, seed, line)
            )
        except StartError as error:
            return _row(name, seed) | {"passed": False, "not_started": str(error)[-2000:]}
    if result.was_interrupted:
        raise KeyboardInterrupt
    return _row(name, seed) | _figures(result)


def _choices(variant: Variant) -> list[Choice]:
    """The faults of the variant that this machine permits."""
    if variant.faults == [CLOCK_STEP.name]:
        return [Choice(kind=CLOCK_STEP)] if _can_set_clock() else []
    choices = choose(",".join(variant.faults))
    return [c for c in choices if c.kind.needs is not Need.ISOLATION or isolation.is_inside()]


def _can_set_clock() -> bool:
    try:
        time.clock_settime(time.CLOCK_REALTIME, time.time())
    except OSError:
        return False
    return True


def _say(name: str, seed: int, line: str) -> None:
    print(f"{name} {seed}: {line}", flush=True)


def _runs() -> list[dict[str, Any]]:
    if not RESULT.exists():
        return []
    found: list[dict[str, Any]] = json.loads(RESULT.read_text("utf-8"))["runs"]
    return found


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Another run of this script may write the result too."""
    with (RESULTS / ".drill.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _row(name: str, seed: int) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {"variant": name, "seed": seed, "rules": RULES, "commit": commit.stdout.strip()}


def _figures(result: DrillResult) -> dict[str, Any]:
    evaluation = result.evaluation
    bad = evaluation.avoidable
    is_clean = not (evaluation.not_recovered or evaluation.leftovers)
    return {
        "passed": is_clean and not any(_is_avoidable(failure) for failure in bad),
        "seconds": round(result.seconds),
        "requests": evaluation.requests,
        "rows": [
            {
                "kind": row.kind,
                "target": row.target,
                "faults": row.faults,
                "failed": {type_.value: n for type_, n in row.failed.items()},
                "unavoidable": row.unavoidable,
                "recovery_s": [
                    round(fault.recovery_s, 1)
                    for fault in result.faults
                    if (fault.kind, fault.program) == (row.kind, row.target)
                    and fault.recovery_s is not None
                ],
            }
            for row in evaluation.rows
        ],
        "avoidable": dict(Counter(_line(x) for x in bad if _is_avoidable(x))),
        "without_survivor": dict(Counter(_line(x) for x in bad if not _is_avoidable(x))),
        "not_recovered": [f"{f.kind} {f.target}" for f in evaluation.not_recovered],
        "leftovers": list(evaluation.leftovers),
        "memory": [asdict(trend) for trend in result.memory],
    }


def _is_avoidable(failure: Failure) -> bool:
    """Whether another process could have served the request."""
    return failure.fault is None or failure.fault.has_survivor


def _line(failure: Failure) -> str:
    fault = (
        f"{failure.fault.kind} {failure.fault.target}" if failure.fault is not None else "no fault"
    )
    return f"{failure.type} during {fault}: {failure.request.error[:200]}"


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
    failed: Counter[str] = Counter()
    for row in rows:
        failed.update(row["failed"])
    recovery = [seconds for row in rows for seconds in row["recovery_s"]]
    return {
        **dict(zip(("variant", "kind", "target"), key, strict=True)),
        "faults": sum(row["faults"] for row in rows),
        "failed": dict(failed),
        "unavoidable": sum(row["unavoidable"] for row in rows),
        "recovery_s_median": median(recovery) if recovery else None,
        "recovery_s_p99": percentile(recovery, 0.99) if recovery else None,
    }


if __name__ == "__main__":
    sys.exit(main())
