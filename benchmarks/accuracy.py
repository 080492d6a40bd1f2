"""Compares `penstock simulate` with the measured points in benchmarks/points.

python benchmarks/accuracy.py predict [--each N] [--half fit|held-out] [--seconds S]
    Replays the first N points of each stratum (engine, GPU, half, model, source) that are not yet
    in results/predicted_points.csv, in an order that depends only on the points; begins no replay
    after S seconds.
python benchmarks/accuracy.py report [--check]
    Writes results/accuracy.json, results/accuracy.svg and the points in the package, which make the
    intervals of `simulate`. With --check: fails if the points in the package are others.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from statistics import mean, median
from threading import Lock
from typing import Any

import measured
from accuracy_plot import plot
from accuracy_report import DATA, as_data, calibration_figures, center_figures, figures
from penstock.errors import PenstockError
from penstock.simulate.metrics import served_requests
from penstock.simulate.replay import Cache, Job, Replays, as_trace
from penstock.workload.sample import sample
from point_errors import PointError, point_error
from point_graphs import Point, deployment_of, model_of, reason_against, workload_of
from report import RESULTS, write_result
from runs import idle_points

PREDICTED = RESULTS / "predicted_points.csv"
SAMPLE_MS = 10_000
# InferenceX and most others send ten requests from each client, of which the first wait for each
# other. The replay sends fewer, so the first of each client count less.
FIRST_REQUESTS = 0.1
COLUMNS = (
    *("key", "ttft_ms_mean", "ttft_ms_p50", "tpot_ms_mean", "tpot_ms_p50"),
    *("output_tok_s_gpu", "queue_ms_mean", "batch", "max_batch", "whole_experts", "error"),
)
# First those for which the targets hold, gpt-oss before the others.
FIRST = [("trtllm", "b200"), ("trtllm", "h200"), ("vllm", "h200"), ("vllm", "h100")]


def key_of(point: Point) -> str:
    return sha256("\n".join(point.values()).encode()).hexdigest()[:12]


def stratum(point: Point) -> tuple[str, ...]:
    return (point["engine"], point["gpu"], point["split"], model_of(point), point["source_group"])


def planned(each: int) -> Iterator[Point]:
    """The first ``each`` points of every stratum, one of each stratum after the other."""
    strata: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in measured.read():
        if measured.can_be_replayed(point) and not reason_against(point):
            strata[stratum(point)].append(point)
    for points in strata.values():
        points.sort(key=lambda point: sha256(f"sample {key_of(point)}".encode()).hexdigest())
    for is_later in (False, True):
        names = sorted(name for name in strata if (name[:2] not in FIRST) is is_later)
        for number in range(each):
            for name in sorted(names, key=lambda name: not name[3].startswith("gpt-oss")):
                yield from strata[name][number : number + 1]


def predicted() -> dict[str, dict[str, str]]:
    if not PREDICTED.exists():
        return {}
    with PREDICTED.open(newline="") as file:
        return {row["key"]: row for row in csv.DictReader(file)}


def predict(each: int, half: str, seconds: float, processes: int) -> None:
    done, lock, end = predicted(), Lock(), time.monotonic() + seconds
    todo = [p for p in planned(each) if key_of(p) not in done and half in ("both", p["split"])]
    folder = tempfile.TemporaryDirectory(prefix="penstock-accuracy-")
    with folder, Replays(Cache(None, ""), processes) as replays:

        def run(point: Point) -> None:
            if time.monotonic() > end:
                return
            began = time.monotonic()
            row = {"key": key_of(point), **prediction(replays, point, Path(folder.name))}
            with lock:
                done[row["key"]] = row
                _write(done)
                _say(point, row, time.monotonic() - began)

        with ThreadPoolExecutor(replays.processes) as pool:
            list(pool.map(run, todo))


def prediction(replays: Replays, point: Point, folder: Path) -> dict[str, Any]:
    """The replay's figures, counted over all requests, start and end included, as sources do."""
    try:
        deployment, workload = deployment_of(point, folder), workload_of(point)
        requests = [
            request
            for request in sample(workload, 0)
            if request.input_tokens + request.output_tokens <= deployment.context
        ]
        clients = workload.arrival.concurrency if workload.arrival else None
        trace = as_trace(requests)
        job = Job(replayable=deployment, trace=trace, concurrency=clients, sample_ms=SAMPLE_MS)
        (result,) = replays.run([job])
    except PenstockError as error:
        return {"error": " ".join(str(error).split())[:200]}
    served = served_requests(result)
    seconds = (max(one.ended_ms for one in served) - served[0].arrived_ms) / 1000
    first = clients if point["load"] == "concurrency" else None
    ttft = [one.ttft_ms for one in served]
    tpot = [one.itl_ms for one in served if one.itl_ms]
    engine = deployment.pools[0].engine
    ranks = deployment.pools[0].replicas * engine["dp_size"]
    busy = sum(one.e2e_ms - one.prefill_queue_ms for one in served)
    return {
        "ttft_ms_mean": round(_mean(ttft, first), 2),
        "ttft_ms_p50": round(median(ttft), 2),
        "tpot_ms_mean": round(mean(tpot), 4),
        "tpot_ms_p50": round(median(tpot), 4),
        "output_tok_s_gpu": round(sum(one.tokens for one in served) / seconds / deployment.gpus, 2),
        "queue_ms_mean": round(_mean([one.prefill_queue_ms for one in served], first), 2),
        "batch": round(busy / 1000 / seconds / ranks, 2),
        "max_batch": engine["engine"]["max_num_seqs"],
        "whole_experts": "yes" if result.get("whole_experts") else "",
    }


def _mean(values: list[float], first: int | None) -> float:
    """``first``: how many values count as FIRST_REQUESTS together; None: all count the same."""
    if first is None or first >= len(values):
        return mean(values)
    return FIRST_REQUESTS * mean(values[:first]) + (1 - FIRST_REQUESTS) * mean(values[first:])


def _write(rows: dict[str, dict[str, Any]]) -> None:
    temporary = PREDICTED.with_suffix(".tmp")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))
    temporary.replace(PREDICTED)


def _say(point: Point, row: dict[str, Any], took: float) -> None:
    figures = {c: (point[c], row[c]) for c in COLUMNS if row.get(c) and point.get(c)}
    what = f"{'/'.join(stratum(point))} {point['isl']}/{point['osl']}"
    print(f"{took:.0f} s {what} {figures or row.get('error')}", file=sys.stderr, flush=True)


def point_errors() -> list[PointError]:
    """Of all points that were replayed, in the order of points.csv."""
    rows = predicted()
    known = [(point, rows[key]) for point in measured.read() if (key := key_of(point)) in rows]
    return [error for point, row in known if (error := point_error(point, row)) is not None]


def report(*, check: bool) -> int:
    errors = point_errors()
    data = as_data(errors, idle_points())
    if check:
        return 0 if DATA.read_text() == data else 1
    DATA.write_text(data)
    (RESULTS / "accuracy.svg").write_text(plot(errors))
    failed = {row["error"][:100] for row in predicted().values() if row["error"]}
    found = figures(errors) | {"calibration": calibration_figures()}
    found |= {"corrected by the nearest points": center_figures(errors)}
    counts = {"points": len(errors), "not replayed": sorted(failed)}
    write_result("accuracy", "python benchmarks/accuracy.py report", {**counts, **found})
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("predict", "report"))
    parser.add_argument("--each", type=int, default=30)
    parser.add_argument("--half", choices=("both", "fit", "held-out"), default="both")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "report":
        return report(check=arguments.check)
    predict(arguments.each, arguments.half, arguments.seconds, arguments.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
