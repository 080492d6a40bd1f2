"""Cases of routing and planes (PS5xx); also collects those outside of the engines."""

from __future__ import annotations

from tests.checks import (
    cases_containers,
    cases_deployment,
    cases_operator,
    cases_pods,
    cases_responses,
    cases_rollout,
)
from tests.checks.support import (
    B200,
    MODEL,
    OMIT,
    REMOVE,
    Case,
    X,
    graph,
    sglang_agg,
    sglang_disagg,
    trtllm_agg,
    trtllm_agg_dgd,
    trtllm_disagg,
    trtllm_disagg_dgd,
    vary,
    vllm_agg,
    vllm_agg_dgd,
    vllm_disagg,
)

MOCKER = {
    "model": {"id": MODEL["id"], "context_length": 32768},
    "engine": {"kind": "mocker"},
    "worker": {"replicas": 2},
}
H200 = {**B200, "gpu": "h200"}
NATS = "nats://nats.dynamo:4222"
EVENTS = {"enable_kv_cache_events": True}
MAIN = "podTemplate/spec/containers/main"
FRONTEND_ARGS = f"dgd/spec/components/frontend/{MAIN}/args"
FRONTEND_ENV = f"dgd/spec/components/frontend/{MAIN}/env"
PREFILL_ARGS = f"dgd/spec/components/prefill/{MAIN}/args"
PREFILL_ENV = f"dgd/spec/components/prefill/{MAIN}/env"
NO_LIMIT = {f"{FRONTEND_ARGS}/--migration-limit": REMOVE, f"{FRONTEND_ARGS}/3": REMOVE}
NO_EVENTS = {f"{PREFILL_ARGS}/--publish-kv-events": REMOVE}


