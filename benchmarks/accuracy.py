"""Compares `penstock simulate` with the measured points in AISimulate's data.

python benchmarks/accuracy.py [SYSTEM…]   Writes results/accuracy.json.

The points are InferenceX's (TensorRT-LLM, gpt-oss-120b, aggregated): closed-loop clients with ten
requests each, and lengths of 0.8 to 1.0 of the nominal ones (its RANDOM_RANGE_RATIO). The limits of
their engines are not recorded; the graph here has usual ones.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import mean, median
from typing import Any

from deployed import deployed
from penstock.environments import environments_root
from penstock.errors import SimulationError
from penstock.simulate.cache import environment_cache
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Job, Replays, as_trace, require_environment
from penstock.workload.model import Arrival, Lengths, Workload
from penstock.workload.sample import sample
from report import write_result

SYSTEMS = {"b200_sxm": "b200", "h200_sxm": "h200"}
GPUS_PER_NODE = 8
REQUESTS_PER_CLIENT = 10
# Mean and coefficient of variation of lengths uniform from 0.8 to 1.0 of the nominal one.
SHARE, CV = 0.9, 0.064
MOST_REQUESTS = 640
GRAPH = """
model: {{id: openai/gpt-oss-120b, context_length: {context}}}
hardware: {{gpu: {gpu}}}
engine:
  kind: trtllm
  config:
    enable_chunked_prefill: true
    moe_expert_parallel_size: {ep}
    enable_attention_dp: {attention_dp}
    max_batch_size: 512
    max_num_tokens: 20000
    kv_cache_config: {{dtype: fp8, free_gpu_memory_fraction: 0.85}}
worker: {{replicas: 1, gpus: {gpus}}}
"""


@dataclass(frozen=True, kw_only=True, order=True)
class Point:
    """A measured point."""

    system: str
    isl: int
    osl: int
    tp: int
    dp: int
    ep: int
    concurrency: int
    ttft_ms: float
    tpot_ms: float

    @property
    def gpus(self) -> int:
        return self.tp * self.dp


def points(systems: list[str]) -> list[Point]:
    """Each measured point once; the file has copies of several dates."""
    site = next((environments_root() / "sim" / "lib").glob("python3.*/site-packages"))
    found = {}
    with (site / "aisimulate_core" / "systems" / "silicon_sample.csv").open() as file:
        for row in csv.DictReader(file):
            if not _is_ours(row, systems):
                continue
            concurrency = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
            assert concurrency is not None
            point = Point(
                system=row["system"],
                isl=int(row["isl"]),
                osl=int(row["osl"]),
                tp=int(row["tp_size"]),
                dp=int(row["attention_dp_size"]),
                ep=int(row["moe_ep_size"]),
                concurrency=int(concurrency[1]),
                ttft_ms=float(row["silicon_ttft_ms"]),
                tpot_ms=float(row["silicon_tpot_ms"]),
            )
            key = (
                point.system,
                point.isl,
                point.osl,
                point.tp,
                point.dp,
                point.ep,
                point.concurrency,
            )
            found[key] = point
    # Some rows have more GPUs than a node: their layout is not the one that was measured.
    return sorted(point for point in found.values() if point.gpus <= GPUS_PER_NODE)


def _is_ours(row: dict[str, str], systems: list[str]) -> bool:
    return (
        row["model_path"] == "openai/gpt-oss-120b"
        and row["backend"] == "trtllm"
        and row["mode"] == "agg"
        and row["system"] in systems
    )


def deployment(point: Point) -> Replayable:
    text = GRAPH.format(
        context=point.isl + point.osl + 512,
        gpu=SYSTEMS[point.system],
        ep=point.ep,
        attention_dp="true" if point.dp > 1 else "false",
        gpus=point.gpus,
    )
    return deployed(text, "point")


def row_of(replays: Replays, point: Point) -> dict[str, Any]:
    row = {
        "isl/osl": f"{point.isl}/{point.osl}",
        "layout": f"tp{point.tp} dp{point.dp} ep{point.ep}",
        "concurrency": point.concurrency,
        "measured": {"ttft_ms": round(point.ttft_ms, 1), "tpot_ms": round(point.tpot_ms, 3)},
        **simulated(replays, point),
    }
    print(row, file=sys.stderr, flush=True)
    return row


def simulated(replays: Replays, point: Point) -> dict[str, Any]:
    workload = Workload(
        requests=min(MOST_REQUESTS, max(32, REQUESTS_PER_CLIENT * point.concurrency)),
        input=Lengths(mean=round(SHARE * point.isl), cv=CV, max=point.isl),
        output=Lengths(mean=round(SHARE * point.osl), cv=CV, max=point.osl),
        arrival=Arrival(concurrency=point.concurrency),
    )
    trace = as_trace(sample(workload, 0))
    job = Job(
        replayable=deployment(point), trace=trace, concurrency=point.concurrency, sample_ms=10_000
    )
    try:
        (answer,) = replays.run([job])
    except SimulationError as error:
        return {"not_replayed": str(error)[-200:]}
    requests = served_requests(answer)  # all of them, as InferenceX counts the warm-up too
    ttft = mean(one.ttft_ms for one in requests)
    tpot = mean(one.itl_ms for one in requests if one.itl_ms)
    return {
        "whole_experts": bool(answer.get("whole_experts")),
        "ttft_ms": round(ttft, 1),
        "tpot_ms": round(tpot, 3),
        "ttft_error": round(ttft / point.ttft_ms - 1, 3),
        "tpot_error": round(tpot / point.tpot_ms - 1, 3),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    known = [row for row in rows if "tpot_error" in row]
    if not known:
        return {"points": 0, "not_replayed": len(rows)}
    return {
        "points": len(known),
        "not_replayed": len(rows) - len(known),
        "tpot_mean_absolute": round(mean(abs(row["tpot_error"]) for row in known), 3),
        "tpot_bias": round(mean(row["tpot_error"] for row in known), 3),
        "tpot_worst": max((row["tpot_error"] for row in known), key=abs),
        "ttft_mean_absolute": round(mean(abs(row["ttft_error"]) for row in known), 3),
        "tpot_within_10_percent": round(mean(abs(r["tpot_error"]) <= 0.1 for r in known), 2),
        "ttft_bias": round(mean(row["ttft_error"] for row in known), 3),
        "ttft_short_ms": round(median(r["measured"]["ttft_ms"] - r["ttft_ms"] for r in known), 1),
    }


def by(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row[name]].append(row)
    return {str(key): summary(groups[key]) for key in sorted(groups)}


def main() -> None:
    systems = sys.argv[1:] or list(SYSTEMS)
    figures: dict[str, Any] = {}
    with Replays(environment_cache(require_environment())) as replays:
        for system in systems:
            with ThreadPoolExecutor(replays.processes) as pool:
                rows = list(pool.map(partial(row_of, replays), points([system])))
            groups = {name: by(rows, name) for name in ("isl/osl", "layout", "concurrency")}
            figures[system] = {"all": summary(rows), "by": groups, "rows": rows}
    rows = [row for system in systems for row in figures[system]["rows"]]
    figures = {"overall": summary(rows), **figures}
    write_result("accuracy", "python benchmarks/accuracy.py", figures)


if __name__ == "__main__":
    main()
