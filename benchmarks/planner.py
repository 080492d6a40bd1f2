"""Compares Dynamo's planner under a changing rate with fixed pools of about its cost and its peak.

python benchmarks/planner.py   Writes results/planner.json in about ten minutes on two cores.

Simulated: gpt-oss-120b on single B200s, ISL 14,000, SLO TTFT 1 s and ITL 20 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.graph.slo import Slo
from penstock.manifests.source import graph_source
from penstock.serving.understand import Hints
from penstock.simulate.metrics import spreads
from penstock.simulate.planner import compare_with_planner, with_planner
from penstock.simulate.replay import Replays, environment_cache, require_environment
from penstock.simulate.replayable import replayable
from penstock.simulate.study import Row, Study
from penstock.workload.load import LoadedWorkload
from penstock.workload.model import Arrival, Bursts, Lengths, Ramp, Workload
from report import write_result

GRAPH = """
model: {{id: openai/gpt-oss-120b, context_length: 32768}}
hardware: {{gpu: b200, fabric: ib}}
engine: {{kind: trtllm, config: {{enable_chunked_prefill: true}}}}
prefill: {{gpus: 1, autoscaling: {{owner: planner}}}}
decode: {{gpus: 1, autoscaling: {{owner: planner}}}}
planner: {{max_gpus: 8, config: {config}}}
"""
SLA = "{{ttft_ms: {ttft}, itl_ms: 20}}"  # of PlannerConfig; the chart sets the target sla
SLOW_DOWN = "{ttft_ms: 300, itl_ms: 20, load_scaling_down_sensitivity: 10}"  # 80 by default
PREDICTED = "{ttft_ms: 300, itl_ms: 20, enable_load_scaling: false}"
SLO = Slo(ttft_ms=1000, itl_ms=20)
RAMP = Arrival(ramp=Ramp(start=1, end=10, seconds=900))
DOWN = Arrival(ramp=Ramp(start=10, end=1, seconds=900))
BURSTS = Arrival(bursts=Bursts(rate=1, peak=8, every=600, seconds=240))
# Name, arrival, requests, the planner's configuration, start-up time of a worker in seconds.
Case = tuple[str, Arrival, int | None, str, float]
CASES: Sequence[Case] = (
    ("ramp up, startup 60 s", RAMP, None, SLA.format(ttft=1000), 60),
    ("ramp up, startup 180 s", RAMP, None, SLA.format(ttft=1000), 180),
    ("ramp up, planner targets 300 ms", RAMP, None, SLA.format(ttft=300), 60),
    ("ramp up, slow to scale down", RAMP, None, SLOW_DOWN, 60),
    ("ramp up, throughput prediction only", RAMP, None, PREDICTED, 60),
    ("ramp up, target throughput", RAMP, None, "{optimization_target: throughput}", 60),
    ("ramp down, startup 60 s", DOWN, None, SLA.format(ttft=1000), 60),
    ("bursts of 4 minutes, startup 60 s", BURSTS, 6800, SLA.format(ttft=1000), 60),
)


def case(replays: Replays, one: Case) -> dict[str, Any]:
    name, arrival, requests, config, startup_s = one
    source = graph_source(GRAPH.format(config=config), "graph.yaml")
    deployment = replayable(source, Hints())
    planned = with_planner(deployment, source, Hints(), startup_s)
    workload = Workload(
        requests=requests, input=Lengths(mean=14000), output=Lengths(mean=200), arrival=arrival
    )
    loaded = LoadedWorkload(name=name, workload=workload, source="benchmarks/planner.py")
    study = Study(workload=loaded, replays=replays, counts_all_requests=True)
    _, run, *_ = rows = compare_with_planner(study, deployment, replace(planned, slo=SLO))
    return {
        "arrival": arrival.model_dump(exclude_none=True),
        "startup_s": startup_s,
        "planner": config,
        "rows": [figures(row) for row in rows],
        "scaling events of the first seed": [
            f"{event.at_s:.0f} s: {event.pool} {event.before} to {event.after}"
            for event in run.scalings[0].events
        ],
    }


def figures(row: Row) -> dict[str, Any]:
    found = dict(spreads(row.metrics))

    def rounded(figure: str, digits: int) -> list[float]:
        spread = found[figure]
        return [round(value, digits) for value in (spread.low, spread.median, spread.high)]

    return {
        "pools": row.replayable.name.partition(", ")[2],
        "reason": list(row.replayable.unscaled),
        "gpus": round(row.gpus, 2),
        "within_slo": rounded("goodput", 3),
        "gpu_hours": rounded("gpu_hours", 3),
        "tokens_per_second_gpu": rounded("gpu_rate", 1),
        "ttft_p99_ms": rounded("ttft_p99_ms", 0),
        "itl_p99_ms": rounded("itl_p99_ms", 1),
    }


def main() -> None:
    with Replays(environment_cache(require_environment())) as replays:
        found = {one[0]: case(replays, one) for one in CASES}
    figures_of = {
        "figures": "lowest, median, highest of three seeds",
        "simulated": "not measured; the planner knows the engines' step times from the start",
        "cases": found,
    }
    write_result("planner", "python benchmarks/planner.py", figures_of)


if __name__ == "__main__":
    main()
