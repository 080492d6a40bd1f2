"""Every problem that the chart reports, as a user of plain Helm reads it.

The chart is used without its schema here: the schema refuses part of it before a template runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ChartError
from penstock.manifests.render import render

MODEL = {"model": {"id": "a/b"}}
MOCKER: dict[str, Any] = {**MODEL, "engine": {"kind": "mocker"}, "prefill": {}, "decode": {}}
TRTLLM: dict[str, Any] = {**MOCKER, "engine": {"kind": "trtllm"}}
VLLM: dict[str, Any] = {**MOCKER, "engine": {"kind": "vllm"}}
SGLANG: dict[str, Any] = {**MOCKER, "engine": {"kind": "sglang"}}
LLAMACPP: dict[str, Any] = {**MOCKER, "engine": {"kind": "llamacpp", "image": "own/image:1"}}
NO_POOLS: dict[str, Any] = {**MODEL, "engine": {"kind": "mocker"}}

REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        NO_POOLS,
        "worker: the graph has no worker pool. Fix: Add `prefill` and `decode`, or add `worker`.",
    ),
    (
        {**NO_POOLS, "prefill": {}},
        "decode: missing: the graph has `prefill` but not `decode`. Fix: Add `decode`, or use a "
        "single pool called `worker`.",
    ),
    (
        {**NO_POOLS, "decode": {}},
        "prefill: missing: the graph has `decode` but not `prefill`. Fix: Add `prefill`, or use a"
        " single pool called `worker`.",
    ),
    (
        {**MOCKER, "worker": {}},
        "worker: cannot be combined with `prefill`. Fix: Keep `worker`, or keep `prefill` and "
        "`decode`.",
    ),
    (
        {**TRTLLM, "hardware": {"gpus_per_node": 8}, "decode": {"gpus": 16}},
        "decode.gpus: needs 16 GPUs per node, but `hardware.gpus_per_node` is 8. Fix: Use fewer "
        "GPUs per node, or more `nodes`.",
    ),
    (
        {**TRTLLM, "decode": {"gpus": 0}},
        "decode.gpus: is 0, but TensorRT-LLM needs a GPU. Fix: Set `gpus` to at least 1.",
    ),
    (
        {**MOCKER, "decode": {"nodes": 2}},
        "decode.nodes: is 2, but the mocker runs on a single node. Fix: Set `nodes: 1`, and set "
        "`dp_size` in `engine.config`.",
    ),
    (
        {**MOCKER, "decode": {"pod": {"containers": []}}},
        "decode.pod.containers: is set by the chart. Fix: Use `env`, `args` and `resources` "
        "instead.",
    ),
    (
        {**MOCKER, "pod": {"terminationGracePeriodSeconds": 5}},
        "pod.terminationGracePeriodSeconds: is set by the chart. Fix: Set `drain_timeout_s` of "
        "the graph instead.",
    ),
    (
        {**MOCKER, "speculation": {"method": "ngram"}},
        "speculation: the mocker does not support speculative decoding. Fix: Remove "
        "`speculation`, or set `decode_speedup_ratio` in `engine.config.engine`.",
    ),
    (
        {**LLAMACPP, "engine": {"kind": "llamacpp"}},
        "engine.image: is unset, and NVIDIA publishes no image of llama.cpp, which is an engine "
        "for this machine (`penstock up`). Fix: Install the graph of `penstock init --example "
        "quickstart-simulated`, whose images are NVIDIA's, or set `engine.image` to an image of "
        "your own with penstock and xllamacpp.",
    ),
    (
        {**LLAMACPP, "decode": {"nodes": 2}},
        "decode.nodes: is 2, but llama.cpp runs on a single node. Fix: Set `nodes: 1`.",
    ),
    (
        {**TRTLLM, "engine": {"kind": "trtllm", "config": {"pipeline_parallel_size": "abc"}}},
        'engine.config.pipeline_parallel_size: must be a positive integer, got "abc". Fix: Write '
        "an integer, or remove the key.",
    ),
    (
        {**TRTLLM, "decode": {"config": {"kv_cache_config": {"tokens_per_block": [32]}}}},
        "decode.config.kv_cache_config.tokens_per_block: must be a positive integer, got [32]. "
        "Fix: Write an integer, or remove the key.",
    ),
    (
        {**TRTLLM, "engine": {"kind": "trtllm", "config": {"kv_cache_config": "abc"}}},
        'engine.config.kv_cache_config: must be a mapping, got "abc". Fix: Write `key: value` '
        "lines below `kv_cache_config`.",
    ),
    (
        {**VLLM, "prefill": {"config": {"data_parallel_size": -1}}},
        "prefill.config.data_parallel_size: must be a positive integer, got -1. Fix: Write an "
        "integer, or remove the key.",
    ),
    (
        {**SGLANG, "engine": {"kind": "sglang", "config": {"pp-size": 1.5}}},
        "engine.config.pp-size: must be a positive integer, got 1.5. Fix: Write an integer, or "
        "remove the key.",
    ),
    (
        {**MOCKER, "engine": {"kind": "mocker", "config": {"engine": "vllm"}}},
        'engine.config.engine: must be a mapping, got "vllm". Fix: Write `key: value` lines '
        "below `engine`.",
    ),
    (
        {**LLAMACPP, "speculation": {"method": "ngram"}},
        "speculation: penstock's llama.cpp worker does not support speculative decoding. Fix: "
        "Remove `speculation`.",
    ),
    (
        {**LLAMACPP, "kv_transfer": {"backend": "ucx"}},
        "kv_transfer.backend: llamacpp does not support the KV transfer backend ucx. Fix: Use "
        "nixl.",
    ),
    (
        {**TRTLLM, "speculation": {"method": "eagle3"}},
        "speculation.draft_model: missing: method eagle3 needs a draft model. Fix: Set a draft "
        "model, such as `nvidia/gpt-oss-120b-Eagle3-v3`.",
    ),
    (
        {**TRTLLM, "speculation": {"method": "mtp", "draft_model": "x"}},
        "speculation.draft_model: method mtp does not use a draft model. Fix: Remove "
        "`draft_model`.",
    ),
    (
        {**TRTLLM, "decode": {"args": ["--max-seq-len", "5"]}},
        "decode.args: --max-seq-len has no effect: the engine reads the file that the chart "
        "writes. Fix: Set it in `engine.config` or in the `config` of the pool.",
    ),
    (
        {**MOCKER, "engine": {"kind": "mocker", "args": ["--speedup-ratio=3"]}},
        "engine.args: --speedup-ratio=3 has no effect: the engine reads the file that the chart "
        "writes. Fix: Set it in `engine.config` or in the `config` of the pool.",
    ),
    (
        {**VLLM, "engine": {"kind": "vllm", "args": ["--config", "x.yaml"]}},
        "engine.args: --config has no effect: the engine reads the file that the chart writes. "
        "Fix: Set it in `engine.config` or in the `config` of the pool.",
    ),
    (
        {**MOCKER, "decode": {"config": {"engine": {"worker_type": "prefill"}}}},
        "decode.config.engine.worker_type: is derived from the pool. Fix: Remove `worker_type`.",
    ),
    (
        {**VLLM, "kv_transfer": {"backend": "mpi"}},
        "kv_transfer.backend: vllm does not support the KV transfer backend mpi. Fix: Use nixl.",
    ),
    (
        {**SGLANG, "kv_transfer": {"backend": "ucx"}},
        "kv_transfer.backend: sglang does not support the KV transfer backend ucx. Fix: Use nixl "
        "or mooncake.",
    ),
    (
        {**TRTLLM, "kv_transfer": {"backend": "mooncake", "transport": "tcp"}},
        "kv_transfer.transport: is tcp, which only UCX supports; backend mooncake does not use "
        "UCX. Fix: Set `transport: auto`, or use the backend nixl or ucx.",
    ),
    (
        {**VLLM, "decode": {"gpus": 0}},
        "decode.gpus: is 0, but `engine.device` is gpu. Fix: Set `gpus` to at least 1, or set "
        "`engine.device: cpu`.",
    ),
    (
        {**VLLM, "engine": {"kind": "vllm", "device": "cpu", "image": "x"}, "decode": {"gpus": 2}},
        "decode.gpus: is 2, but `engine.device` is cpu. Fix: Remove `gpus` or `device`.",
    ),
    (
        {**VLLM, "engine": {"kind": "vllm", "device": "cpu", "image": "x"}, "decode": {"nodes": 2}},
        "decode.nodes: is 2, but `engine.device` is cpu. Fix: Remove `nodes`.",
    ),
    (
        {
            **VLLM,
            "engine": {"kind": "vllm", "device": "cpu", "image": "x"},
            "decode": {"config": {"block_size": 16}},
        },
        "decode.config.block-size: is not a multiple of 32, which vLLM needs on a CPU. Fix: Set "
        "it to 32.",
    ),
    (
        {"model": VLLM["model"], "engine": {"kind": "vllm", "device": "cpu"}, "worker": {}},
        "worker.image: is unset, and NVIDIA publishes no image of vLLM for CPUs. Fix: Set "
        "`engine.image` to your own image. `penstock up` ignores its value.",
    ),
    (
        {**SGLANG, "engine": {"kind": "sglang", "device": "cpu"}, "prefill": {}, "decode": {}},
        "engine.device: is cpu, but sglang does not run on a CPU. Fix: Set `engine.kind: vllm`, "
        "or remove `device`.",
    ),
    (
        {**VLLM, "kv_transfer": {"buffer_tokens": 64}},
        "kv_transfer.buffer_tokens: has no effect: vllm has no transfer buffer. Fix: Remove "
        "`buffer_tokens`.",
    ),
    (
        {**SGLANG, "kv_transfer": {"transport": "rdma"}, "decode": {"gpus": 0}},
        "kv_transfer.transport: rdma requests one device per GPU, but decode has no GPU. Fix: Set"
        " `kv_transfer.transport` to auto or tcp.",
    ),
    (
        {**MOCKER, "router": {"mode": "random", "temperature": 0}},
        "router.temperature: has no effect with `router.mode: random`. Fix: Set `router.mode: "
        "kv`, or remove `temperature`.",
    ),
    (
        {**MOCKER, "router": {"conditional_disagg": True, "kv_events": False}},
        "router.conditional_disagg: needs KV events, but `router.kv_events` is false. Fix: Set "
        "`router.kv_events: true`, or remove `conditional_disagg`.",
    ),
    (
        {**MOCKER, "infrastructure": {"etcd_endpoints": ["http://a:1"]}},
        "infrastructure.etcd_endpoints: has no effect with `discovery: kubernetes`. Fix: Set "
        "`discovery: etcd`, or remove `etcd_endpoints`.",
    ),
    (
        {**MOCKER, "infrastructure": {"nats_url": "nats://a:1"}},
        "infrastructure.nats_url: has no effect: neither events nor requests use NATS. Fix: Set "
        "`events` or `requests` to nats, or remove `nats_url`.",
    ),
    (
        {**MOCKER, "decode": {"queue_limit": 4}},
        "decode.queue_limit: has no effect without `request_limit`. Fix: Set `request_limit`, or "
        "remove `queue_limit`.",
    ),
    (
        {**MOCKER, "decode": {"request_limit": 4}, "infrastructure": {"requests": "nats"}},
        "decode.request_limit: has no effect with `infrastructure.requests: nats`. Fix: Set "
        "`infrastructure.requests: tcp`, or remove `request_limit`.",
    ),
    (
        {**MOCKER, "pod": {"restartPolicy": "Never"}},
        "pod.restartPolicy: is set by the chart. Fix: Remove `restartPolicy`.",
    ),
    (
        {**MOCKER, "decode": {"pod": {"volumes": [{"name": "model-cache"}]}}},
        "decode.pod.volumes: the chart already uses the volume name model-cache. Fix: Use another"
        " name.",
    ),
    (
        {**MOCKER, "frontend": {"port": 80}},
        "frontend.port: is 80, but the pods run as user 1000, which cannot bind ports below 1024."
        " Fix: Use 8000. The Service has a port of its own.",
    ),
    (
        {**MOCKER, "model": {"id": "a/b", "cache": {"pvc": "c", "mount_path": "/dev/shm"}}},
        "model.cache.mount_path: the chart already mounts something at /dev/shm. Fix: Use another"
        " directory, such as `/opt/model-cache`.",
    ),
    (
        {
            **MOCKER,
            "model": {
                "id": "a/b",
                "revision": "a" * 40,
                "cache": {"pvc": "c", "download": True, "offline": True},
            },
        },
        "model.cache.offline: cannot be combined with `download`, which fetches files from the "
        "Hugging Face Hub. Fix: Remove `offline` or `download`.",
    ),
    (
        {**TRTLLM, "hardware": {"fabric": "none"}, "kv_transfer": {"transport": "rdma"}},
        "kv_transfer.transport: is rdma, but `hardware.fabric` is none. Fix: Remove `transport`, "
        "or correct `hardware.fabric`.",
    ),
    (
        {**TRTLLM, "kv_transfer": {"rdma_devices": 8}},
        "kv_transfer.rdma_devices: has no effect: no pod gets RDMA devices. Fix: Set "
        "`hardware.fabric` to ib, roce or efa, or remove `rdma_devices`.",
    ),
    (
        {**TRTLLM, "hardware": {"fabric": "efa"}, "kv_transfer": {"backend": "ucx"}},
        "kv_transfer.backend: ucx does not support EFA. Fix: Use nixl.",
    ),
    (
        {**TRTLLM, "hardware": {"fabric": "mnnvl", "gpu": "h100"}},
        "hardware.fabric: is mnnvl, but h100 has no NVLink between nodes. Fix: Use ib, roce, efa "
        "or none.",
    ),
    (
        {**TRTLLM, "model": {"id": "a/b", "cache": {"pvc": "c", "download": True}}},
        "model.revision: is unset, but `model.cache.download` needs a commit, the same for every "
        "pod. Fix: Set the 40-digit commit that the Hugging Face Hub shows.",
    ),
    (
        {
            **TRTLLM,
            "model": {
                "id": "a/b",
                "path": "/m",
                "revision": "a" * 40,
                "cache": {"pvc": "c", "download": True},
            },
        },
        "model.path: cannot be combined with `model.cache.download`, which sets the path. Fix: "
        "Remove `model.path` or `download`.",
    ),
    (
        {
            **TRTLLM,
            "model": {
                "id": "a/b",
                "revision": "a" * 40,
                "cache": {"pvc": "c", "download": True},
            },
            "speculation": {"method": "eagle3", "draft_model": "d/e"},
        },
        "speculation.draft_revision: is unset, but `model.cache.download` needs a commit. Fix: "
        "Set the commit of the draft model, or set `draft_model` to a path.",
    ),
    (
        {
            **TRTLLM,
            "speculation": {"method": "eagle3", "draft_model": "d/e", "draft_revision": "x"},
        },
        "speculation.draft_revision: has no effect without `model.cache.download`. Fix: Remove "
        "`draft_revision`, or set `model.cache.download: true`.",
    ),
    (
        {**MOCKER, "platform": "plain", "infrastructure": {"discovery": "kubernetes"}},
        "infrastructure.discovery: is kubernetes, which needs the Dynamo operator, but `platform`"
        " is plain. Fix: Remove `discovery`. Platform plain uses etcd.",
    ),
    (
        {**TRTLLM, "platform": "plain", "prefill": {"nodes": 2}, "decode": {"nodes": 2}},
        "cluster.ssh_secret: is unset, but TensorRT-LLM starts prefill and decode on several "
        "nodes over SSH. Fix: Create the key as the README of the chart describes, and set "
        "`ssh_secret` to its Secret.",
    ),
    (
        {**TRTLLM, "decode": {"nodes": 2}, "cluster": {"ssh_secret": "s"}},
        "cluster.ssh_secret: has no effect: only TensorRT-LLM on several nodes with platform "
        "plain uses it. Fix: Remove `ssh_secret`.",
    ),
    (
        {**VLLM, "platform": "plain", "decode": {"nodes": 2}, "cluster": {"ssh_secret": "s"}},
        "cluster.ssh_secret: has no effect: only TensorRT-LLM on several nodes with platform "
        "plain uses it. Fix: Remove `ssh_secret`.",
    ),
    (
        {
            **VLLM,
            "platform": "plain",
            "decode": {"nodes": 2, "gpus": 8, "config": {"tensor_parallel_size": 8}},
        },
        "decode.nodes: is 2, but the parallelism in its config uses only 8 GPUs, which fit on one"
        " node. Fix: Set `nodes: 1` and more `replicas`, or remove the parallelism from the "
        "config.",
    ),
    (
        {
            **MOCKER,
            "platform": "plain",
            "cluster": {"topology": {"name": "t", "pack_domain": "rack"}},
        },
        "cluster.topology: needs Grove, but `platform` is plain. Fix: Set `platform: dynamo`, or "
        "use `pod.affinity`.",
    ),
    (
        {**MOCKER, "cluster": {"network_policy": {"scrapers": [{}]}}},
        "cluster.network_policy.scrapers: has no effect: `network_policy.enabled` is false. Fix: "
        "Set `enabled: true`, or remove `scrapers`.",
    ),
    (
        {**MOCKER, "cluster": {"monitoring": {"labels": {"a": "b"}}}},
        "cluster.monitoring.labels: has no effect: `monitoring.pod_monitors` is false. Fix: Set "
        "`pod_monitors: true`, or remove `labels`.",
    ),
]


@pytest.mark.parametrize(
    ("values", "message"), REFUSED, ids=[m.split(". Fix")[0] for _, m in REFUSED]
)
def test_refused(bare_chart: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ChartError) as refusal:
        render(values, name="demo", chart=bare_chart)
    (problem,) = refusal.value.problems
    assert f"{problem.place}: {problem.message}. Fix: {problem.fix}" == message
    assert problem.file == "penstock/templates/requirements.yaml"


PLAIN_NODES: dict[str, Any] = {"platform": "plain", "decode": {"nodes": 2, "gpus": 8}}
NOT_REFUSED: list[dict[str, Any]] = [
    MOCKER,
    TRTLLM,
    VLLM,
    SGLANG,
    {**TRTLLM, **PLAIN_NODES, "cluster": {"ssh_secret": "s"}},
    {**VLLM, **PLAIN_NODES},
    {**SGLANG, **PLAIN_NODES},
    {**VLLM, "engine": {"kind": "vllm", "config": {"pipeline-parallel-size": "1"}}},
    {**TRTLLM, "engine": {"kind": "trtllm", "config": {"kv_cache_config": None}}},
]


@pytest.mark.parametrize("values", NOT_REFUSED)
def test_not_refused(bare_chart: Path, values: dict[str, Any]) -> None:
    assert render(values, name="demo", chart=bare_chart).objects


def test_all_problems_are_reported_at_once(bare_chart: Path) -> None:
    values = {
        **MOCKER,
        "worker": {},
        "kv_transfer": {"backend": "mpi", "buffer_tokens": 5},
        "router": {"mode": "random", "ttl_s": 3},
    }
    with pytest.raises(ChartError) as refusal:
        render(values, name="demo", chart=bare_chart)
    places = [problem.place for problem in refusal.value.problems]
    assert places == ["worker", "kv_transfer.backend", "kv_transfer.buffer_tokens", "router.ttl_s"]


def test_a_release_name_that_makes_names_too_long_is_refused(bare_chart: Path) -> None:
    assert render(MOCKER, name="r" * 44, chart=bare_chart).objects
    with pytest.raises(
        ChartError, match=r"63 is the limit\. Fix: Use a name of at most 44 characters"
    ):
        render(MOCKER, name="r" * 45, chart=bare_chart)


def test_release_names_must_be_shorter_with_engines_on_several_nodes(bare_chart: Path) -> None:
    values = {**VLLM, "platform": "plain", "decode": {"nodes": 2}}
    assert render(values, name="r" * 42, chart=bare_chart).objects
    with pytest.raises(ChartError, match=r"52 is the limit .* Fix: Use a name of at most 42"):
        render(values, name="r" * 43, chart=bare_chart)


@pytest.mark.parametrize("name", ["9lives", "a.b"])
def test_a_release_name_that_is_not_a_service_name_is_refused(bare_chart: Path, name: str) -> None:
    with pytest.raises(ChartError, match=r"Release\.Name: .* is not a valid Service name"):
        render(MOCKER, name=name, chart=bare_chart)
