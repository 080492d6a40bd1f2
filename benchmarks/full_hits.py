"""Scales the measured shape of the time before the engine to published TTFTs of prefix-cache hits.

    python benchmarks/full_hits.py
Reads points/full_hits.csv and results/frontend_path.json; writes results/full_hits.json. Needs the
environment sim.

TTFT = replay + fixed + input tokens x (engine + scale x (CPU time of the frontend without tokenizer
+ tokenizations x CPU time of the tokenizer)). `fixed`, `engine` and `scale` are fitted, on the
sources of the fitting half. A source with a GPU that AISimulate did not measure has an intercept of
its own instead of replay + fixed. The replay is of one worker with its share of the rate and one
prefix.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from deployed import deployed
from measured import FIT, HELD_OUT
from penstock.simulate.metrics import served_requests
from penstock.simulate.replay import Replays, environment_cache, require_environment
from penstock.simulate.study import Study
from penstock.workload.load import parse_workload
from report import RESULTS, write_result

NAME = "full_hits"
POINTS = Path(__file__).parent / "points" / f"{NAME}.csv"
GRAPH = """\
model: {{id: {model}}}
hardware: {{gpu: {gpu}}}
engine: {{kind: {engine}}}
worker: {{replicas: 1, gpus: 1}}
"""
WORKLOAD = """\
requests: 200
input: {{mean: {input_tokens}}}
output: {{mean: {output_tokens}}}
arrival: {{poisson: {rate}}}
system_prompts: {{tokens: {shared}}}
"""
KINDS = ("new chat", "chat", "completions", "ids")  # of results/frontend_path.json
Row = dict[str, str]


def read() -> list[Row]:
    with POINTS.open(newline="") as file:
        return list(csv.DictReader(file))


def half(source: str) -> str:
    return HELD_OUT if sha256(f"46:{source}".encode()).digest()[0] % 2 else FIT


def replayed_ms(row: Row, replays: Replays) -> float | None:
    """TTFT (`statistic`) of requests whose prefix is cached; None without measured kernels."""
    if not row["request_rate"]:
        return None
    tokens, rate = int(row["input_tokens"]), float(row["request_rate"]) / int(row["workers"])
    text = WORKLOAD.format(**row, rate=rate, shared=tokens - int(row["uncached_tokens"]))
    study = Study(workload=parse_workload(text, "w.yaml"), replays=replays, seeds=1)
    deployment = deployed(GRAPH.format(**row), "published")
    result = study.rows([deployment], None)[0].results[0]
    hits = [r.ttft_ms for r in served_requests(result) if r.cached_tokens > tokens / 2]
    added = deployment.frontend_time.ms(tokens)
    return float((fmean if row["statistic"] == "mean" else median)(hits)) - added


def slope(cells: Mapping[str, Mapping[str, float]], tokenizer: str) -> float:
    """Milliseconds of an idle frontend per 1,000 input tokens: the median between neighboring
    lengths. CPU times, as other programs on the machine change them least."""
    times = {
        int(cell.split(", ")[2].split()[0]): figures["CPU ms per request"]
        for cell, figures in cells.items()
        if cell.startswith(f"{tokenizer}, {KINDS[0]}, ") and cell.endswith(", 1 client")
    }
    return median(1000 * (times[b] - times[a]) / (b - a) for a, b in pairwise(sorted(times)))


def coefficients(
    rows: Sequence[tuple[Row, float | None]], other: float, tokenizer: float
) -> tuple[Any, Any]:
    """Of (fixed, engine, scale, an intercept of each source without replay), one equation for each
    row; all rows of a source together count as much as those of another one."""
    own = sorted({row["source"] for row, engine in rows if engine is None})
    count: dict[str, int] = defaultdict(int)
    for row, _ in rows:
        count[row["source"]] += 1
    left, right = [], []
    for row, engine in rows:
        per_1k = other + int(row["tokenizations"]) * tokenizer
        intercepts = [float(row["source"] == source) for source in own]
        thousands = int(row["input_tokens"]) / 1000
        line = [float(engine is not None), thousands, thousands * per_1k, *intercepts]
        weight = count[row["source"]] ** -0.5
        left.append([weight * entry for entry in line])
        right.append(weight * (float(row["ttft_ms"]) - (engine or 0.0)))
    return np.array(left), np.array(right)


def main() -> None:
    rows = read()
    cells = json.loads((RESULTS / "frontend_path.json").read_text())["cells"]
    slopes = {name: slope(cells, name) for name in ("default", "fastokens")}
    other = slopes["fastokens"]  # whose tokenizer takes hardly any time
    tokenizer = slopes["default"] - other
    with Replays(environment_cache(require_environment()), 1) as replays:
        pairs = [(row, replayed_ms(row, replays)) for row in rows]
    fitting = [pair for pair in pairs if half(pair[0]["source"]) == FIT]
    solution = np.linalg.lstsq(*coefficients(fitting, other, tokenizer), rcond=None)[0]
    fixed, engine_ms, scale = (float(value) for value in solution[:3])
    predictions: dict[str, list[dict[str, Any]]] = {FIT: [], HELD_OUT: []}
    for row, engine in pairs:
        per_1k = engine_ms + scale * (other + int(row["tokenizations"]) * tokenizer)
        entry: dict[str, Any] = {"source": row["source"], "input_tokens": int(row["input_tokens"])}
        entry |= {"ttft_ms": float(row["ttft_ms"]), "per 1,000 tokens ms": round(per_1k, 3)}
        if engine is not None:
            predicted = engine + fixed + per_1k * int(row["input_tokens"]) / 1000
            entry |= {"replay ms": round(engine, 1), "predicted ms": round(predicted, 1)}
            entry["error before"] = round(engine / entry["ttft_ms"] - 1, 3)
            entry["error"] = round(predicted / entry["ttft_ms"] - 1, 3)
        predictions[half(row["source"])].append(entry)
    figures = {
        "fixed ms": round(fixed, 2),
        "engine ms per 1,000 input tokens": round(engine_ms, 3),
        "scale": round(scale, 3),
        "per 1,000 input tokens ms": {
            name: round(engine_ms + scale * ms, 3) for name, ms in slopes.items()
        },
        "CPU ms per 1,000 input tokens": slopes,
        "median error": {
            h: {
                name: median(abs(entry[name]) for entry in entries if name in entry)
                for name in ("error before", "error")
            }
            for h, entries in predictions.items()
        },
        "rows": predictions,
    }
    write_result(NAME, f"python benchmarks/{NAME}.py", figures)


if __name__ == "__main__":
    main()
