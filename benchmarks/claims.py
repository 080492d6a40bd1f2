"""Published figures beside what `penstock simulate` gives for the same question.

python benchmarks/claims.py   Writes results/claims.json.

Published: one user on 8 × B200 and interactivity at 32k input, NVIDIA at gpt-oss's launch; 1.5 M
tokens/s of a GB200 NVL72, 72 GPUs; llm-d's guide to prefill and decode on 16 H200.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployed import deployed
from penstock.checks.subject_of import Given
from penstock.manifests.source import open_source
from penstock.simulate.cache import kept
from penstock.simulate.replay import Replays, require_environment
from penstock.simulate.replayable import Replayable, replayable
from penstock.simulate.study import Row, Study
from penstock.workload.load import LoadedWorkload
from penstock.workload.model import Arrival, Lengths, Workload
from report import write_result

ROOT = Path(__file__).parents[1]
GRAPHS = ROOT / "dynamo_graphs"
LLM_D = """
model: {id: openai/gpt-oss-120b, context_length: 16384}
hardware: {gpu: h200, fabric: roce}
engine: {kind: vllm, config: {block-size: 128, gpu-memory-utilization: 0.9}}
prefill: {replicas: 8, gpus: 1, config: {max-num-batched-tokens: 8192}}
decode: {replicas: 2, gpus: 4, config: {max-num-seqs: 1024}}
"""
# Aggregated graphs for 8 GPUs at 32k input: as the disaggregated one but for these.
LONG = ("engine.config.max_batch_size=256", "engine.config.enable_attention_dp=false")


def graph(name: str, *sets: str) -> Replayable:
    return replayable(open_source(GRAPHS / f"{name}.yaml", sets), Given())


def load(requests: int, isl: int, osl: int, *, cv: float = 0.0, **arrival: Any) -> LoadedWorkload:
    workload = Workload(
        requests=requests,
        input=Lengths(mean=isl, cv=cv),
        output=Lengths(mean=osl, cv=cv),
        arrival=Arrival(**arrival),
    )
    return LoadedWorkload(name=f"{isl}/{osl}", workload=workload, source="benchmarks/claims.py")


def figures(row: Row) -> dict[str, Any]:
    one = row.outcomes[0]
    return {
        "graph": row.replayable.name,
        "shape": row.replayable.shape,
        "gpus": row.replayable.gpus,
        "tokens_per_second_user": round(one.user_rate, 1),
        "tokens_per_second_gpu": round(one.gpu_rate, 1),
        "output_tokens_per_second": round(one.output_rate),
        "ttft_p50_ms": round(one.ttft_p50_ms, 1),
        "gap_p99_ms": round(one.gap_p99_ms, 1),
        "whole_experts": any(answer.get("whole_experts") for answer in row.answers),
    }


def of(replays: Replays, loaded: LoadedWorkload, *deployments: Replayable) -> list[dict[str, Any]]:
    study = Study(workload=loaded, replays=replays, seeds=1)
    return [figures(row) for row in study.rows(deployments, None)]


def one_user(replays: Replays) -> dict[str, Any]:
    loaded = load(10, 1024, 1024, concurrency=1)
    cut = graph("gpt-oss-120b-b200-latency")
    whole = graph("gpt-oss-120b-b200-latency", "engine.config.moe_expert_parallel_size=8")
    return {
        "published": "400 to 500 tokens/s for one user, 8 × B200, TP8; experts cut (EP1)",
        "simulated": {
            "experts cut (EP1)": of(replays, loaded, cut)[0],
            "experts whole (EP8)": of(replays, loaded, whole)[0],
        },
    }


def per_gpu(replays: Replays) -> dict[str, Any]:
    found = graph("gpt-oss-120b-gb200-throughput", "worker.replicas=1")
    rows = [
        of(replays, load(3 * users, 1024, 1024, cv=0.1, concurrency=users), found)[0]
        | {"users": users}
        for users in (256, 512, 768, 896, 1024, 1440)
    ]
    fast = [row for row in rows if row["tokens_per_second_user"] >= 50]
    return {
        "published": "20,800 tokens/s a GPU (1.5 M of 72), GB200 NVL72; how fast for a user is not "
        "said",
        "simulated": max(fast, key=lambda row: row["tokens_per_second_gpu"]),
        "by users of two GPUs": rows,
    }


def interactivity(replays: Replays) -> dict[str, Any]:
    loaded = load(600, 32768, 1024, poisson=9.0)
    split = graph("gpt-oss-120b-b200-disagg")
    together = [
        replace(
            graph(
                "gpt-oss-120b-b200-throughput",
                *LONG,
                f"engine.config.moe_expert_parallel_size={gpus}",
                f"worker.gpus={gpus}",
                f"worker.replicas={8 // gpus}",
                "model.context_length=131072",
                f"engine.config.max_num_tokens={tokens}",
            ),
            name=f"{8 // gpus} x TP{gpus}, steps of {tokens}",
        )
        for gpus in (1, 2, 4)
        for tokens in (2048, 16384)
    ]
    rows = of(replays, loaded, split, *together)
    fastest = max(rows[1:], key=lambda row: row["tokens_per_second_user"])
    tp4 = max(
        (row for row in rows[1:] if "TP4" in row["graph"]),
        key=lambda row: row["tokens_per_second_user"],
    )
    own = rows[0]["tokens_per_second_user"]
    return {
        "published": "4 × the interactivity of aggregated serving, 32k input, equal throughput",
        "load": "9 requests/s, Poisson, 32,768 + 1,024 tokens, 8 × B200",
        "against_tp4": round(own / tp4["tokens_per_second_user"], 2),
        "against_best_aggregated": round(own / fastest["tokens_per_second_user"], 2),
        "best_aggregated": fastest["graph"],
        "simulated": rows,
    }


def end_to_end(replays: Replays) -> dict[str, Any]:
    return {
        "published": "llm-d: 45 requests/s of 5,000 + 250 tokens, 8 × TP1 prefill and 2 × TP4 "
        "decode on 16 × H200: 12,036 output tokens/s, TTFT p50 1.11 s",
        "simulated": of(replays, load(3000, 5000, 250, poisson=45.0), deployed(LLM_D, "llm-d"))[0],
    }


def main() -> None:
    cases: dict[str, Callable[[Replays], dict[str, Any]]] = {
        "one user, 8 x B200": one_user,
        "tokens a GPU, GB200": per_gpu,
        "interactivity at 32k": interactivity,
        "end to end, 16 x H200": end_to_end,
    }
    with Replays(kept(require_environment())) as replays:
        found = {name: case(replays) for name, case in cases.items()}
    write_result("claims", "python benchmarks/claims.py", {"claims": found})


if __name__ == "__main__":
    main()
