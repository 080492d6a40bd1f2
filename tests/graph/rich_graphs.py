"""One graph per engine that sets nearly every field, so that nearly every template line runs."""

from __future__ import annotations

from typing import Any

COMMON = {
    "model": {
        "id": "a/b",
        "context_length": 8192,
        "revision": "abc",
        "served_name": "c",
        "path": "/models/b",
        "harmony_vocabulary": "/v",
        "reasoning_parser": "gpt_oss",
        "tool_call_parser": "harmony",
        "cache": {"pvc": "claim", "mount_path": "/cache"},
        "token_secret": "hf",
    },
    "env": {"A": "a", "C": "c"},
    "drain_timeout_s": 60,
    "tracing": {"endpoint": "http://tempo:4317", "sample_ratio": 0.5},
    "frontend": {
        "replicas": 2,
        "port": 8001,
        "image": "f:1.6.1",
        "migration_limit": 2,
        "tokenizer": "default",
        "overload_status": 503,
        "inactivity_timeout_s": 300,
        "env": {"A": "f"},
        "args": ["--metrics-prefix", "x"],
    },
    "router": {
        "mode": "kv",
        "kv_events": True,
        "overlap_score_credit": 2,
        "prefill_load_scale": 0.5,
        "temperature": 0.1,
        "min_initial_workers": 1,
        "active_decode_blocks_threshold": 0.5,
        "active_prefill_tokens_threshold": 100,
        "queue_threshold": 2,
        "queue_policy": "wspt",
        "conditional_disagg": True,
    },
    "infrastructure": {
        "discovery": "etcd",
        "events": "nats",
        "requests": "nats",
        "etcd_endpoints": ["http://e:2379"],
        "nats_url": "nats://n:4222",
    },
}
EAGLE = {"method": "eagle3", "draft_model": "d/e", "draft_tokens": 2}


def _graph(kind: str, **sections: Any) -> dict[str, Any]:
    engine = {"kind": kind, "image": "e:1.6.1", "env": {"A": "e"}, "args": ["--migration", "x"]}
    engine |= sections.pop("engine", {})
    return {**COMMON, "engine": engine, **sections}


def _pool(**fields: Any) -> dict[str, Any]:
    shared = {"replicas": 2, "gpus": 4, "nodes": 1, "env": {"A": "p"}}
    return {**shared, "args": ["--migration", "p", "--seed=1"], **fields}


# A model downloaded by a Job is a directory; EFA and NVLink have their own environment.
FETCHED = {
    **COMMON["model"],
    "path": None,
    "revision": "a" * 40,
    "cache": {"pvc": "claim", "mount_path": "/cache", "download": True},
}


RICH: dict[str, dict[str, Any]] = {
    "trtllm": _graph(
        "trtllm",
        engine={"config": {"kv_cache_config": {"dtype": "fp8", "tokens_per_block": 32}}},
        prefill=_pool(config={"max_batch_size": 8}),
        decode=_pool(config={"pipeline_parallel_size": 2}, image="d:1.6.1"),
        kv_transfer={"backend": "nixl", "transport": "rdma", "timeout_ms": 1000},
        speculation=EAGLE,
    ),
    "trtllm-buffer": _graph(
        "trtllm",
        engine={"config": {"kv_cache_config": {"tokens_per_block": 32}}},
        prefill=_pool(),
        decode=_pool(nodes=2),
        kv_transfer={"backend": "ucx", "transport": "tcp", "buffer_tokens": 1024},
    ),
    "limits": _graph(
        "trtllm",
        infrastructure={},
        prefill=_pool(request_limit=8, queue_limit=2),
        decode=_pool(request_limit=4, queue_limit=4),
    ),
    "vllm": _graph(
        "vllm",
        engine={"config": {"max_num_seqs": 8, "gpu-memory-utilization": 0.5}},
        prefill=_pool(config={"max_num_seqs": 4}),
        decode=_pool(config={"pipeline_parallel_size": 2}, nodes=2),
        kv_transfer={"timeout_ms": 10000},
        speculation={"method": "ngram", "draft_tokens": 2},
    ),
    "sglang": _graph(
        "sglang",
        engine={"config": {"mem_fraction_static": 0.5}},
        prefill=_pool(config={"tensor_parallel_size": 4}),
        decode=_pool(config={"pp-size": 2}),
        kv_transfer={"backend": "mooncake", "transport": "tcp", "timeout_ms": 10000},
        speculation=EAGLE,
    ),
    "sglang-one-pool": _graph(
        "sglang",
        worker=_pool(config={"enable-dp-attention": True, "dp-size": 2}),
        router={"mode": "round-robin", "min_initial_workers": 2},
        infrastructure={},
    ),
    "trtllm-efa": _graph(
        "trtllm",
        engine={"image": None},
        model=FETCHED,
        hardware={"gpu": "h200", "fabric": "efa"},
        prefill=_pool(),
        decode=_pool(),
        speculation={**EAGLE, "draft_revision": "b" * 40},
    ),
    "vllm-mnnvl": _graph(
        "vllm",
        model={**FETCHED, "cache": {"pvc": "claim", "offline": True}},
        hardware={"gpu": "gb200", "fabric": "mnnvl"},
        prefill=_pool(),
        decode=_pool(nodes=2),
    ),
    "sglang-roce": _graph(
        "sglang",
        hardware={"fabric": "roce"},
        prefill=_pool(),
        decode=_pool(),
        kv_transfer={"rdma_devices": 8, "rdma_resource": "rdma/shared"},
    ),
    "trtllm-autoscaled": _graph(
        "trtllm",
        frontend={"autoscaling": {"owner": "hpa", "min": 2, "max": 4, "metrics": [{"type": "x"}]}},
        prefill=_pool(replicas=None, autoscaling={"owner": "planner", "min": 2}),
        decode=_pool(
            replicas=None,
            autoscaling={"owner": "keda", "max": 4, "signal": "kv_usage", "target": 0.8},
        ),
        planner={
            "max_gpus": 16,
            "config": {"ttft_ms": 500, "itl_ms": 20},
            "image": "p:1.6.1",
            "env": {"A": "p"},
            "args": ["--seed=1"],
        },
        cluster={"monitoring": {"pod_monitors": True, "prometheus": "http://p:9090"}},
    ),
    "mocker": _graph(
        "mocker",
        engine={"config": {"engine": {"backend": "vllm", "block_size": 32}}, "args": []},
        prefill=_pool(gpus=1, config={"engine": {"speedup_ratio": 2.0}}),
        decode=_pool(gpus=0),
    ),
}
