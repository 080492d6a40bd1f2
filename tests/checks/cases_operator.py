"""Cases of endpoint pickers, router flags, images, the webhook and multi-node NVLink."""

from __future__ import annotations

from typing import Any

from tests.checks.own_manifests import alpha
from tests.checks.support import TRTLLM_AGG, VLLM_AGG, Case, manifest

COMPONENTS = "dgd/spec/components"
MAIN = "podTemplate/spec/containers/main"
WORKER, FRONTEND, EPP = (f"{COMPONENTS}/{name}" for name in ("worker", "frontend", "Epp"))
IMAGES = "nvcr.io/nvidia/ai-dynamo"
PREFIX = {"type": "prefix-cache-scorer", "name": "prefix"}
STANDALONE = {
    "DYN_EPP_MODE": "standalone",
    "DYN_EPP_INFERENCE_POOL_NAME": "pool",
    "DYN_MODEL_NAME": "openai/gpt-oss-120b",
    "DYN_KV_CACHE_BLOCK_SIZE": "64",
    "DYN_EPP_TOKENIZER_SERVICE_URL": "http://render:8000",
    "DYN_EPP_TOKENIZER_PROTOCOL": "vllm-render",
}
TOPOLOGY = {"clusterTopologyName": "cluster"}
RACK = {**TRTLLM_AGG, "hardware": {"gpu": "gb200", "gpus_per_node": 4}}
GMS = f"{WORKER}/experimental/gpuMemoryService"


