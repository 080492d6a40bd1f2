"""llm-d's published run of gpt-oss-120b with disaggregation, on 16 × H200."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any

import yaml

from deployed import deployed
from penstock.simulate.accuracy import no_points
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.router import Router
from penstock.simulate.study import Study
from penstock.simulate.window import ServedRequest
from penstock.workload.load import LoadedWorkload
from penstock.workload.model import Arrival, Lengths, Workload
from point_graphs import SPREADS
from published.model import Case
from published.replays import load, part_result
from runs import rows_of, runs

(SHARE, CV), _ = SPREADS["0.8-1.0"]  # lengths as InferenceX draws them
REQUESTS_PER_CLIENT = 10
RUN = runs()["llm-d-gpt-oss-120b-h200-disaggregated"]  # benchmarks/runs, with its sources
LLM_D = yaml.safe_dump(RUN["graph"])
FIGURES = {
    "output_tok_s": ("output_tokens_per_second", 1),
    "request_rate": ("requests_per_second", 1),
    "ttft_p50_ms": ("ttft_p50_ms", 1),
    "ttft_mean_ms": ("ttft_mean_ms", 1),
    "latency_p50_s": ("latency_p50_ms", 1000),
    "latency_mean_s": ("latency_mean_ms", 1000),
}
CLUSTERS = ("GKE, RoCE", "CoreWeave, InfiniBand, April", "CoreWeave, InfiniBand, vLLM 0.27.1")
# Three runs of that graph and workload; the last has no medians.
LLM_D_RUNS = {
    cluster: {
        figure: round(row[name] * scale, 2) if scale == 1 else round(row[name] * scale)
        for name, (figure, scale) in FIGURES.items()
        if name in row
    }
    for cluster, row in zip(CLUSTERS, rows_of(RUN), strict=False)
}
# Measured on one H200 with vLLM, from AISimulate's silicon_sample.csv: concurrency, ISL, OSL, and
# ITL in milliseconds.
LOADED = ((64, 1024, 1024, 24.76), (32, 8192, 1024, 24.80), (64, 8192, 1024, 41.83))
ONE_H200 = """
model: {id: openai/gpt-oss-120b}
hardware: {gpu: h200}
engine: {kind: vllm}
worker: {replicas: 1, gpus: 1}
"""
SLOWER = 0.65  # × the kernels' speed gives the published TTFT; 0.62 to 0.75 were tried
EXPLANATION = (
    "llm-d counts output tokens by tokenizing the text again: its 42.58 requests/s of 250 "
    "tokens are 10,645 tokens/s. Decode agrees (latency minus TTFT, p50: 1.62 s, replayed 1.75 "
    "s); TTFT differs. None of the arrivals, routing, KV transfer rates and prefill settings "
    "tried here gives the published TTFT, and the fastest published request, 0.21 s, rules out "
    "a constant delay. Prefill at 0.65 × the speed of the measured kernels, where eight workers "
    "saturate at 45 requests/s, gives TTFT and latency of this run; 0.7 gives those of the "
    "third run within 4 %. 0.65 also closes the gap to the measurements of one H200 with long "
    "inputs at concurrency 32 or 64; short inputs at concurrency 64 show no gap."
)
OPEN_QUESTIONS = (
    "It is not proven that prefill is the cause, nor what slows it under load: a worker without "
    "other load needs 242 ms for 8,192 tokens, 0.86 × the speed of the kernels, proxies and KV "
    "transfer included. Close to saturation TTFT depends on the seed of the arrivals. Text "
    "reached the client in bursts (95 % of gaps below 0.03 ms, one in a thousand about a "
    "second), so the TTFT of this run may include part of decode."
)


def with_engines(found: Replayable, role: str, **engine: Any) -> Replayable:
    """``found`` with other engine settings in one pool, or in all if ``role`` is empty."""
    pools = (
        replace(pool, engine={**pool.engine, "engine": pool.engine["engine"] | engine})
        if role in ("", *pool.names)
        else pool
        for pool in found.pools
    )
    return replace(found, pools=tuple(pools))


def full_run(requests: Sequence[ServedRequest]) -> dict[str, float]:
    """Metrics as llm-d's load generator computes them: from the first request to the last token."""
    seconds = (max(r.ended_ms for r in requests) - requests[0].arrived_ms) / 1000
    ttft = [r.ttft_ms for r in requests]
    latency = [r.e2e_ms for r in requests]
    return {
        "output_tokens_per_second": sum(r.tokens for r in requests) / seconds,
        "requests_per_second": len(requests) / seconds,
        "ttft_p50_ms": median(ttft),
        "ttft_mean_ms": mean(ttft),
        "latency_p50_ms": median(latency),
        "latency_mean_ms": mean(latency),
    }


