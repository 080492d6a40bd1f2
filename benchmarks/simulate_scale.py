"""Measures time and memory of a replay by the numbers of workers and requests.

python benchmarks/simulate_scale.py   Writes results/simulate_scale.json.

Workers are gpt-oss-120b with TP1 on B200 behind the KV router. The rate is two requests/s per
worker, of 1,024 + 128 tokens.
"""

from __future__ import annotations

import time
from typing import Any

from deployed import deployed
from penstock.graph.slo import Slo
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.replay import Cache, Job, Replays, as_trace
from penstock.workload.model import Arrival, Lengths, Workload
from penstock.workload.sample import sample
from report import write_result

GRAPH = """
model: {{id: openai/gpt-oss-120b, context_length: 8192}}
hardware: {{gpu: b200}}
engine:
  kind: trtllm
  config: {{max_batch_size: 256, max_num_tokens: 8192, kv_cache_config: {{dtype: fp8}}}}
worker: {{replicas: {workers}, gpus: 1}}
"""
RATE = 2.0  # requests/s per worker
CASES = [
    *((workers, 10_000) for workers in (8, 64, 512, 1000)),
    *((1000, requests) for requests in (1_000, 100_000)),
    (8, 1_000),
    (8, 100_000),
]


def case(workers: int, requests: int) -> dict[str, Any]:
    workload = Workload(
        requests=requests,
        input=Lengths(mean=1024, cv=0.4, max=4096),
        output=Lengths(mean=128, cv=0.4, max=512),
        arrival=Arrival(poisson=RATE * workers),
    )
    found = deployed(GRAPH.format(workers=workers), "scale")
    begun = time.perf_counter()
    job = Job(
        replayable=found, trace=as_trace(sample(workload, 0)), concurrency=None, sample_ms=1000
    )
    sampled = time.perf_counter()
    with Replays(Cache(None, ""), processes=1) as replays:
        (answer,) = replays.run([job])
    replayed = time.perf_counter()
    figures = replay_metrics(answer, found.gpus, Slo())
    return {
        "workers": workers,
        "requests": requests,
        "sample_s": round(sampled - begun, 1),
        "replay_s": round(replayed - sampled, 1),
        "metrics_s": round(time.perf_counter() - replayed, 1),
        "replay_peak_mib": round(answer["summary"]["peak_bytes"] / 2**20),
        "ttft_p99_ms": round(figures.ttft_p99_ms, 1),
        "unfinished": figures.unfinished,
    }


def main() -> None:
    rows = [case(*one) for one in sorted(CASES)]
    write_result("simulate_scale", "python benchmarks/simulate_scale.py", {"rows": rows})


if __name__ == "__main__":
    main()
