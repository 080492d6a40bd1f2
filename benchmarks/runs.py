"""Compares `penstock simulate` with published runs (docs/published-runs.md).

python benchmarks/runs.py [--short] [--fresh] [--run NAME] [--seconds S]
Predicts every row that is not yet in results/predicted_runs.csv (--fresh: all), and writes
results/runs.json. --short: three rows, nothing is written.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from itertools import compress, product
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

import yaml

from penstock.errors import PenstockError
from penstock.manifests.source import graph_source
from penstock.serving.understand import Hints
from penstock.simulate.acceptance import Acceptance, constant_rate
from penstock.simulate.accuracy import row_intervals
from penstock.simulate.interval import family, layout_of
from penstock.simulate.metrics import replay_metrics, served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.replayable import replayable
from penstock.simulate.study import Row as StudyRow
from penstock.simulate.study import Study
from penstock.simulate.window import ServedRequest, percentile
from penstock.workload import BLOCK_TOKENS
from penstock.workload.load import LoadedWorkload
from penstock.workload.model import Trace, Workload
from report import RESULTS, write_result
from run_summary import LOADS, summary

FOLDER = Path(__file__).parent / "runs"
PREDICTED = RESULTS / "predicted_runs.csv"
REJECTED = "rejected"  # not a run
SHORT = ("llm-d-gpt-oss-120b-h200-prefill", 3)  # run and number of rows
QUIET_MS = 300_000.0  # from the end of the warm-up to the stage, in simulated time
WARM_RATE = 10.0  # requests/s of the warm-up
FEWEST, MOST = 32, 6000  # requests of a row
PER_CLIENT = 5
STATISTICS = (
    *("ttft_p50_ms", "ttft_mean_ms", "ttft_p90_ms", "itl_p50_ms", "itl_mean_ms"),
    *("output_tok_s", "total_tok_s", "request_rate", "latency_p50_s", "latency_mean_s"),
    "latency_p90_s",
)
INTERVALS = tuple(f"{name}_{end}" for name in ("ttft", "itl", "rate") for end in ("low", "high"))
COLUMNS = ("key", "run", "row", *STATISTICS, *INTERVALS, "not_simulated", "error")
Run = Mapping[str, Any]


def half(name: str, run: Run) -> str:
    """`held-out` or `fit`. What was fitted before is never held out."""
    is_odd = sha256(f"46:{name}".encode()).digest()[0] % 2
    return "held-out" if is_odd and not run.get("fitted") else "fit"


def runs() -> dict[str, Run]:
    files = sorted(FOLDER.glob("*.yaml"))
    return {f.stem: yaml.safe_load(f.read_text()) for f in files if f.stem != REJECTED}


def rows_of(run: Run) -> list[dict[str, Any]]:
    """The rows with the names of their columns; figures that a row does not have are left out."""
    rows = [dict(zip(run["columns"], row, strict=True)) for row in run["rows"]]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def merged(base: Any, change: Any) -> Any:
    """``change`` over ``base``, key by key. A null removes the key."""
    if not isinstance(base, Mapping) or not isinstance(change, Mapping):
        return change
    both = {**base, **{key: merged(base.get(key), value) for key, value in change.items()}}
    return {key: value for key, value in both.items() if value is not None}


def deployment_of(run: Run, row: Mapping[str, Any]) -> Replayable:
    arm = run.get("arms", {}).get(row.get("arm")) or {}
    graph = merged(run["graph"], arm)
    length, tokens = row.get("accept_length"), row.get("draft_tokens", 0)
    rates = (constant_rate(length, tokens),) * tokens if length else ()
    source = graph_source(yaml.safe_dump(graph), "run.yaml")
    return replayable(source, Hints(), Acceptance(rates=rates) if rates else None)


def workload_of(run: Run, row: Mapping[str, Any]) -> tuple[LoadedWorkload, float]:
    """The traffic of a row, and the time in ms at which what the source measured begins."""
    start, text = 0.0, ""
    if (prompts := run.get("prompts")) is not None:
        text, start = _trace(prompts, row)
        workload = Workload(trace=Trace(format="mooncake", block_tokens=BLOCK_TOKENS))
    else:
        workload = Workload.model_validate(_sampled(run, row))
    return LoadedWorkload(
        name="run", workload=workload, source="benchmarks/runs", trace_text=text, trace_source="run"
    ), start


def _sampled(run: Run, row: Mapping[str, Any]) -> dict[str, Any]:
    fields = merged(run.get("workload", {}), {k: row[k] for k in ("input", "output") if k in row})
    clients = row.get("concurrency")
    if clients:
        load, requests = {"concurrency": clients}, max(FEWEST, PER_CLIENT * clients)
    else:
        load, requests = {"poisson": float(row["rate"])}, row["rate"] * row.get("seconds", 60)
    turns = (fields.get("conversation") or {}).get("turns", 1)
    requests = fields.get("requests") or row.get("requests") or min(MOST, max(FEWEST, requests))
    return {**fields, "requests": max(2 * turns, round(requests)), "arrival": load}


def _trace(prompts: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, float]:
    """The requests `before` (default: every prompt once) in an order that the stage repeats."""
    random = Random(46)
    blocks = {part: -(-prompts[part] // BLOCK_TOKENS) for part in ("prefix", "question")}
    order = list(product(range(prompts["groups"]), range(prompts["each"])))
    random.shuffle(order)
    before = row.get("before", len(order))
    start = before / WARM_RATE * 1000 + QUIET_MS if before else 0.0
    stage = min(MOST, round(row["rate"] * row["seconds"]))
    at = [number / WARM_RATE * 1000 for number in range(before)]
    span = stage / row["rate"] * 1000
    at += sorted(start + random.uniform(0, span) for _ in range(stage))
    lines = []
    for index, time_ms in enumerate(at):
        group, number = order[index % len(order)]
        first = 1 + group * (blocks["prefix"] + prompts["each"] * blocks["question"])
        prefix_end = first + blocks["prefix"]
        question = prefix_end + number * blocks["question"]
        request = {
            "timestamp": time_ms,
            "input_length": prompts["prefix"] + prompts["question"],
            # The warm-up only fills the caches.
            "output_length": prompts["output"] if index >= before else 1,
            "hash_ids": [
                *range(first, prefix_end),
                *range(question, question + blocks["question"]),
            ],
        }
        lines.append(json.dumps(request))
    return "\n".join(lines), start


def figures(requests: Sequence[ServedRequest], counted: float) -> dict[str, float]:
    """As load generators count: from the first request to the last token. ``counted``: output
    tokens that the source counts for each of the engine's."""
    seconds = (max(r.ended_ms for r in requests) - requests[0].arrived_ms) / 1000
    ttft, itl = [r.ttft_ms for r in requests], [r.itl_ms for r in requests if r.itl_ms]
    latency = [r.e2e_ms / 1000 for r in requests]
    output = counted * sum(r.tokens for r in requests)
    statistics = {
        "ttft_p50_ms": median(ttft),
        "ttft_mean_ms": mean(ttft),
        "ttft_p90_ms": percentile(ttft, 0.9),
        "output_tok_s": output / seconds,
        "total_tok_s": (output + sum(r.input_tokens for r in requests)) / seconds,
        "request_rate": len(requests) / seconds,
        "latency_p50_s": median(latency),
        "latency_mean_s": mean(latency),
        "latency_p90_s": percentile(latency, 0.9),
    }
    return statistics | ({"itl_p50_ms": median(itl), "itl_mean_ms": mean(itl)} if itl else {})