def of_seeds(replays: Replays, loaded: LoadedWorkload, found: Replayable) -> dict[str, Any]:
    """Medians over the seeds, and the range of their TTFT."""
    study = Study(workload=loaded, replays=replays, seeds=5)
    runs = [full_run(served_requests(answer)) for answer in study.rows([found], None)[0].results]
    ttft = [round(run["ttft_p50_ms"]) for run in runs]
    figures = {name: round(median(run[name] for run in runs), 1) for name in runs[0]}
    return figures | {"ttft_p50_ms_range": [min(ttft), max(ttft)]}


def variants(replays: Replays, found: Replayable) -> dict[str, Any]:
    def at(speed: float) -> Replayable:
        return with_engines(found, "prefill", speedup_ratio=speed)

    # inference-perf's load type `constant` samples exponential gaps (loadgen/load_timer.py).
    random = load(5400, 5000, 250, poisson=45.0)
    at_once = {"rate": 0.01, "peak": 450.0, "every": 1.0, "seconds": 0.1}
    round_robin = replace(found, router=Router(mode="round-robin", settings=None))
    changes = {
        "baseline": (random, found),
        "evenly spaced requests": (load(5400, 5000, 250, constant=45.0), found),
        "concurrency 118, as measured": (load(5400, 5000, 250, concurrency=118), found),
        "45 requests at the start of each second": (load(5400, 5000, 250, bursts=at_once), found),
        "lengths vary by 10 %": (load(5400, 5000, 250, cv=0.1, poisson=45.0), found),
        "round robin": (random, round_robin),
        "KV transfer over TCP, 1 GB/s": (
            random,
            with_engines(found, "", kv_transfer_bandwidth=1.0),
        ),
        "no prefix cache": (random, with_engines(found, "", enable_prefix_caching=False)),
        "no chunked prefill": (
            random,
            with_engines(found, "prefill", enable_chunked_prefill=False),
        ),
        "prefill steps of 4,096": (
            random,
            with_engines(found, "prefill", max_num_batched_tokens=4096),
        ),
        **{f"prefill at {speed} × speed": (random, at(speed)) for speed in (0.86, 0.7, SLOWER)},
    }
    return {name: of_seeds(replays, *change) for name, change in changes.items()}


def sequential(replays: Replays, found: Replayable) -> dict[str, Any]:
    """llm-d's calibration of its router: inputs of 8,192 tokens at concurrency 1."""
    slower = with_engines(found, "prefill", speedup_ratio=SLOWER)
    one = load(10, 8192, 250, concurrency=1)
    return {
        "published": round(8192 / 33.821),  # peakPrefillThroughput of pd-disaggregation.values.yaml
        "simulated": of_seeds(replays, one, found)["ttft_p50_ms"],
        f"prefill at {SLOWER} × speed": of_seeds(replays, one, slower)["ttft_p50_ms"],
    }


def one_loaded(replays: Replays) -> dict[str, Any]:
    """Prefill and decode in one worker, without a network or a proxy."""
    found = deployed(ONE_H200, "one")
    decode = {"decode_speedup_ratio": 1 / SLOWER}  # which multiplies speedup_ratio
    slower = with_engines(found, "", speedup_ratio=SLOWER, **decode)
    rows = {}
    for concurrency, isl, osl, measured in LOADED:
        workload = Workload(
            requests=REQUESTS_PER_CLIENT * concurrency,
            input=Lengths(mean=round(SHARE * isl), cv=CV, max=isl),
            output=Lengths(mean=round(SHARE * osl), cv=CV, max=osl),
            arrival=Arrival(concurrency=concurrency),
        )
        loaded = LoadedWorkload(name="InferenceX", workload=workload, source="benchmarks/claims.py")
        study = Study(workload=loaded, replays=replays, seeds=1)
        simulated, slow = (
            round(mean(r.itl_ms or 0.0 for r in served_requests(row.results[0])), 2)
            for row in study.rows([found, slower], None)
        )
        rows[f"concurrency {concurrency}, {isl} + {osl} tokens"] = {
            "measured": measured,
            "simulated": simulated,
            f"prefill at {SLOWER} × speed": slow,
        }
    return rows


def end_to_end(replays: Replays) -> dict[str, Any]:
    found = deployed(LLM_D, "llm-d")
    rows = variants(replays, found)
    case = Case(
        assumption="the guide's graph and load, requests at random times",
        predicted=rows["baseline"]["ttft_p50_ms"],
        no_interval=no_points(found),
        not_simulated=found.not_simulated,
        assumed=found.assumed,
    )
    return part_result(
        {"llm-d": [case]},
        **{
            "published runs": LLM_D_RUNS,
            "variants": rows,
            "TTFT of one request of 8,192 tokens (ms)": sequential(replays, found),
            "ITL (ms), one H200, aggregated": one_loaded(replays),
            "explanation": EXPLANATION,
            "open questions": OPEN_QUESTIONS,
        },
    )
