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
    REMOVE,
    SGLANG_AGG,
    SGLANG_DISAGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
    manifest,
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
    Case(
        rule="PS501",
        bad=graph(TRTLLM_DISAGG, {"prefill/args": ["--no-publish-kv-events"]}),
        near=graph(TRTLLM_DISAGG, {"decode/args": ["--no-publish-kv-events"]}),
        fixed=graph(TRTLLM_DISAGG, {"prefill/args": ["--publish-kv-events"]}),
    ),
    Case(
        rule="PS501",
        bad=manifest(TRTLLM_DISAGG, NO_EVENTS),
        near=manifest(
            TRTLLM_DISAGG,
            {**NO_EVENTS, f"{PREFILL_ENV}/KV": env("DYN_TRTLLM_PUBLISH_KV_EVENTS", "on")},
        ),
    ),
    Case(
        rule="PS501",
        bad=graph(VLLM_AGG, {"worker/config/kv-events-config/enable_kv_cache_events": False}),
        near=graph(
            VLLM_AGG,
            {
                "worker/config/kv-events-config/enable_kv_cache_events": False,
                "router/kv_events": False,
            },
        ),
    ),
    Case(
        rule="PS501",
        bad=graph(SGLANG_AGG, {"worker/config/kv-events-config": '{"publisher": "null"}'}),
        near=graph(SGLANG_AGG, {"worker/config/kv-events-config": '{"publisher": "zmq"}'}),
    ),
    Case(
        rule="PS502",
        bad=graph(TRTLLM_DISAGG, {"prefill/config/kv_cache_config/enable_block_reuse": False}),
        near=graph(TRTLLM_DISAGG, {"decode/config/kv_cache_config/enable_block_reuse": False}),
    ),
    Case(
        rule="PS502",
        bad=graph(VLLM_AGG, {"worker/args": ["--no-enable-prefix-caching"]}),
        near=graph(
            VLLM_AGG, {"worker/args": ["--no-enable-prefix-caching"], "router/mode": "random"}
        ),
    ),
    Case(  # a policy file without a credit, and with one of 0
        rule="PS502",
        bad=graph(
            VLLM_AGG,
            {
                "worker/args": ["--no-enable-prefix-caching"],
                "router": {"queue_threshold": 2.0, "prefill_load_scale": 0.5},
            },
        ),
        near=graph(
            VLLM_AGG,
            {
                "worker/args": ["--no-enable-prefix-caching"],
                "router": {"queue_threshold": 2.0, "overlap_score_credit": 0.0},
            },
        ),
    ),
    Case(
        rule="PS502",
        bad=graph(SGLANG_AGG, {"worker/config/disable-radix-cache": True}),
        near=graph(SGLANG_AGG, {"worker/config/disable-radix-cache": False}),
    ),
    Case(
        rule="PS502",
        bad=graph(MOCKER, {"engine/config/engine/enable_prefix_caching": False}),
        near=graph(MOCKER, {"engine/config/engine/enable_prefix_caching": True}),
    ),
    Case(
        rule="PS503",
        bad=graph(
            TRTLLM_AGG, {"router/mode": "least-loaded", "worker/args": ["--publish-kv-events"]}
        ),
        near=graph(TRTLLM_AGG, {"router/mode": "kv", "worker/args": ["--publish-kv-events"]}),
    ),
    Case(
        rule="PS503",
        bad=graph(VLLM_AGG, {"router/mode": "random", "worker/config/kv-events-config": EVENTS}),
        near=graph(
            VLLM_AGG,
            {
                "router/mode": "random",
                "worker/config/kv-events-config": {**EVENTS, "publisher": "null"},
            },
        ),
    ),
    Case(
        rule="PS503",
        bad=graph(TRTLLM_AGG, {"router/kv_events": False, "worker/args": ["--publish-kv-events"]}),
        near=graph(TRTLLM_AGG, {"router/kv_events": False}),
    ),
    Case(
        rule="PS504",
        bad=graph(VLLM_AGG, {"router/mode": "round-robin"}),
        near=graph(VLLM_AGG, {"router/mode": "round-robin", "worker/replicas": 1}),
        fixed=graph(VLLM_AGG, {"router/mode": "kv"}),
    ),
    Case(
        rule="PS504",  # decode workers have no prefix cache
        bad=graph(TRTLLM_DISAGG, {"router/mode": "random", "prefill/replicas": 2}),
        near=graph(
            TRTLLM_DISAGG, {"router/mode": "random", "prefill/replicas": 1, "decode/replicas": 2}
        ),
    ),
    Case(
        rule="PS505",
        bad=graph(TRTLLM_DISAGG, {"frontend/replicas": 2, "router/replica_sync": False}),
        near=graph(TRTLLM_DISAGG, {"frontend/replicas": 1, "router/replica_sync": False}),
    ),
    Case(
        rule="PS505",
        bad=graph(
            VLLM_AGG, {"frontend/replicas": 2, "frontend/args": ["--no-router-replica-sync"]}
        ),
        near=manifest(
            VLLM_AGG,
            {
                "dgd/spec/components/frontend/replicas": 2,
                f"{FRONTEND_ARGS}/--router-replica-sync": REMOVE,
                f"{FRONTEND_ENV}/SYNC": env("DYN_ROUTER_REPLICA_SYNC", "true"),
            },
        ),
    ),
    Case(
        rule="PS506",
        bad=graph(VLLM_AGG, {"frontend/args": ["--kv-cache-block-size", "32"]}),
        near=graph(VLLM_AGG, {"frontend/args": ["--kv-cache-block-size", "64"]}),
    ),
    Case(
        rule="PS506",  # TensorRT-LLM's default is 32
        bad=graph(TRTLLM_AGG, {"frontend/env/DYN_KV_CACHE_BLOCK_SIZE": "64"}),
        near=graph(TRTLLM_AGG, {"frontend/env/DYN_KV_CACHE_BLOCK_SIZE": "32"}),
    ),
    Case(
        rule="PS507",
        bad=graph(TRTLLM_AGG, {"worker/args": ["--kv-block-size", "64"]}),
        near=graph(
            TRTLLM_AGG,
            {
                "worker/args": ["--kv-block-size", "64"],
                "worker/config/kv_cache_config/tokens_per_block": 64,
            },
        ),
    ),
    Case(
        rule="PS508",
        bad=graph(TRTLLM_AGG, {"worker/config/kv_cache_config/kv_events_config": EVENTS}),
        near=graph(
            TRTLLM_AGG,
            {
                "worker/config/kv_cache_config/kv_events_config": EVENTS,
                "worker/env/TLLM_KV_CACHE_MANAGER_V2_BACKEND": "python",
            },
        ),
    ),
    Case(
        rule="PS508",  # Dynamo reads it only if the worker publishes events and it is enabled
        bad=graph(TRTLLM_DISAGG, {"prefill/config/kv_cache_config/kv_events_config": EVENTS}),
        near=graph(
            TRTLLM_DISAGG,
            {
                "prefill/config/kv_cache_config/kv_events_config": {"publisher": "zmq"},
                "decode/config/kv_cache_config/kv_events_config": EVENTS,
            },
        ),
    ),
    Case(
        rule="PS509",
        bad=graph(TRTLLM_AGG, {"worker/config/kv_cache_config/max_attention_window": [128, 32768]}),
        near=graph(
            TRTLLM_AGG, {"worker/config/kv_cache_config/max_attention_window": [32768, 32768]}
        ),
    ),
    Case(
        rule="PS510",
        bad=graph(VLLM_AGG, {"worker/config/kv-events-config/endpoint": "tcp://127.0.0.1:20080"}),
        near=graph(VLLM_AGG, {"worker/config/kv-events-config/endpoint": "tcp://[::]:20080"}),
    ),
    Case(
        rule="PS510",
        bad=graph(VLLM_AGG, {"worker/config/kv-events-config/endpoint": "tcp://0.0.0.0:20080"}),
        near=graph(
            VLLM_AGG,
            {
                "worker/config/kv-events-config/endpoint": "tcp://0.0.0.0:20080",
                "worker/config/kv-events-config/publisher": "null",
            },
        ),
    ),
    Case(
        rule="PS511",
        bad=graph(TRTLLM_AGG, {"frontend/migration_limit": 0}),
        near=graph(TRTLLM_AGG, {"frontend/migration_limit": 1}),
    ),
    Case(
        rule="PS511",
        bad=manifest(TRTLLM_AGG, NO_LIMIT),
        near=manifest(
            TRTLLM_AGG, {**NO_LIMIT, f"{FRONTEND_ENV}/LIMIT": env("DYN_MIGRATION_LIMIT", "3")}
        ),
    ),
    Case(
        rule="PS514",
        bad=graph(SGLANG_DISAGG, {"router/conditional_disagg": True}),
        near=graph(SGLANG_DISAGG, {"router/conditional_disagg": False}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS514",
        bad=graph(TRTLLM_DISAGG, {"router/conditional_disagg": True}),
        near=graph(
            TRTLLM_DISAGG,
            {"router/conditional_disagg": True, "decode/args": ["--publish-kv-events"]},
        ),
    ),
    Case(
        rule="PS514",
        bad=graph(
            VLLM_DISAGG,
            {
                "router/mode": "round-robin",
                "frontend/args": ["--router-conditional-disagg"],
                "decode/config/kv-events-config": EVENTS,
            },
        ),
        near=graph(
            VLLM_DISAGG,
            {
                "frontend/args": ["--router-conditional-disagg"],
                "decode/config/kv-events-config": EVENTS,
            },
        ),
    ),
    Case(
        rule="PS515",  # on Blackwell gpt-oss uses trtllm_mha, whose page size is 64
        bad=graph(SGLANG_AGG, {"hardware": H200, "engine/config/page-size": REMOVE}),
        near=graph(SGLANG_AGG, {"hardware": B200, "engine/config/page-size": REMOVE}),
    ),
    Case(
        rule="PS515",
        bad=graph(SGLANG_AGG, {"engine/config": {"attention-backend": "triton", "page-size": 1}}),
        near=graph(SGLANG_AGG, {"engine/config": {"attention-backend": "triton", "page-size": 16}}),
    ),
)

