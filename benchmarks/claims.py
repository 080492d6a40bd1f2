"""Compares published figures with `penstock simulate`.

python benchmarks/claims.py   Writes results/claims.json.

Published by NVIDIA at the launch of gpt-oss: tokens/s at concurrency 1 on 8 × B200, interactivity
at 32k input, and 1.5 M tokens/s on a GB200 NVL72 (72 GPUs). Published by llm-d: its guide to
disaggregation on 16 × H200.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from deployed import deployed
from penstock.graph.slo import Slo
from penstock.manifests.source import open_source
from penstock.plan.deployments import Deployments
from penstock.plan.planning import Plan, plan
from penstock.plan.request import Objective, plan_request
from penstock.plan.space import BATCHES, Candidate, candidates, layouts
from penstock.serving.understand import Hints
from penstock.simulate.cache import environment_cache
from penstock.simulate.metrics import ServedRequest, served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays, require_environment
from penstock.simulate.replayable import replayable
from penstock.simulate.router import Router
from penstock.simulate.study import Row, Study
from penstock.workload.load import LoadedWorkload
from penstock.workload.model import Arrival, Lengths, Workload
from point_graphs import SPREADS
from report import write_result

ROOT = Path(__file__).parents[1]
GRAPHS = ROOT / "dynamo_graphs"
(SHARE, CV), _ = SPREADS["0.8-1.0"]  # lengths as InferenceX draws them
REQUESTS_PER_CLIENT = 10
# llm-d/llm-d, guides/pd-disaggregation/modelserver/gpu/vllm/base; the rest are vLLM's defaults.
LLM_D = """
model: {id: openai/gpt-oss-120b}
hardware: {gpu: h200, fabric: roce}
engine: {kind: vllm, config: {block-size: 128, gpu-memory-utilization: 0.9}}
prefill: {replicas: 8, gpus: 1}
decode: {replicas: 2, gpus: 4}
"""
# Three runs of that graph and workload: the guide's README of July 2026 and of April 2026, and its
# benchmark-results/vllm-gpt-oss-120b-h200-multi-tier.md, which has no medians.
LLM_D_RUNS = {
    "GKE, RoCE": {
        "output_tokens_per_second": 12036,
        "requests_per_second": 42.58,
        "ttft_p50_ms": 1108,
        "ttft_mean_ms": 1157,
        "latency_p50_ms": 2728,
        "latency_mean_ms": 2775,
    },
    "CoreWeave, InfiniBand, April": {
        "output_tokens_per_second": 12237,
        "requests_per_second": 43.55,
        "ttft_p50_ms": 1264,
        "ttft_mean_ms": 1444,
        "latency_p50_ms": 3357,
        "latency_mean_ms": 3538,
    },
    "CoreWeave, InfiniBand, vLLM 0.27.1": {
        "requests_per_second": 44.27,
        "ttft_mean_ms": 518,
        "latency_mean_ms": 2355,
    },
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
EQUAL = 0.9


def graph(name: str, *sets: str) -> Replayable:
    return replayable(open_source(GRAPHS / f"{name}.yaml", sets), Hints())


def load(requests: int, isl: int, osl: int, *, cv: float = 0.0, **arrival: Any) -> LoadedWorkload:
    workload = Workload(
        requests=requests,
        input=Lengths(mean=isl, cv=cv),
        output=Lengths(mean=osl, cv=cv),
        arrival=Arrival(**arrival),
    )
    return LoadedWorkload(name=f"{isl}/{osl}", workload=workload, source="benchmarks/claims.py")


def figures(row: Row) -> dict[str, Any]:
    one = row.metrics[0]
    return {
        "graph": row.replayable.name,
        "shape": row.replayable.shape,
        "gpus": row.replayable.gpus,
        "tokens_per_second_user": round(one.user_rate, 1),
        "tokens_per_second_gpu": round(one.gpu_rate, 1),
        "output_tokens_per_second": round(one.output_rate),
        "ttft_p50_ms": round(one.ttft_p50_ms, 1),
        "token_gap_p99_ms": round(one.token_gap_p99_ms, 1),
        "whole_experts": any(answer.get("whole_experts") for answer in row.results),
    }


def of(replays: Replays, loaded: LoadedWorkload, *deployments: Replayable) -> list[dict[str, Any]]:
    study = Study(workload=loaded, replays=replays, seeds=1)
    return [figures(row) for row in study.rows(deployments, None)]


def concurrency_one(replays: Replays) -> dict[str, Any]:
    loaded = load(10, 1024, 1024, concurrency=1)
    tensor_parallel = graph("gpt-oss-120b-b200-latency")
    expert_parallel = graph("gpt-oss-120b-b200-latency", "engine.config.moe_expert_parallel_size=8")
    return {
        "published": "400 to 500 tokens/s at concurrency 1, 8 × B200, TP8, "
        "tensor-parallel experts (EP1)",
        "simulated": {
            "tensor-parallel experts (EP1)": of(replays, loaded, tensor_parallel)[0],
            "expert parallelism (EP8)": of(replays, loaded, expert_parallel)[0],
        },
    }


def per_gpu(replays: Replays) -> dict[str, Any]:
    found = graph("gpt-oss-120b-gb200-throughput", "worker.replicas=1")
    rows = [
        of(replays, load(3 * clients, 1024, 1024, cv=0.1, concurrency=clients), found)[0]
        | {"concurrency": clients}
        for clients in (256, 512, 768, 896, 1024, 1440)
    ]
    fast = [row for row in rows if row["tokens_per_second_user"] >= 50]
    return {
        "published": "20,800 tokens/s per GPU (1.5 M of 72), GB200 NVL72; tokens/s per user are "
        "not published",
        "simulated": max(fast, key=lambda row: row["tokens_per_second_gpu"]),
        "by concurrency, two GPUs": rows,
    }


def interactivity(replays: Replays) -> dict[str, Any]:
    """The graph that `plan` recommends, compared with every aggregated graph."""
    loaded = load(1500, 32768, 1024, poisson=9.0)
    with tempfile.TemporaryDirectory() as folder:
        request = plan_request(
            "gpt-oss-120b",
            loaded,
            scratch=Path(folder),
            gpu="b200",
            gpus=8,
            slo=Slo(ttft_ms=2000),
            objective=Objective.INTERACTIVITY,
        )
        found = plan(request, loaded, replays, budget=100, attain=0.95, say=lambda *_: None)
        assert isinstance(found, Plan)
        pools = [c for c in candidates(request, layouts(request)) if _is_aggregated(c)]
        made = dict(Deployments(request).of([found.winner.candidate, *pools]))
    recommended, *rows = of(replays, loaded, *made.values())
    fours = [row for c, row in zip(list(made)[1:], rows, strict=True) if c.worker.layout.gpus == 4]
    # A saturated graph is fast for the few requests that it serves.
    equal = [row for row in rows if row["tokens_per_second_gpu"] >= EQUAL * _rate(recommended)]
    own = recommended["tokens_per_second_user"]

    def factor_over(row: dict[str, Any] | None) -> float | None:
        return round(own / row["tokens_per_second_user"], 2) if row else None

    return {
        "published": "4 × the interactivity of aggregated serving, 32k input, equal throughput",
        "workload": "Poisson, 9 requests/s, 32,768 + 1,024 tokens, 8 × B200",
        "equal throughput": f"at least {EQUAL} × the tokens/s of the planned graph",
        "factor_over_tp4": factor_over(
            max((r for r in equal if r in fours), key=_speed, default=None)
        ),
        "factor_over_saturated_tp4": factor_over(max(fours, key=_speed)),
        "factor_over_best_aggregated": factor_over(max(equal, key=_speed, default=None)),
        "planned": recommended,
        "aggregated": sorted(rows, key=_speed, reverse=True),
    }


def _is_aggregated(candidate: Candidate) -> bool:
    return not candidate.is_disaggregated and candidate.worker.batch == BATCHES[-1]


def _speed(row: dict[str, Any]) -> float:
    return float(row["tokens_per_second_user"])


def _rate(row: dict[str, Any]) -> float:
    return float(row["tokens_per_second_gpu"])


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
    latency = [r.ended_ms - r.arrived_ms for r in requests]
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
    return {
        "published": "llm-d: 45 requests/s of 5,000 + 250 tokens, 8 × TP1 prefill and 2 × TP4 "
        "decode on 16 × H200: 12,036 output tokens/s, TTFT p50 1.11 s",
        "published_runs": LLM_D_RUNS,
        "simulated": rows["baseline"],
        "variants": rows,
        "TTFT of one request of 8,192 tokens (ms)": sequential(replays, found),
        "ITL (ms), one H200, aggregated": one_loaded(replays),
        "explanation": EXPLANATION,
        "open_questions": OPEN_QUESTIONS,
    }


def main() -> None:
    cases: dict[str, Callable[[Replays], dict[str, Any]]] = {
        "concurrency 1, 8 x B200": concurrency_one,
        "tokens/s per GPU, GB200": per_gpu,
        "interactivity at 32k": interactivity,
        "end to end, 16 x H200": end_to_end,
    }
    with Replays(environment_cache(require_environment())) as replays:
        found = {name: case(replays) for name, case in cases.items()}
    write_result("claims", "python benchmarks/claims.py", {"claims": found})


if __name__ == "__main__":
    main()