def picker(env: dict[str, str], config: Any = None) -> dict[str, Any]:
    """An endpoint picker with variables and eppConfig."""
    container = {
        "name": "main",
        "image": f"{IMAGES}/dynamo-frontend:1.6.1",
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    component = {
        "name": "Epp",
        "type": "epp",
        "replicas": 1,
        "eppConfig": {"config": {"plugins": []}} if config is None else config,
        "podTemplate": {"spec": {"containers": [container]}},
    }
    return {EPP: component}


def with_picker(env: dict[str, str], config: Any = None) -> str:
    return manifest(VLLM_AGG, picker(env, config))


def prefix_blocks(tokens: int) -> str:
    plugin = {**PREFIX, "parameters": {"blockSizeTokens": tokens}}
    return with_picker({}, {"config": {"plugins": [plugin]}})


def sidecar(*args: str) -> str:
    container = {
        "name": "frontend",
        "image": f"{IMAGES}/dynamo-frontend:1.6.1",
        "args": ["-m", "dynamo.frontend", *args],
    }
    at = f"{WORKER}/podTemplate/spec/containers/frontend"
    return manifest(
        VLLM_AGG, {**picker({}), f"{WORKER}/frontendSidecar": "frontend", at: container}
    )


def frontend(*args: str) -> str:
    command = ["python3", "-m", "dynamo.frontend"]
    return manifest(
        VLLM_AGG, {f"{FRONTEND}/{MAIN}/command": command, f"{FRONTEND}/{MAIN}/args": list(args)}
    )


def variable(component: str, name: str, value: str) -> dict[str, Any]:
    return {f"{COMPONENTS}/{component}/{MAIN}/env/{name}/value": value}


ROUTING = (
    Case(
        rule="PS530",
        bad=with_picker({"DYN_KV_CACHE_BLOCK_SIZE": "16"}),
        near=with_picker({"DYN_KV_CACHE_BLOCK_SIZE": "64"}),
    ),
    Case(
        rule="PS531",
        bad=with_picker({"DYN_MODEL_NAME": "openai/gpt-oss-20b"}),
        near=with_picker({"DYN_MODEL_NAME": "openai/gpt-oss-120b"}),
    ),
    Case(
        rule="PS532",
        bad=with_picker({"DYN_EPP_MODE": "standalone"}),
        near=with_picker(STANDALONE),
        is_repaired_by_near=True,
    ),
    Case(rule="PS533", bad=prefix_blocks(1), near=prefix_blocks(64), is_repaired_by_near=True),
    Case(
        rule="PS534",
        bad=sidecar("--router-mode", "kv"),
        near=sidecar("--router-mode", "direct"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS535",
        bad=frontend("--active-decode-blocks-threshold", "85"),
        near=frontend("--active-decode-blocks-threshold", "0.85"),
    ),
    Case(
        rule="PS536",
        bad=frontend("--serve-indexer"),
        near=frontend("--serve-indexer", "--router-mode", "kv"),
        is_repaired_by_near=True,
        also=("PS503",),
    ),
    Case(
        rule="PS537",
        bad=manifest(VLLM_AGG, variable("worker", "DYN_ROUTER_TEMPERATURE", "0.5")),
        near=manifest(VLLM_AGG, variable("frontend", "DYN_ROUTER_TEMPERATURE", "0.5")),
        is_repaired_by_near=True,
    ),
)
DEPLOYMENT = (
    Case(
        rule="PS775",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/image": f"{IMAGES}/sglang-runtime:1.6.1"}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/image": f"{IMAGES}/vllm-runtime:1.6.1-cuda13"}),
    ),
    Case(
        rule="PS776",
        bad=manifest(VLLM_AGG, {"dgd/spec/topologyConstraint": TOPOLOGY}),
        near=manifest(VLLM_AGG, {"dgd/spec/topologyConstraint": TOPOLOGY | {"packDomain": "rack"}}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS776",
        bad=manifest(VLLM_AGG, {f"{WORKER}/topologyConstraint": {"packDomain": "rack"}}),
        near=manifest(
            VLLM_AGG,
            {
                f"{WORKER}/topologyConstraint": {"packDomain": "rack"},
                "dgd/spec/topologyConstraint": TOPOLOGY,
            },
        ),
    ),
    Case(
        rule="PS777",
        bad=manifest(VLLM_AGG, {GMS: {"mode": "IntraPod", "extraClientContainers": ["side"]}}),
        near=manifest(VLLM_AGG, {GMS: {"mode": "IntraPod"}}),
    ),
    Case(
        rule="PS778",
        bad=with_picker({}, {"config": {}, "configMapRef": {"name": "epp"}}),
        near=with_picker({}, {"configMapRef": {"name": "epp"}}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS779",
        bad=manifest(VLLM_AGG, {GMS: {"mode": "intraPod"}}),
        near=manifest(VLLM_AGG, {GMS: {"mode": "IntraPod"}}),
        is_repaired_by_near=True,
    ),
    Case(  # a string in v1alpha1
        rule="PS779",
        bad=alpha({"resources": {"limits": {"gpu": 2}}}),
        near=alpha({"resources": {"limits": {"gpu": "2"}}}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS780",
        bad=manifest(VLLM_AGG, variable("worker", "DYN_DISCOVERY_BACKEND", "mem")),
        near=manifest(VLLM_AGG, variable("worker", "DYN_DISCOVERY_BACKEND", "etcd")),
        also=("PS512",),
    ),
    Case(
        rule="PS781",
        bad=manifest(
            VLLM_AGG, {"dgd/spec/restart": {"id": "1", "strategy": {"order": ["worker"]}}}
        ),
        near=manifest(
            VLLM_AGG,
            {"dgd/spec/restart": {"id": "1", "strategy": {"order": ["worker", "frontend"]}}},
        ),
        is_repaired_by_near=True,
    ),
)
FABRIC = (
    Case(
        rule="PS460",
        bad=manifest(
            RACK,
            {f"{WORKER}/multinode": {"nodeCount": 2}}
            | variable("worker", "NCCL_MNNVL_ENABLE", "1"),
        ),
        near=manifest(
            RACK,
            {
                f"{WORKER}/multinode": {"nodeCount": 2},
                f"{WORKER}/podTemplate/spec/resourceClaims": [
                    {"name": "channel", "resourceClaimTemplateName": "channel"}
                ],
            }
            | variable("worker", "NCCL_MNNVL_ENABLE", "1"),
        ),
    ),
    Case(
        rule="PS461",
        bad=manifest(
            RACK,
            variable("worker", "UCX_TLS", "^cuda_ipc")
            | variable("worker", "UCX_CUDA_IPC_ENABLE_MNNVL", "1"),
        ),
        near=manifest(
            RACK,
            variable("worker", "UCX_TLS", "^tcp")
            | variable("worker", "UCX_CUDA_IPC_ENABLE_MNNVL", "1"),
        ),
        is_repaired_by_near=True,
    ),
)
CASES: tuple[Case, ...] = (*ROUTING, *DEPLOYMENT, *FABRIC)
