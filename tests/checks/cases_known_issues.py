"""Cases of NVIDIA's known issues of a release (PS913 to PS922)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.checks.support import (
    OMIT,
    REMOVE,
    SGLANG_DISAGG,
    TRTLLM_AGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    X,
    graph,
    sglang_agg,
    sglang_agg_dgd,
    sglang_disagg_dgd,
    trtllm_agg,
    vary,
    vllm_agg_dgd,
)

REGISTRY = "nvcr.io/nvidia/ai-dynamo"
COMPONENT = "dgd/spec/components"
MAIN = "podTemplate/spec/containers/main"
EAGLE = {"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3", "num_speculative_tokens": 3}
CONNECTOR = {"kv_connector_module_path": "kvbm.vllm_integration.connector", "kv_role": "kv_both"}
EFA = "vpc.amazonaws.com~1efa"


def vllm(base: Mapping[str, Any], tag: str, config: Mapping[str, Any], **other: Any) -> str:
    changes = {f"engine/config/{key}": value for key, value in config.items()}
    return graph(base, {"engine/image": f"{REGISTRY}/vllm-runtime:{tag}", **changes, **other})


PLUGIN = "SGLANG_DISAGGREGATION_NIXL_BACKEND"


def over_efa(tag: str, registry: str = REGISTRY, plugin: str = "LIBFABRIC") -> str:
    image = f"{registry}/sglang-runtime:{tag}"
    changes: dict[str, Any] = {f"{COMPONENT}/frontend/{MAIN}/image": image}
    for pool in ("prefill", "decode"):
        main = f"{COMPONENT}/{pool}/{MAIN}"
        changes[f"{main}/image"] = image
        changes[f"{main}/resources/limits/rdma~1ib"] = REMOVE
        changes[f"{main}/resources/limits/{EFA}"] = "8"
        changes[f"{main}/env/{PLUGIN}"] = {"name": PLUGIN, "value": plugin}
    return sglang_disagg_dgd(changes)


def sglang(config: Mapping[str, Any]) -> str:
    return sglang_agg({f"worker/config/{key}": value for key, value in config.items()})


def attention_dp(requests: int) -> str:
    return sglang(
        {"enable-dp-attention": True, "data-parallel-size": 2, "max-running-requests": requests}
    )


def checkpointed(changes: Mapping[str, Any]) -> str:
    worker = f"{COMPONENT}/worker"
    return sglang_agg_dgd({f"{worker}/experimental": {"checkpoint": {"enabled": True}}, **changes})


def planned(tag: str, engine: str, base: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    image = f"{REGISTRY}/{engine}-runtime:{tag}"
    pools = [pool for pool in ("prefill", "decode", "worker") if pool in base]
    changes: dict[str, Any] = {"engine/image": image}
    for pool in pools:
        changes |= {f"{pool}/replicas": REMOVE, f"{pool}/autoscaling": {"owner": "planner"}}
    planner = {"image": f"{REGISTRY}/dynamo-planner:{tag}", "max_gpus": 16, "config": dict(config)}
    return graph(base, {**changes, "planner": planner})


BY_LOAD = {"optimization_target": "sla", "enable_load_scaling": True, "ttft_ms": 500, "itl_ms": 20}
BY_THROUGHPUT = {**BY_LOAD, "enable_load_scaling": False}
CASES = (
    vary("PS913", vllm, VLLM_AGG, X, {"load-format": "gms", "enable-expert-parallel": True})(
        "1.3.1", "1.4.2"
    ),
    vary("PS914", vllm, VLLM_DISAGG, X, {"speculative-config": EAGLE})(
        "1.3.1", "1.4.2", fixed=vllm(VLLM_DISAGG, "1.3.1", {})
    ),
    vary("PS914", vllm, X, "1.3.0", {"speculative-config": EAGLE})(VLLM_DISAGG, VLLM_AGG),
    vary(
        "PS915",
        vllm,
        VLLM_DISAGG,
        "1.3.1",
        {
            "kv-transfer-config": {"kv_connector": "PdConnector", **CONNECTOR},
            "disable-hybrid-kv-cache-manager": X,
        },
    )(OMIT, True),
    vary("PS917", over_efa)("1.3.1-efa", "1.4.2-efa", is_repaired_by_near=True),
    # the defect is in the plugin LIBFABRIC
    vary("PS917", over_efa, "1.3.1-efa", plugin=X)(OMIT, "UCX"),
    # the image of another registry may have a newer NIXL
    vary("PS917", over_efa, "1.3.0-efa", X)(OMIT, "registry.example"),
    vary("PS919", attention_dp)(1, 2),
    Case("PS920", checkpointed({}), sglang_agg_dgd()),
    # GPU Memory Service V1
    vary(
        "PS920",
        sglang_agg,
        {"worker/env/DYN_GMS_USE_V1": "true", "worker/config/disable-cuda-graph": X},
    )(OMIT, True),
    vary(
        "PS921",
        sglang_agg_dgd,
        {
            f"{COMPONENT}/worker/{MAIN}/command": ["python3", "-m", "dynamo.sglang.sidecar"],
            f"{COMPONENT}/worker/{MAIN}/args": [],
            f"{COMPONENT}/worker/{MAIN}/image": X,
        },
    )(f"{REGISTRY}/sglang-runtime:1.5.1", f"{REGISTRY}/sglang-runtime:1.6.1", also=("PS905",)),
    vary("PS922", planned, "1.4.2", "vllm", VLLM_AGG, X)(
        BY_LOAD, BY_THROUGHPUT, is_repaired_by_near=True
    ),
    vary("PS922", planned, X, "sglang", SGLANG_DISAGG, {"optimization_target": "load"})(
        "1.4.2", "1.5.1", fixed=planned("1.4.2", "sglang", SGLANG_DISAGG, BY_THROUGHPUT)
    ),
    vary("PS922", planned, X, "tensorrtllm", TRTLLM_AGG, {"optimization_target": "load"})(
        "1.3.1", "1.4.2"
    ),
    vary(
        "PS916",
        vllm_agg_dgd,
        {
            f"{COMPONENT}/worker/{MAIN}/command": ["python3", "-m", "dynamo.mocker"],
            f"{COMPONENT}/worker/{MAIN}/args": ["--model-path", "a/b", "--aic-perf-model"],
            f"{COMPONENT}/worker/{MAIN}/image": X,
        },
    )(f"{REGISTRY}/vllm-runtime:1.3.1", f"{REGISTRY}/vllm-runtime:1.4.2", also=("PS904", "PS905")),
    vary("PS918", trtllm_agg, {"frontend/args": ["--enable-anthropic-api"], "engine/image": X})(
        OMIT, f"{REGISTRY}/tensorrtllm-runtime:1.6.2"
    ),
    vary("PS918", graph, X, {"frontend/env/DYN_ENABLE_ANTHROPIC_API": "true"})(
        TRTLLM_AGG, VLLM_AGG
    ),
)