PLANES = (
    Case(
        rule="PS512",
        bad=graph(VLLM_DISAGG, {"decode/env/DYN_REQUEST_PLANE": "nats"}),
        near=graph(
            VLLM_DISAGG,
            {"decode/env/DYN_REQUEST_PLANE": "nats", "infrastructure/requests": "nats"},
        ),
    ),
    Case(
        rule="PS512",
        bad=graph(VLLM_DISAGG, {"env/DYN_EVENT_PLANE": "kafka"}),
        near=graph(VLLM_DISAGG, {"env/DYN_EVENT_PLANE": "nats"}),
    ),
    Case(
        rule="PS512",
        bad=graph(VLLM_AGG, {"worker/args": ["--discovery-backend", "etcd"]}),
        near=graph(
            VLLM_AGG,
            {
                "worker/args": ["--discovery-backend", "etcd"],
                "frontend/env/DYN_DISCOVERY_BACKEND": "etcd",
            },
        ),
    ),
    Case(
        rule="PS513",
        bad=graph(TRTLLM_AGG, {"infrastructure/events": "nats"}),
        near=graph(TRTLLM_AGG, {"infrastructure": {"events": "nats", "nats_url": NATS}}),
    ),
    Case(
        rule="PS513",
        bad=graph(TRTLLM_AGG, {"env/NATS_SERVER": NATS}),
        near=graph(TRTLLM_AGG, {"env/NATS_SERVER": NATS, "infrastructure/requests": "nats"}),
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