def prediction(replays: Replays, run: Run, row: Mapping[str, Any]) -> dict[str, Any]:
    try:
        deployment = deployment_of(run, row)
        loaded, start = workload_of(run, row)
        (both,) = Study(workload=loaded, replays=replays, seeds=1).rows([deployment], None)
        stage = _since(both, start) if start else both
        served = served_requests(stage.results[0])
        intervals = row_intervals(stage) if served else {}
    except PenstockError as error:
        return {"error": " ".join(str(error).split())[:200]}
    if not served:
        return {"error": "no request was served"}
    predictions = figures(served, run.get("counted_output", 1.0))
    for name, interval in intervals.items():
        predictions |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    rounded = {name: float(f"{value:.5g}") for name, value in predictions.items()}
    return {**rounded, "not_simulated": "; ".join(deployment.not_simulated)}


def _since(row: StudyRow, start_ms: float) -> StudyRow:
    """``row`` without the warm-up."""
    (result,) = row.results
    columns = result["requests"]
    is_in = [time_ms >= start_ms for time_ms in columns["arrival_time_ms"]]
    kept = {name: list(compress(values, is_in)) for name, values in columns.items()}
    stage = {**result, "requests": kept}
    metrics = replay_metrics(stage, row.replayable.gpus, row.replayable.slo)
    return replace(row, results=(stage,), metrics=(metrics,))


