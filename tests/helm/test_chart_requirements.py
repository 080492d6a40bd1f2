"""Every refusal of the chart, in the words a user of plain Helm reads.

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
NO_POOLS: dict[str, Any] = {**MODEL, "engine": {"kind": "mocker"}}

REFUSED: list[tuple[dict[str, Any], str]] = [
    (NO_POOLS, "worker: no pool of workers. Fix: add prefill and decode, or worker"),
    (
        {**NO_POOLS, "prefill": {}},
        "decode: missing: the graph has prefill without decode. "
        "Fix: add decode, or use one pool called worker",
    ),
    (
        {**NO_POOLS, "decode": {}},
        "prefill: missing: the graph has decode without prefill. "
        "Fix: add prefill, or use one pool called worker",
    ),
    (
        {**MOCKER, "worker": {}},
        "worker: stands beside prefill. Fix: keep worker, or prefill and decode",
    ),
    (
        {**TRTLLM, "hardware": {"gpus_per_node": 8}, "decode": {"gpus": 16}},
        "decode.gpus: 16 on each node, and hardware.gpus_per_node is 8. "
        "Fix: use fewer, or more nodes",
    ),
    (
        {**TRTLLM, "decode": {"gpus": 0}},
        "decode.gpus: TensorRT-LLM does not start without a GPU. Fix: set at least 1",
    ),
    (
        {**MOCKER, "decode": {"nodes": 2}},
        "decode.nodes: the mocker does not span nodes. Fix: set 1, and dp_size in engine.config",
    ),
    (
        {**MOCKER, "decode": {"pod": {"containers": []}}},
        "decode.pod.containers: is set by the chart. Fix: use env, args and resources",
    ),
    (
        {**MOCKER, "pod": {"terminationGracePeriodSeconds": 5}},
        "pod.terminationGracePeriodSeconds: is set by the chart. "
        "Fix: use the graph's drain_timeout_s",
    ),
    (
        {**MOCKER, "speculation": {"method": "ngram"}},
        "speculation: the mocker drafts no tokens. "
        "Fix: remove it, or set decode_speedup_ratio in engine.config.engine",
    ),
    (
        {**TRTLLM, "speculation": {"method": "eagle3"}},
        "speculation.draft_model: method eagle3 needs a draft model. "
        "Fix: name one, such as nvidia/gpt-oss-120b-Eagle3-v3",
    ),
    (
        {**TRTLLM, "speculation": {"method": "mtp", "draft_model": "x"}},
        "speculation.draft_model: method mtp takes no draft model. Fix: remove draft_model",
    ),
    (
        {**TRTLLM, "decode": {"args": ["--max-seq-len", "5"]}},
        "decode.args: --max-seq-len has no effect beside the file that the chart writes. "
        "Fix: put it into engine.config or the pool's config",
    ),
    (
        {**MOCKER, "engine": {"kind": "mocker", "args": ["--speedup-ratio=3"]}},
        "engine.args: --speedup-ratio=3 has no effect beside the file that the chart writes. "
        "Fix: put it into engine.config or the pool's config",
    ),
    (
        {**VLLM, "engine": {"kind": "vllm", "args": ["--config", "x.yaml"]}},
        "engine.args: --config has no effect beside the file that the chart writes. "
        "Fix: put it into engine.config or the pool's config",
    ),
    (
        {**MOCKER, "decode": {"config": {"engine": {"worker_type": "prefill"}}}},
        "decode.config.engine.worker_type: follows from the pool. Fix: remove it",
    ),
    (
        {**VLLM, "kv_transfer": {"backend": "mpi"}},
        "kv_transfer.backend: vllm does not move KV with mpi. Fix: use nixl",
    ),
    (
        {**SGLANG, "kv_transfer": {"backend": "ucx"}},
        "kv_transfer.backend: sglang does not move KV with ucx. Fix: use nixl or mooncake",
    ),
    (
        {**TRTLLM, "kv_transfer": {"backend": "mooncake", "transport": "tcp"}},
        "kv_transfer.transport: tcp is a choice of UCX, which backend mooncake does not use. "
        "Fix: use auto, or backend nixl or ucx",
    ),
    (
        {**VLLM, "decode": {"gpus": 0}},
        "decode.gpus: 0, and engine.device is gpu. Fix: set at least 1, or engine.device: cpu",
    ),
    (
        {**VLLM, "engine": {"kind": "vllm", "device": "cpu", "image": "x"}, "decode": {"gpus": 2}},
        "decode.gpus: 2, and engine.device is cpu. Fix: remove gpus, or device",
    ),
    (
        {**VLLM, "engine": {"kind": "vllm", "device": "cpu", "image": "x"}, "decode": {"nodes": 2}},
        "decode.nodes: 2, and engine.device is cpu. Fix: remove nodes",
    ),
    (
        {
            **VLLM,
            "engine": {"kind": "vllm", "device": "cpu", "image": "x"},
            "decode": {"config": {"block_size": 16}},
        },
        "decode.config.block-size: is no multiple of 32, which vLLM's attention on a CPU needs. "
        "Fix: use 32",
    ),
    (
        {"model": VLLM["model"], "engine": {"kind": "vllm", "device": "cpu"}, "worker": {}},
        "worker.image: unset, and NVIDIA publishes no image for vLLM on a CPU. Fix: set "
        "engine.image to one of yours; `penstock up` does not use it, so any name will do there",
    ),
    (
        {**SGLANG, "engine": {"kind": "sglang", "device": "cpu"}, "prefill": {}, "decode": {}},
        "engine.device: sglang does not run on a CPU. Fix: use kind: vllm, or remove device",
    ),
    (
        {**VLLM, "kv_transfer": {"buffer_tokens": 64}},
        "kv_transfer.buffer_tokens: vllm has no transfer buffer to size. Fix: remove it",
    ),
    (
        {**SGLANG, "kv_transfer": {"transport": "rdma"}, "decode": {"gpus": 0}},
        "kv_transfer.transport: rdma asks for a device per GPU, and decode has none. "
        "Fix: use auto or tcp",
    ),
    (
        {**MOCKER, "router": {"mode": "random", "temperature": 0}},
        "router.temperature: has no effect with router.mode random. "
        "Fix: set router.mode: kv, or remove temperature",
    ),
    (
        {**MOCKER, "router": {"conditional_disagg": True, "kv_events": False}},
        "router.conditional_disagg: needs KV events, and router.kv_events is false. "
        "Fix: set router.kv_events: true, or remove conditional_disagg",
    ),
    (
        {**MOCKER, "infrastructure": {"etcd_endpoints": ["http://a:1"]}},
        "infrastructure.etcd_endpoints: has no effect with discovery kubernetes. "
        "Fix: set discovery: etcd, or remove etcd_endpoints",
    ),
    (
        {**MOCKER, "infrastructure": {"nats_url": "nats://a:1"}},
        "infrastructure.nats_url: has no effect: neither events nor requests go through NATS. "
        "Fix: set events or requests to nats, or remove nats_url",
    ),
    (
        {**MOCKER, "pod": {"restartPolicy": "Never"}},
        "pod.restartPolicy: is set by the chart. Fix: remove it",
    ),
    (
        {**MOCKER, "decode": {"pod": {"volumes": [{"name": "model-cache"}]}}},
        "decode.pod.volumes: model-cache is the name of a volume of the chart's. "
        "Fix: use another name",
    ),
    (
        {**MOCKER, "frontend": {"port": 80}},
        "frontend.port: 80, and pods are user 1000, which may not bind a port below 1024. "
        "Fix: use 8000: the Service's port is its own",
    ),
    (
        {**MOCKER, "model": {"id": "a/b", "cache": {"pvc": "c", "mount_path": "/dev/shm"}}},
        "model.cache.mount_path: /dev/shm is where the chart mounts something else. "
        "Fix: use a folder of its own, such as /opt/model-cache",
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
        "model.cache.offline: stands beside download, which asks the hub. Fix: remove one of them",
    ),
    (
        {**TRTLLM, "hardware": {"fabric": "none"}, "kv_transfer": {"transport": "rdma"}},
        "kv_transfer.transport: rdma, and hardware.fabric is none. "
        "Fix: remove transport, or correct the fabric",
    ),
    (
        {**TRTLLM, "kv_transfer": {"rdma_devices": 8}},
        "kv_transfer.rdma_devices: has no effect: no pod gets RDMA devices. "
        "Fix: set hardware.fabric to ib, roce or efa, or remove it",
    ),
    (
        {**TRTLLM, "hardware": {"fabric": "efa"}, "kv_transfer": {"backend": "ucx"}},
        "kv_transfer.backend: ucx does not move KV over EFA. Fix: use nixl",
    ),
    (
        {**TRTLLM, "hardware": {"fabric": "mnnvl", "gpu": "h100"}},
        "hardware.fabric: mnnvl, and h100 has no NVLink between nodes. "
        "Fix: use ib, roce, efa or none",
    ),
    (
        {**TRTLLM, "model": {"id": "a/b", "cache": {"pvc": "c", "download": True}}},
        "model.revision: unset, and model.cache.download fetches one commit, the same for every "
        "pod. Fix: set the commit: the 40 digits that the hub shows",
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
        "model.path: stands beside model.cache.download, which decides where the files are. "
        "Fix: remove one of them",
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
        "speculation.draft_revision: unset, and model.cache.download fetches one commit. "
        "Fix: set the draft model's commit, or a draft_model that is a path",
    ),
    (
        {
            **TRTLLM,
            "speculation": {"method": "eagle3", "draft_model": "d/e", "draft_revision": "x"},
        },
        "speculation.draft_revision: has no effect without model.cache.download. "
        "Fix: remove it, or let the chart fetch the models",
    ),
    (
        {**MOCKER, "platform": "plain", "infrastructure": {"discovery": "kubernetes"}},
        "infrastructure.discovery: kubernetes needs the Dynamo operator, and platform is plain. "
        "Fix: remove it: plain uses etcd",
    ),
    (
        {**TRTLLM, "platform": "plain", "prefill": {"nodes": 2}, "decode": {"nodes": 2}},
        "cluster.ssh_secret: unset, and TensorRT-LLM starts prefill and decode on several nodes "
        "with ssh. Fix: make the key as the chart's README says, and name its Secret",
    ),
    (
        {**TRTLLM, "decode": {"nodes": 2}, "cluster": {"ssh_secret": "s"}},
        "cluster.ssh_secret: has no effect: only TensorRT-LLM on several nodes uses it, with "
        "platform plain. Fix: remove it",
    ),
    (
        {**VLLM, "platform": "plain", "decode": {"nodes": 2}, "cluster": {"ssh_secret": "s"}},
        "cluster.ssh_secret: has no effect: only TensorRT-LLM on several nodes uses it, with "
        "platform plain. Fix: remove it",
    ),
    (
        {
            **VLLM,
            "platform": "plain",
            "decode": {"nodes": 2, "gpus": 8, "config": {"tensor_parallel_size": 8}},
        },
        "decode.nodes: 2, and the parallelism of its config takes 8 GPUs, which one node has. "
        "Fix: set 1 and more replicas, or remove the parallelism from the config",
    ),
    (
        {
            **MOCKER,
            "platform": "plain",
            "cluster": {"topology": {"name": "t", "pack_domain": "rack"}},
        },
        "cluster.topology: is Grove's, and platform is plain. "
        "Fix: use platform: dynamo, or pod.affinity",
    ),
    (
        {**MOCKER, "cluster": {"network_policy": {"scrapers": [{}]}}},
        "cluster.network_policy.scrapers: has no effect: network_policy.enabled is false. "
        "Fix: set enabled: true, or remove it",
    ),
    (
        {**MOCKER, "cluster": {"monitoring": {"labels": {"a": "b"}}}},
        "cluster.monitoring.labels: have no effect: monitoring.pod_monitors is false. "
        "Fix: set pod_monitors: true, or remove them",
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
]


@pytest.mark.parametrize("values", NOT_REFUSED)
def test_not_refused(bare_chart: Path, values: dict[str, Any]) -> None:
    assert render(values, name="demo", chart=bare_chart).objects


def test_all_problems_are_said_at_once(bare_chart: Path) -> None:
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
        ChartError, match=r"63 is the limit\. Fix: use one of at most 44 characters"
    ):
        render(MOCKER, name="r" * 45, chart=bare_chart)


def test_engines_on_several_nodes_leave_less_room_for_the_release_name(bare_chart: Path) -> None:
    values = {**VLLM, "platform": "plain", "decode": {"nodes": 2}}
    assert render(values, name="r" * 42, chart=bare_chart).objects
    with pytest.raises(ChartError, match=r"52 is the limit .* Fix: use one of at most 42"):
        render(values, name="r" * 43, chart=bare_chart)


@pytest.mark.parametrize("name", ["9lives", "a.b"])
def test_a_release_name_that_is_no_service_name_is_refused(bare_chart: Path, name: str) -> None:
    with pytest.raises(ChartError, match=r"release name: .* cannot begin the names of Services"):
        render(MOCKER, name=name, chart=bare_chart)
