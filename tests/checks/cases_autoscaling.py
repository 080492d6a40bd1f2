"""Cases of autoscalers (PS811 and on)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.cases_deployment import COMPONENTS, DECODE, pod
from tests.checks.support import (
    OMIT,
    REMOVE,
    Case,
    X,
    trtllm_disagg,
    trtllm_disagg_dgd,
    vary,
    vllm_agg,
)

PLANNED = {
    "prefill/replicas": None,
    "prefill/autoscaling": {"owner": "planner", "min": 2},
    "decode/replicas": None,
    "decode/autoscaling": {"owner": "planner"},
    "engine/config/enable_iter_perf_stats": None,
}
# A planner of another graph, and scaling adapters.
NOT_OURS = {
    key: value
    for name in (f"{COMPONENTS}/prefill", DECODE)
    for key, value in ((f"{name}/replicas", REMOVE), (f"{name}/scalingAdapter", {}))
}
STATISTICS = "engine/config/enable_iter_perf_stats"


def planned(max_gpus: int = 16, **config: Any) -> dict[str, Any]:
    """Both pools of TRTLLM_DISAGG with a planner: at least 2 × 1 and 1 × 4 GPUs."""
    values = {"ttft_ms": 500, "itl_ms": 20, **config}
    return {**PLANNED, "planner": {"max_gpus": max_gpus, "config": values}}


def beside(**config: Any) -> str:
    """A manifest with a planner that the chart did not render."""
    planner = pod("planner")
    arguments = ["--config", json.dumps({"mode": "disagg", "backend": "trtllm", **config})]
    planner["podTemplate"]["spec"]["containers"][0]["args"] = arguments
    return trtllm_disagg_dgd({f"{COMPONENTS}/planner": planner, **NOT_OURS})


KEDA = {"owner": "keda", "min": 2, "max": 4, "signal": "requests", "target": 8}
TWO_NODES = {"hardware/nodes": 2, "cluster": {"monitoring": {"pod_monitors": True}}}


def cron(**metadata: str) -> dict[str, Any]:
    trigger = {"type": "cron", "metadata": {"timezone": "UTC", **metadata}}
    autoscaling = {"owner": "keda", "max": 4, "triggers": [trigger]}
    return {"worker/replicas": None, "worker/autoscaling": autoscaling}


CASES: tuple[Case, ...] = (
    vary("PS811", trtllm_disagg)(
        planned(load_predicter="kalman"), planned(load_predictor="kalman"), is_repaired_by_near=True
    ),
    vary("PS811", trtllm_disagg)(
        planned(load_predictor="average"), planned(load_predictor="constant")
    ),
    vary("PS811", trtllm_disagg)(
        planned(load_scaling_down_sensitivity=101), planned(load_scaling_down_sensitivity=100)
    ),
    vary("PS811", trtllm_disagg)(
        planned(max_throughput_scaling_replicas="2"), planned(max_throughput_scaling_replicas=2)
    ),
    *(
        vary("PS811", trtllm_disagg)(planned(**bad), planned(**near))
        for bad, near in (
            ({"ttft_ms": 0}, {"ttft_ms": 1}),
            ({"enable_throughput_scaling": False, "enable_load_scaling": False}, {}),
            ({"throughput_adjustment_interval_seconds": 0}, {}),
            ({"load_adjustment_interval_seconds": 180}, {"load_adjustment_interval_seconds": 90}),
            ({"fpm_sample_bucket_size": 7}, {"fpm_sample_bucket_size": 9}),
            (
                {"enable_power_awareness": True},
                {"enable_power_awareness": True, "total_gpu_power_limit": 9000},
            ),
            ({"report_interval_hours": -1}, {"report_interval_hours": None}),
        )
    ),
    Case(
        "PS811",
        beside(optimization_target="load", prefill_scale_up_queue_tokens=9),
        beside(
            optimization_target="load",
            prefill_scale_up_queue_tokens=9,
            prefill_scale_down_queue_tokens=3,
            decode_scale_up_kv_rate=80,
            decode_scale_down_kv_rate=40,
        ),
    ),
    vary("PS710", vllm_agg, {"env/PROXY": X})("http://a:b@c:3128", "http://c:3128"),
    vary("PS710", vllm_agg)(cron(apiKey="x"), cron()),
    vary("PS710", vllm_agg)(cron(url="http://a:b@c"), cron(url="http://c")),
    # needs 3 × 4 and 1 GPUs; the default is 8
    vary("PS812", beside, decode_min_endpoint=3, max_gpu_budget=X)(
        OMIT, 13, is_repaired_by_near=True
    ),
    vary("PS812", beside, min_endpoint=2, max_gpu_budget=X)(9, 10),
    Case(
        "PS813",
        beside(ttft_ms=300),
        beside(ttft_ms=300, itl_ms=20, optimization_target="sla"),
        is_repaired_by_near=True,
    ),
    vary("PS814", trtllm_disagg)(
        {**planned(max_gpus=17), "hardware/nodes": 2}, {**planned(max_gpus=16), "hardware/nodes": 2}
    ),
    vary(
        "PS814",
        vllm_agg,
        {**TWO_NODES, "worker/replicas": None, "worker/autoscaling": {**KEDA, "max": X}},
    )(9, 8),
    vary("PS815", trtllm_disagg)(
        {**planned(), STATISTICS: False},
        planned(),
        fixed=trtllm_disagg({**planned(), STATISTICS: True}),
    ),
)