def key_of(run: Run, row: Mapping[str, Any]) -> str:
    """Changes with what is predicted: the graph and the traffic."""
    parts = ("graph", "arms", "workload", "prompts", "counted_output")
    content = {name: run.get(name) for name in parts} | {
        name: row.get(name) for name in (*LOADS, "arm", "accept_length", "draft_tokens")
    }
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def predicted() -> dict[str, dict[str, str]]:
    if not PREDICTED.exists():
        return {}
    with PREDICTED.open(newline="") as file:
        return {row["key"]: row for row in csv.DictReader(file)}


def todo(name: str | None = None) -> Iterator[tuple[str, Run, int, dict[str, Any]]]:
    for run_name, run in runs().items():
        if name in (None, run_name):
            yield from ((run_name, run, i, row) for i, row in enumerate(rows_of(run)))


def predict(name: str | None, seconds: float, *, is_fresh: bool) -> None:
    done, end = ({} if is_fresh else predicted()), time.monotonic() + seconds
    with Replays(Cache(None, ""), 2) as replays:

        def work(item: tuple[str, Run, int, dict[str, Any]]) -> None:
            run_name, run, number, row = item
            key = key_of(run, row)
            if key in done or time.monotonic() > end:
                return
            began = time.monotonic()
            figure = prediction(replays, run, row)
            done[key] = {"key": key, "run": run_name, "row": str(number), **figure}
            print(f"{time.monotonic() - began:.0f} s", run_name, row, figure, file=sys.stderr)

        with ThreadPoolExecutor(replays.processes) as pool:
            rows = sorted(todo(name), key=_order)
            for number, _ in enumerate(pool.map(work, rows)):
                if number % 10 == 0:
                    _write(done)
        _write(done)


def _order(item: tuple[str, Run, int, dict[str, Any]]) -> tuple[bool, float]:
    """Held-out runs and short stages first, so that an interrupted benchmark has them."""
    name, run, _, row = item
    return half(name, run) == "fit", row.get("rate", 0) * row.get("seconds", 0)


def _write(rows: Mapping[str, Mapping[str, Any]]) -> None:
    with PREDICTED.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=lambda r: (r["run"], int(r["row"]))))


def compared(
    predictions: Mapping[str, Mapping[str, Any]], name: str | None = None
) -> list[dict[str, Any]]:
    """Every row that was predicted: run, half, kind, load, and the measured and predicted."""
    rows = []
    for run_name, run, _, row in todo(name):
        if figure := predictions.get(key_of(run, row)):
            numbers = {k: float(figure[k]) for k in (*STATISTICS, *INTERVALS) if figure.get(k)}
            common = {"run": run_name, "half": half(run_name, run), "kind": run["kind"]}
            error = figure.get("error") or ""
            rows.append({**common, "measured": row, "predicted": numbers, "error": error})
    return rows


def idle_points() -> list[dict[str, Any]]:
    """The uncached prompts of runs with one request at a time, as points of TTFT intervals."""
    points, predictions = [], predicted()
    for run in (r for r in runs().values() if r["kind"] == "single" and "arms" not in r):
        (pool,) = deployment_of(run, {}).pools
        timing = pool.engine["engine"]["timing_model"]["config"]
        for row in rows_of(run):
            known = predictions.get(key_of(run, row))
            name = next((n for n in ("ttft_p50_ms", "ttft_mean_ms") if n in row), None)
            if not known or known["error"] or name is None or row.get("hit"):
                continue
            conditions = {
                "engine": timing["backend"],
                "gpu": run["graph"]["hardware"]["gpu"],
                "model": family(run["graph"]["model"]["id"]),
                "layout": layout_of(pool.engine["dp_size"], timing.get("moe_ep_size", 1)),
                "is_recent": True,
                "gpus": pool.gpus,
                "batch": 1.0,
                "input_tokens": float(row["input"]),
                "output_tokens": float(row.get("output", 1)),
                "is_idle": True,
            }
            ratio = round(float(row[name]) / float(known[name]), 4)
            source = run["source"]["repository"]
            points.append({"conditions": conditions, "ratios": {"ttft": ratio}, "source": source})
    return points


def short() -> None:
    name, count = SHORT
    run, predictions = runs()[name], {}
    with Replays(Cache(None, ""), 1) as replays:
        for row in rows_of(run)[:count]:
            predictions[key_of(run, row)] = prediction(replays, run, row)
    print(json.dumps(summary(compared(predictions, name)), indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--run")
    parser.add_argument("--seconds", type=float, default=1e9)
    arguments = parser.parse_args()
    if arguments.short:
        short()
        return
    predict(arguments.run, arguments.seconds, is_fresh=arguments.fresh)
    write_result("runs", "python benchmarks/runs.py", summary(compared(predicted())))


if __name__ == "__main__":
    main()