def env(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


ROUTING = (
    vary("PS501", trtllm_disagg)(
        {"prefill/args": ["--no-publish-kv-events"]},
        {"decode/args": ["--no-publish-kv-events"]},
        fixed=trtllm_disagg({"prefill/args": ["--publish-kv-events"]}),
    ),
    vary("PS501", trtllm_disagg_dgd)(
        NO_EVENTS, {**NO_EVENTS, f"{PREFILL_ENV}/KV": env("DYN_TRTLLM_PUBLISH_KV_EVENTS", "on")}
    ),
    vary(
        "PS501",
        vllm_agg,
        {"worker/config/kv-events-config/enable_kv_cache_events": False, "router/kv_events": X},
    )(OMIT, False),
    vary("PS501", sglang_agg, {"worker/config/kv-events-config": X})(
        '{"publisher": "null"}', '{"publisher": "zmq"}'
    ),
    vary("PS502", trtllm_disagg)(
        {"prefill/config/kv_cache_config/enable_block_reuse": False},
        {"decode/config/kv_cache_config/enable_block_reuse": False},
    ),
    vary("PS502", vllm_agg, {"worker/args": ["--no-enable-prefix-caching"], "router/mode": X})(
        OMIT, "random"
    ),
    # a policy file without a credit, and with one of 0
    vary("PS502", vllm_agg, {"worker/args": ["--no-enable-prefix-caching"], "router": X})(
        {"queue_threshold": 2.0, "prefill_load_scale": 0.5},
        {"queue_threshold": 2.0, "overlap_score_credit": 0.0},
    ),
    vary("PS502", sglang_agg, {"worker/config/disable-radix-cache": X})(True, False),
    vary("PS502", graph, MOCKER, {"engine/config/engine/enable_prefix_caching": X})(False, True),
    vary("PS503", trtllm_agg, {"router/mode": X, "worker/args": ["--publish-kv-events"]})(
        "least-loaded", "kv"
    ),
    vary("PS503", vllm_agg, {"router/mode": "random", "worker/config/kv-events-config": X})(
        EVENTS, {**EVENTS, "publisher": "null"}
    ),
    vary("PS503", trtllm_agg, {"router/kv_events": False, "worker/args": X})(
        ["--publish-kv-events"], OMIT
    ),
    vary("PS504", vllm_agg, {"router/mode": "round-robin", "worker/replicas": X})(
        OMIT, 1, fixed=vllm_agg({"router/mode": "kv"})
    ),
    # decode workers have no prefix cache
    vary("PS504", trtllm_disagg)(
        {"router/mode": "random", "prefill/replicas": 2},
        {"router/mode": "random", "prefill/replicas": 1, "decode/replicas": 2},
    ),
    vary("PS505", trtllm_disagg, {"frontend/replicas": X, "router/replica_sync": False})(2, 1),
    Case(
        "PS505",
        vllm_agg({"frontend/replicas": 2, "frontend/args": ["--no-router-replica-sync"]}),
        vllm_agg_dgd(
            {
                "dgd/spec/components/frontend/replicas": 2,
                f"{FRONTEND_ARGS}/--router-replica-sync": REMOVE,
                f"{FRONTEND_ENV}/SYNC": env("DYN_ROUTER_REPLICA_SYNC", "true"),
            }
        ),
    ),
    vary("PS506", vllm_agg, {"frontend/args": X})(
        ["--kv-cache-block-size", "32"], ["--kv-cache-block-size", "64"]
    ),
    # TensorRT-LLM's default is 32
    vary("PS506", trtllm_agg, {"frontend/env/DYN_KV_CACHE_BLOCK_SIZE": X})("64", "32"),
    vary(
        "PS507",
        trtllm_agg,
        {
            "worker/args": ["--kv-block-size", "64"],
            "worker/config/kv_cache_config/tokens_per_block": X,
        },
    )(OMIT, 64),
    vary(
        "PS508",
        trtllm_agg,
        {
            "worker/config/kv_cache_config/kv_events_config": EVENTS,
            "worker/env/TLLM_KV_CACHE_MANAGER_V2_BACKEND": X,
        },
    )(OMIT, "python"),
    # Dynamo reads it only if the worker publishes events and it is enabled
    vary("PS508", trtllm_disagg)(
        {"prefill/config/kv_cache_config/kv_events_config": EVENTS},
        {
            "prefill/config/kv_cache_config/kv_events_config": {"publisher": "zmq"},
            "decode/config/kv_cache_config/kv_events_config": EVENTS,
        },
    ),
    vary("PS509", trtllm_agg, {"worker/config/kv_cache_config/max_attention_window": X})(
        [128, 32768], [32768, 32768]
    ),
    vary("PS510", vllm_agg, {"worker/config/kv-events-config/endpoint": X})(
        "tcp://127.0.0.1:20080", "tcp://[::]:20080"
    ),
    vary(
        "PS510",
        vllm_agg,
        {
            "worker/config/kv-events-config/endpoint": "tcp://0.0.0.0:20080",
            "worker/config/kv-events-config/publisher": X,
        },
    )(OMIT, "null"),
    vary("PS511", trtllm_agg, {"frontend/migration_limit": X})(0, 1),
    vary("PS511", trtllm_agg_dgd)(
        NO_LIMIT, {**NO_LIMIT, f"{FRONTEND_ENV}/LIMIT": env("DYN_MIGRATION_LIMIT", "3")}
    ),
    vary("PS514", sglang_disagg, {"router/conditional_disagg": X})(
        True, False, is_repaired_by_near=True
    ),
    vary("PS514", trtllm_disagg, {"router/conditional_disagg": True, "decode/args": X})(
        OMIT, ["--publish-kv-events"]
    ),
    vary(
        "PS514",
        vllm_disagg,
        {
            "router/mode": X,
            "frontend/args": ["--router-conditional-disagg"],
            "decode/config/kv-events-config": EVENTS,
        },
    )("round-robin", OMIT),
    # on Blackwell gpt-oss uses trtllm_mha, whose page size is 64
    vary("PS515", sglang_agg, {"hardware": X, "engine/config/page-size": REMOVE})(H200, B200),
    vary("PS515", sglang_agg, {"engine/config": {"attention-backend": "triton", "page-size": X}})(
        1, 16
    ),
)

PLANES = (
    vary(
        "PS512", vllm_disagg, {"decode/env/DYN_REQUEST_PLANE": "nats", "infrastructure/requests": X}
    )(OMIT, "nats"),
    vary("PS512", vllm_disagg, {"env/DYN_EVENT_PLANE": X})("kafka", "nats"),
    vary(
        "PS512",
        vllm_agg,
        {"worker/args": ["--discovery-backend", "etcd"], "frontend/env/DYN_DISCOVERY_BACKEND": X},
    )(OMIT, "etcd"),
    vary("PS513", trtllm_agg)(
        {"infrastructure/events": "nats"}, {"infrastructure": {"events": "nats", "nats_url": NATS}}
    ),
    vary("PS513", trtllm_agg, {"env/NATS_SERVER": NATS, "infrastructure/requests": X})(
        OMIT, "nats"
    ),
)

CASES: tuple[Case, ...] = (
    *ROUTING,
    *PLANES,
    *cases_responses.CASES,
    *cases_deployment.CASES,
    *cases_pods.CASES,
    *cases_containers.CASES,
    *cases_operator.CASES,
    *cases_rollout.CASES,
)
