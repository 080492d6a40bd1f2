"""Throughput and concurrent users of a GB200 NVL72, from a replay of two of its 72 GPUs."""

from __future__ import annotations

from typing import Any

from penstock.simulate.replay import Replays
from published.replays import figures, graph, load, part_result, rows_of, throughput

GPUS, USERS = 72, 50_000
WORKER_GPUS = 2
# Input and output: those of Dynamo's recipe for gpt-oss-120b on GB200, and of most public
# measurements.
LENGTHS = ((128, 1000), (1024, 1024))
REQUESTS_PER_USER = 3


def rack(replays: Replays) -> dict[str, Any]:
    users = round(USERS * WORKER_GPUS / GPUS)
    worker = graph("gpt-oss-120b-gb200-throughput", "worker.replicas=1")
    rates, speeds, rows = [], [], {}
    for isl, osl in LENGTHS:
        loaded = load(REQUESTS_PER_USER * users, isl, osl, cv=0.1, concurrency=users)
        (row,) = rows_of(replays, loaded, worker)
        name = f"{isl:,} + {osl:,} tokens"
        rates.append(throughput(row, name, GPUS / 1e6))
        speeds.append(throughput(row, name, GPUS / USERS))
        rows[name] = figures(row) | {
            "concurrency": users,
            "prefill_queue_p99_ms": round(row.metrics[0].prefill_queue_p99_ms, 1),
        }
    return part_result({"rack": rates, "users": speeds}, simulated=rows)
